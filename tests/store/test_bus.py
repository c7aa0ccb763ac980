"""The database bus keeps what every bus promises."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from flask_spiderpool.bus.base import Bus
from flask_spiderpool.store.bus import DatabaseBus
from tests.bus.contract import BusContract
from tests.store.frontiers import Frontier


class TestDatabaseBus(BusContract):
    """Each bus has a store of its own, as in processes of their own."""

    @pytest.fixture
    def new_bus(self, frontier: Frontier) -> Callable[[], Bus]:
        """Return a function that makes buses on one database."""
        return lambda: DatabaseBus(frontier.another_store(), 0.01)
