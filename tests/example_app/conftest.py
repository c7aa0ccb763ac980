"""The example host on an empty SQLite file."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from flask import Flask
from flask.testing import FlaskClient

from example_app import create_app, db
from example_app.tables import prepare_tables
from flask_spiderpool.models import metadata


def _make(database: Path) -> Flask:
    return create_app(
        {"TESTING": True, "SQLALCHEMY_DATABASE_URI": f"sqlite:///{database}", "DEMO_USERS": True}
    )


@pytest.fixture(scope="session")
def with_users(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database file with the demo users, made once: their passwords take a second to hash."""
    database = tmp_path_factory.mktemp("host") / "host.db"
    app = _make(database)
    with app.app_context():
        prepare_tables()
        db.engine.dispose()
    return database


@pytest.fixture
def host(tmp_path: Path, with_users: Path) -> Flask:
    """The app without the pool's tables, as a fresh clone has it.

    Not named ``app``: pytest-flask would then keep one request context for the whole test, and with it
    Flask-Login's user of one request would still be signed in at the next.
    """
    shutil.copy(with_users, tmp_path / "host.db")
    return _make(tmp_path / "host.db")


@pytest.fixture
def pool_tables(host: Flask) -> Flask:
    """The same, with the pool's tables made."""
    with host.app_context():
        metadata.create_all(db.engine)
    return host


@pytest.fixture
def visitor(host: Flask) -> FlaskClient:
    """A browser that nobody has signed in with."""
    return host.test_client()
