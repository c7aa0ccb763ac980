"""``PoolState``: what one app owns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from flask import Flask
from flask_sqlalchemy import SQLAlchemy

from flask_spiderpool import SpiderPool, current_pool
from flask_spiderpool.bus.memory import MemoryBus
from flask_spiderpool.bus.redis import RedisBus
from flask_spiderpool.errors import SetupError, UnknownTask
from flask_spiderpool.limiter.memory import MemoryLimiter
from flask_spiderpool.limiter.redis import RedisLimiter
from flask_spiderpool.models import Task
from flask_spiderpool.state import PoolState
from flask_spiderpool.state.database import is_memory
from flask_spiderpool.store.bus import DatabaseBus
from flask_spiderpool.store.pulse import DatabasePulse


def _app(tmp_path: Path, **config: Any) -> Flask:
    app = Flask("host", instance_path=str(tmp_path))
    app.config.update({"CELERY": {"broker_url": "memory://"}, **config})
    return app


def _state(app: Flask) -> PoolState:
    state: PoolState = app.extensions["spiderpool"]
    return state


def _pool(app: Flask) -> SpiderPool:
    pool = SpiderPool(app)
    pool.spider("quotes", start_urls=["https://quotes.example/"])(lambda page: None)
    return pool


def test_current_pool_needs_an_app_context() -> None:
    """Outside of one the error says what to write."""
    with pytest.raises(SetupError, match=r"with app\.app_context"):
        current_pool.settings  # noqa: B018 - the look-up is what is tested


def test_current_pool_needs_a_pool() -> None:
    """An app without a pool is told what to call."""
    with Flask("bare").app_context(), pytest.raises(SetupError, match="'bare' has no spider pool"):
        current_pool.settings  # noqa: B018


def test_current_pool_is_the_current_apps(tmp_path: Path) -> None:
    """Each app sees its own."""
    first, second = _app(tmp_path, SPIDERPOOL_ATTEMPTS=1), _app(tmp_path, SPIDERPOOL_ATTEMPTS=2)
    SpiderPool(first), SpiderPool(second)
    with first.app_context():
        assert current_pool.settings.attempts == 1
        with second.app_context():
            assert current_pool.settings.attempts == 2


def test_a_host_without_a_database_is_told(tmp_path: Path) -> None:
    """Neither db nor SPIDERPOOL_DATABASE_URL: the error names both remedies."""
    app = _app(tmp_path)
    pool = _pool(app)
    with app.app_context(), pytest.raises(SetupError, match="SPIDERPOOL_DATABASE_URL"):
        pool.start("quotes")


def test_a_database_of_the_pools_own(tmp_path: Path, sqlite_url: str) -> None:
    """Without the host's db a verb commits by itself, and the task it returns can be read afterwards."""
    app = _app(tmp_path, SPIDERPOOL_DATABASE_URL=sqlite_url)
    pool = _pool(app)
    state = _state(app)
    assert state.database_url() == sqlite_url
    state.store().create_tables()
    with app.app_context():
        task = pool.start("quotes")
        assert task.status == "pending"
        assert pool.task(task.id).spider == "quotes"
        with state.session() as session:
            assert session.get(Task, task.id) is not None
    state.close()


def test_an_unknown_task(tmp_path: Path, sqlite_url: str) -> None:
    """``task`` raises for an id that nobody has."""
    app = _app(tmp_path, SPIDERPOOL_DATABASE_URL=sqlite_url)
    pool = _pool(app)
    _state(app).store().create_tables()
    with app.app_context(), pytest.raises(UnknownTask):
        pool.task("00000000-0000-0000-0000-000000000000")
    _state(app).close()


@pytest.mark.parametrize(
    ("url", "memory"),
    [
        ("sqlite://", True),
        ("sqlite:///:memory:", True),
        ("sqlite:///file:pool?mode=memory&uri=true", True),
        ("sqlite:///pool.db", False),
        ("postgresql+psycopg://host/pool", False),
    ],
)
def test_what_a_database_in_memory_is(url: str, memory: bool) -> None:
    """Only SQLite has one."""
    assert is_memory(url) is memory


def test_a_database_in_memory_needs_eager_mode(tmp_path: Path) -> None:
    """The store has connections of its own, so it refuses what lives in one; eager mode uses the host's."""
    app = _app(tmp_path, SQLALCHEMY_DATABASE_URI="sqlite:///:memory:")
    SQLAlchemy(app)
    SpiderPool(app)
    with pytest.raises(SetupError, match="task_always_eager"):
        _state(app).store()
    eager = _app(tmp_path, SQLALCHEMY_DATABASE_URI="sqlite:///:memory:", CELERY={"task_always_eager": True})
    db = SQLAlchemy(eager)
    SpiderPool(eager)
    with eager.app_context():
        db.create_all()
    assert _state(eager).store().status_counts() == {}
    _state(eager).close()


def test_a_bind_that_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A wrong bind key is named with the setting that holds it."""
    from flask_spiderpool.models import metadata

    monkeypatch.setattr(metadata, "info", {})
    app = _app(tmp_path, SQLALCHEMY_DATABASE_URI="sqlite:///:memory:", SPIDERPOOL_BIND_KEY="crawl")
    SQLAlchemy(app)
    SpiderPool(app)
    with pytest.raises(SetupError, match="SPIDERPOOL_BIND_KEY is 'crawl'"):
        _state(app).database_url()


def test_another_driver_of_postgresql_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The verbs speak psycopg 3 through the host's session: another driver is told the remedy."""
    app = _app(tmp_path, SQLALCHEMY_DATABASE_URI="sqlite:///:memory:")
    db = SQLAlchemy(app)
    pool = _pool(app)
    with app.app_context():
        monkeypatch.setattr(db.engine.dialect, "name", "postgresql")
        monkeypatch.setattr(db.engine.dialect, "driver", "psycopg2")
        with pytest.raises(SetupError, match=r"postgresql\+psycopg://"):
            pool.start("quotes")


def test_another_database_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is neither PostgreSQL nor SQLite needs a database of the pool's own."""
    app = _app(tmp_path, SQLALCHEMY_DATABASE_URI="sqlite:///:memory:")
    db = SQLAlchemy(app)
    pool = _pool(app)
    with app.app_context():
        monkeypatch.setattr(db.engine.dialect, "name", "mysql")
        with pytest.raises(SetupError, match="SPIDERPOOL_DATABASE_URL"):
            pool.start("quotes")


def test_backends_are_chosen_by_settings(tmp_path: Path, sqlite_url: str) -> None:
    """Redis for limiter and bus where it is named, else memory and database; pulse stands in the database."""
    plain = _app(tmp_path / "plain", SPIDERPOOL_DATABASE_URL=sqlite_url)
    redis = _app(
        tmp_path / "redis",
        SPIDERPOOL_DATABASE_URL=sqlite_url,
        SPIDERPOOL_REDIS_URL="redis://127.0.0.1:1/0",
    )
    mixed = _app(
        tmp_path / "mixed",
        SPIDERPOOL_DATABASE_URL=sqlite_url,
        SPIDERPOOL_REDIS_URL="redis://127.0.0.1:1/0",
        SPIDERPOOL_LIMITER_URL="memory://",
        SPIDERPOOL_BUS_URL="database://",
    )
    for app, limiter, bus in (
        (plain, MemoryLimiter, DatabaseBus),
        (redis, RedisLimiter, RedisBus),
        (mixed, MemoryLimiter, DatabaseBus),
    ):
        SpiderPool(app)
        state = _state(app)
        assert isinstance(state.limiter(), limiter)
        assert isinstance(state.bus(), bus)
        assert isinstance(state.pulse(), DatabasePulse)
        assert state.store() is state.store()
        state.close()


def test_eager_mode_needs_no_server_and_no_lock(tmp_path: Path) -> None:
    """In eager mode the bus is memory, and two apps may count in memory side by side."""
    app = _app(tmp_path, SPIDERPOOL_REDIS_URL="redis://127.0.0.1:1/0", CELERY={"task_always_eager": True})
    SpiderPool(app)
    state = _state(app)
    assert state.eager
    assert isinstance(state.bus(), MemoryBus)
    state.close()


def test_host_code_runs_in_a_context_of_its_own(tmp_path: Path) -> None:
    """``enter_app`` gives host code an app context, whose end removes the host's session."""
    app = _app(tmp_path, SQLALCHEMY_DATABASE_URI="sqlite:///:memory:")
    db = SQLAlchemy(app)
    SpiderPool(app)
    with _state(app).enter_app():
        assert current_pool.app is app
        inside = db.session()
    with _state(app).enter_app():
        assert db.session() is not inside


def test_closing_twice(tmp_path: Path, sqlite_url: str) -> None:
    """``close`` is idempotent, and what is used again is made again."""
    app = _app(tmp_path, SPIDERPOOL_DATABASE_URL=sqlite_url)
    SpiderPool(app)
    state = _state(app)
    state.store().create_tables()
    before = state.store()
    state.close()
    state.close()
    assert state.store() is not before
    assert state.store().status_counts() == {}
    state.close()
