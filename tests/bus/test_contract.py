"""The contract on the backends that need no store (the database's stands with the store's tests)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from flask_spiderpool.bus.base import Bus
from flask_spiderpool.bus.memory import MemoryBus, MemoryHub
from flask_spiderpool.bus.redis import RedisBus
from tests.bus.contract import BusContract


class TestMemoryBus(BusContract):
    """Buses on one hub."""

    @pytest.fixture
    def new_bus(self) -> Callable[[], Bus]:
        hub = MemoryHub()
        return lambda: MemoryBus(hub)


class TestRedisBus(BusContract):
    """Buses on a real Redis."""

    @pytest.fixture
    def new_bus(self, redis_url: str, namespace: str) -> Callable[[], Bus]:
        return lambda: RedisBus(redis_url, prefix=namespace)
