"""A store on both databases, each test in a database of its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from flask_spiderpool.config import Settings
from flask_spiderpool.store import Store
from tests.store.frontiers import Frontier

SETTINGS = Settings(lease_s=20.0, backoff_s=4.0, settle_pages=50)


@pytest.fixture
def settings() -> Settings:
    """Return the settings of the tests' stores."""
    return SETTINGS


@pytest.fixture
def frontier(db_url: str, settings: Settings) -> Iterator[Frontier]:
    """Return an empty pool in a database of its own (SQLite and PostgreSQL in turn)."""
    yield from _frontier(db_url, settings)


@pytest.fixture
def postgres_frontier(postgres_url: str, settings: Settings) -> Iterator[Frontier]:
    """The same on PostgreSQL only: for what needs two transactions at once."""
    yield from _frontier(postgres_url, settings)


@pytest.fixture
def sqlite_frontier(sqlite_url: str, settings: Settings) -> Iterator[Frontier]:
    """The same on SQLite only."""
    yield from _frontier(sqlite_url, settings)


def _frontier(url: str, settings: Settings) -> Iterator[Frontier]:
    store = Store.open(url, settings)
    store.create_tables()
    made = Frontier(store, url)
    try:
        yield made
    finally:
        made.close()
