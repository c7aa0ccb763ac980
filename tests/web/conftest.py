"""A small host app with a pool, whose messages are kept instead of sent."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from flask import Flask
from flask.testing import FlaskClient
from flask_sqlalchemy import SQLAlchemy

from flask_spiderpool import SpiderPool
from flask_spiderpool.bus import CommandMessage
from flask_spiderpool.models import metadata
from flask_spiderpool.state import PoolState
from flask_spiderpool.store import Message
from flask_spiderpool.store.tokens import add_token
from flask_spiderpool.terms import Role


class KeptOutlet:
    """Keeps what leaves."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.commands: list[CommandMessage] = []

    def send(self, messages: Any) -> None:
        """Keep messages."""
        self.messages.extend(messages)

    def tell(self, command: CommandMessage) -> None:
        """Keep a command."""
        self.commands.append(command)

    def close(self) -> None:
        """Nothing to do."""


MakeApp = Callable[..., Flask]


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database with the pool's tables, to be copied: making them costs half a second of fsyncs."""
    path = tmp_path_factory.mktemp("template") / "pool.db"
    engine = sa.create_engine(f"sqlite:///{path}", poolclass=sa.NullPool)
    metadata.create_all(engine)
    return path


@pytest.fixture
def make_app(sqlite_url: str, tmp_path: Path, template: Path) -> Iterator[MakeApp]:
    """Return a function that makes a host app with a pool on the test's database."""
    made: list[PoolState] = []

    def make(
        url: str = sqlite_url,
        *,
        pool: SpiderPool | None = None,
        before: Callable[[Flask], object] = lambda app: None,
        **config: Any,
    ) -> Flask:
        database = sa.make_url(url)
        if (
            database.get_backend_name() == "sqlite"
            and database.database
            and not Path(database.database).exists()
        ):
            shutil.copyfile(template, database.database)
        app = Flask("host", instance_path=str(tmp_path / f"instance{len(made)}"))
        app.config.update(
            SQLALCHEMY_DATABASE_URI=url,
            SECRET_KEY="for tests",
            CELERY={"broker_url": "memory://"},
            TESTING=True,
            **config,
        )
        before(app)
        db = SQLAlchemy(app)
        own = pool or SpiderPool()
        own.init_app(app)
        if pool is None:
            own.spider("quotes", start_urls=["https://quotes.example/"])(lambda page: None)
        state: PoolState = app.extensions["spiderpool"]
        state.outlet = KeptOutlet()
        with app.app_context():
            db.create_all()
        made.append(state)
        return app

    yield make
    for state in made:
        state.close()


@pytest.fixture
def app(make_app: MakeApp) -> Flask:
    """The host app that pytest-flask's ``client`` asks."""
    return make_app()


@pytest.fixture
def state(app: Flask) -> PoolState:
    """The app's pool."""
    found: PoolState = app.extensions["spiderpool"]
    return found


@pytest.fixture
def outlet(state: PoolState) -> KeptOutlet:
    """What has left the app."""
    assert isinstance(state.outlet, KeptOutlet)
    return state.outlet


def bearer(app: Flask, role: Role, **more: Any) -> dict[str, str]:
    """Make a token and return the header that carries it."""
    state: PoolState = app.extensions["spiderpool"]
    with app.app_context(), state.session() as session:
        _, secret = add_token(session, name=f"test {role}", role=role, **more)
        session.commit()
    return {"Authorization": f"Bearer {secret}"}


@pytest.fixture
def operator(app: Flask) -> dict[str, str]:
    """The header of someone who may start and steer."""
    return bearer(app, Role.OPERATOR)


@pytest.fixture
def viewer(app: Flask) -> dict[str, str]:
    """The header of someone who may look."""
    return bearer(app, Role.VIEWER)


@pytest.fixture
def task_id(client: FlaskClient, operator: dict[str, str]) -> str:
    """A task that was started over REST."""
    answer = client.post("/spiderpool/spider/start", headers=operator, json={"spider_name": "quotes"})
    assert answer.status_code == 202
    found: str = answer.get_json()["task_id"]
    return found
