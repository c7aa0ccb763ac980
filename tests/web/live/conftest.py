"""One host for the session, served over real HTTP by pytest-flask's ``live_server``."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from flask import Flask
from flask_sqlalchemy import SQLAlchemy

from flask_spiderpool import SpiderPool
from flask_spiderpool.store.tokens import add_token
from flask_spiderpool.terms import Role


@pytest.fixture(scope="session")
def app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Flask]:
    """A host app; ``live_server`` wants it for the whole session."""
    folder = tmp_path_factory.mktemp("live")
    app = Flask("live", instance_path=str(folder))
    app.config.update(
        SQLALCHEMY_DATABASE_URI=f"sqlite:///{folder}/live.db", SPIDERPOOL_MAX_CONTENT_BYTES=10_000
    )
    db, pool = SQLAlchemy(app), SpiderPool(app)
    pool.spider("quotes", start_urls=["https://quotes.example/"])(lambda page: None)
    with app.app_context():
        db.create_all()
        _, app.config["TOKEN"] = add_token(db.session, name="live", role=Role.OPERATOR)
        db.session.commit()
    yield app
    app.extensions["spiderpool"].close()
