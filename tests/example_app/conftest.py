"""The example host on an empty SQLite file."""

from __future__ import annotations

from pathlib import Path

import pytest
from flask import Flask
from flask.testing import FlaskClient

from example_app import create_app, db
from flask_spiderpool.models import metadata


@pytest.fixture
def host(tmp_path: Path) -> Flask:
    """The app without the pool's tables, as a fresh clone has it.

    Not named ``app``: pytest-flask would then keep one request context for the whole test, and with it
    Flask-Login's user of one request would still be signed in at the next.
    """
    return create_app(
        {
            "TESTING": True,
            "SQLALCHEMY_DATABASE_URI": f"sqlite:///{tmp_path / 'host.db'}",
            "DEMO_USERS": True,
        }
    )


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
