"""Fixtures that give tests real servers; started at first use, ended with the session.

``SPIDERPOOL_TEST_PG`` and ``SPIDERPOOL_TEST_REDIS`` name servers to use instead of our own, as
``postgresql+psycopg://user:password@host:port/postgres`` and ``redis://host:port/db``; the tests make and
drop databases ``test_*`` of the first, and FLUSH that database of the second. The ``own_*`` servers are
always ours, since their tests kill them.
"""

from __future__ import annotations

import itertools
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from redis import Redis
from sqlalchemy import make_url

from tests.servers.postgres import PostgresServer, create_database, drop_database
from tests.servers.process import ServerProcess, new_folder
from tests.servers.redis import DATABASES, RedisServer

_redis_databases = itertools.cycle(range(1, DATABASES))


def _run(server: ServerProcess) -> Iterator[ServerProcess]:
    try:
        server.start()
        yield server
    finally:
        server.stop()
        shutil.rmtree(server.folder, ignore_errors=True)


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """The PostgreSQL of the session. Do not kill it: take ``own_postgres`` for that."""
    yield from _run(PostgresServer(new_folder("postgres")))  # type: ignore[misc]


@pytest.fixture(scope="session")
def redis_server() -> Iterator[RedisServer]:
    """The Redis of the session. Do not kill it: take ``own_redis`` for that."""
    yield from _run(RedisServer(new_folder("redis")))  # type: ignore[misc]


@pytest.fixture
def own_postgres() -> Iterator[PostgresServer]:
    """A PostgreSQL of the test's own, to be killed and restarted."""
    yield from _run(PostgresServer(new_folder("postgres")))  # type: ignore[misc]


@pytest.fixture
def own_redis() -> Iterator[RedisServer]:
    """A Redis of the test's own, to be killed and restarted; keeps what was saved by SAVE."""
    yield from _run(RedisServer(new_folder("redis"), durable=True))  # type: ignore[misc]


@pytest.fixture
def new_postgres_url(request: pytest.FixtureRequest) -> Iterator[Callable[..., str]]:
    """Return a function ``(template="template0") -> url`` that makes databases; dropped with the test."""
    outside = os.environ.get("SPIDERPOOL_TEST_PG")
    if outside:
        base = make_url(outside)
        conninfo = base.set(drivername="postgresql").render_as_string(hide_password=False)
    else:
        server: PostgresServer = request.getfixturevalue("postgres_server")
        base = make_url(server.url_of("postgres"))
        conninfo = server.conninfo("postgres")
    made: list[str] = []

    def new(template: str = "template0") -> str:
        name = f"test_{uuid4().hex[:16]}"
        create_database(conninfo, name, template)
        made.append(name)
        return base.set(database=name).render_as_string(hide_password=False)

    yield new
    for name in made:
        drop_database(conninfo, name)


@pytest.fixture
def postgres_url(new_postgres_url: Callable[..., str]) -> str:
    """The URL of a fresh, empty PostgreSQL database."""
    return new_postgres_url()


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    """The URL of an SQLite file that does not exist yet."""
    return f"sqlite:///{tmp_path / 'pool.db'}"


@pytest.fixture(params=["sqlite", "postgresql"])
def db_url(request: pytest.FixtureRequest) -> str:
    """The URL of a fresh database, once on SQLite and once on PostgreSQL."""
    name = "sqlite_url" if request.param == "sqlite" else "postgres_url"
    url: str = request.getfixturevalue(name)
    return url


@pytest.fixture
def redis_url(request: pytest.FixtureRequest) -> str:
    """The URL of an empty Redis database. Channels are the whole server's: use ``namespace`` too."""
    outside = os.environ.get("SPIDERPOOL_TEST_REDIS")
    if outside:
        url = outside
    else:
        server: RedisServer = request.getfixturevalue("redis_server")
        url = server.url_of(next(_redis_databases))
    with Redis.from_url(url) as client:
        client.flushdb()
    return url


@pytest.fixture
def namespace() -> str:
    """A prefix that no other test uses."""
    return f"test_{uuid4().hex[:12]}"


@pytest.fixture
def amqp_url() -> str:
    """The URL of a RabbitMQ; such tests carry the ``rabbitmq`` marker, which says what to do without one."""
    return os.environ["SPIDERPOOL_TEST_AMQP"]
