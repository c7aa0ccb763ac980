from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from flask import Flask
from flask_sqlalchemy import SQLAlchemy

from flask_spiderpool import SpiderPool
from flask_spiderpool.cli import spiderpool


@pytest.fixture
def app(sqlite_url: str, tmp_path: Path) -> Iterator[Flask]:
    """A host with one spider, its database empty; no worker, so that tasks stay as they are."""
    db, pool = SQLAlchemy(), SpiderPool()

    @pool.spider("quotes", start_urls=["https://quotes.example/"], max_depth=3)
    def parse(page: Any) -> None:
        """Quotes, said by [somebody]."""

    app = Flask("cli_host", instance_path=str(tmp_path))
    app.config.update(SQLALCHEMY_DATABASE_URI=sqlite_url, SECRET_KEY="test")
    db.init_app(app)
    pool.init_app(app, db=db)
    yield app
    app.extensions["spiderpool"].close()
    with app.app_context():
        db.engine.dispose()


class Cli:
    """Runs commands in this process."""

    def __init__(self, app: Flask) -> None:
        self._runner = app.test_cli_runner()

    def __call__(self, *words: str, code: int = 0) -> Result:
        result = self._runner.invoke(spiderpool, list(words))
        assert result.exit_code == code, result.output + repr(result.exception)
        assert "Traceback" not in result.output
        return result


@pytest.fixture
def bare_cli(app: Flask) -> Cli:
    """Commands on a database without tables."""
    return Cli(app)


@pytest.fixture
def cli(bare_cli: Cli) -> Cli:
    """Commands on a database with tables."""
    bare_cli("db", "upgrade")
    return bare_cli
