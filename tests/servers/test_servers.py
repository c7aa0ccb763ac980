"""The servers that the other tests stand on."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import kombu
import psutil
import psycopg
import pytest
import sqlalchemy
from redis import Redis

from tests.servers.postgres import PostgresServer, binaries, unprivileged
from tests.servers.process import new_folder
from tests.servers.redis import RedisServer


def test_each_test_gets_an_empty_database(db_url: str) -> None:
    """A fresh database takes a table and holds nothing before."""
    engine = sqlalchemy.create_engine(db_url)
    assert sqlalchemy.inspect(engine).get_table_names() == []
    with engine.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE seen (id integer)")
    assert sqlalchemy.inspect(engine).get_table_names() == ["seen"]
    engine.dispose()


def test_a_database_can_be_copied(new_postgres_url: Callable[..., str]) -> None:
    """A template's tables and rows stand in its copies."""
    first = sqlalchemy.create_engine(new_postgres_url())
    with first.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE seen AS SELECT 7 AS id")
    first.dispose()
    copy = sqlalchemy.create_engine(new_postgres_url(template=str(first.url.database)))
    with copy.connect() as connection:
        assert connection.exec_driver_sql("SELECT id FROM seen").scalar() == 7
    copy.dispose()


def test_redis_databases_are_apart(redis_url: str, redis_server: RedisServer) -> None:
    """A test's Redis database is empty and not the next test's."""
    with Redis.from_url(redis_url) as ours, Redis.from_url(redis_server.url) as other:
        assert ours.dbsize() == 0
        ours.set("a", "1")
        assert other.get("a") is None


def test_redis_restarts_on_its_port(own_redis: RedisServer) -> None:
    """A killed Redis comes back on the same port with what was saved, not with what was not."""
    with Redis.from_url(own_redis.url) as client:
        client.set("saved", "1")
        client.save()
        client.set("lost", "1")
        before = own_redis.pid
        own_redis.restart()
        assert own_redis.pid != before
        assert client.mget("saved", "lost") == [b"1", None]


def test_postgres_restarts_with_its_commits(own_postgres: PostgresServer) -> None:
    """A killed PostgreSQL leaves no process and comes back on the same port with what was committed."""
    conninfo = own_postgres.conninfo("postgres")
    with psycopg.connect(conninfo, autocommit=True) as connection:
        connection.execute("CREATE TABLE kept AS SELECT 1 AS id")
        family = psutil.Process(own_postgres.pid).children(recursive=True)
        assert family
        own_postgres.kill()
        assert not any(child.is_running() and child.status() != psutil.STATUS_ZOMBIE for child in family)
    own_postgres.start()
    with psycopg.connect(conninfo) as connection:
        assert connection.execute("SELECT count(*) FROM kept").fetchone() == (1,)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root needs to shed root")
def test_postgres_does_not_run_as_root(postgres_server: PostgresServer) -> None:
    """As root the server runs as nobody, from binaries that nobody may run."""
    assert psutil.Process(postgres_server.pid).uids().real == unprivileged()["user"]
    assert (binaries() / "initdb").exists()


def test_servers_die_with_the_tests() -> None:
    """kill -9 of the process that started the servers leaves none of them behind."""
    program = (
        "import time\n"
        "from tests.servers.postgres import PostgresServer\n"
        "from tests.servers.process import new_folder\n"
        "from tests.servers.redis import RedisServer\n"
        "servers = [RedisServer(new_folder('redis')), PostgresServer(new_folder('postgres'))]\n"
        "for server in servers: server.start()\n"
        "print(*[s.pid for s in servers], flush=True)\n"
        "time.sleep(300)\n"
    )
    folder = new_folder("orphans")
    folder.chmod(0o755)  # PostgreSQL may run as another user, who must reach its own folder below
    try:
        with subprocess.Popen(
            [sys.executable, "-c", program],
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"TMPDIR": str(folder), "PYTHONPATH": os.fspath(Path(__file__).parents[2])},
        ) as parent:
            assert parent.stdout is not None
            servers = [psutil.Process(int(pid)) for pid in parent.stdout.readline().split()]
            servers += servers[1].children(recursive=True)
            parent.send_signal(signal.SIGKILL)
        _gone, alive = psutil.wait_procs(servers, timeout=20)
        assert alive == []
    finally:
        shutil.rmtree(folder)


@pytest.mark.rabbitmq
def test_rabbitmq_carries_a_message(amqp_url: str, namespace: str) -> None:
    """The RabbitMQ of the run takes a message and gives it back."""
    with kombu.Connection(amqp_url, connect_timeout=10) as connection:
        queue = connection.SimpleQueue(namespace, queue_opts={"auto_delete": True})
        queue.put({"wake": 1})
        message = queue.get(timeout=10)
        assert message.payload == {"wake": 1}
        message.ack()
        queue.close()
