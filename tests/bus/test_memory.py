"""What only the memory bus has: hubs, and queues that are bounded."""

from __future__ import annotations

import gc
from collections import deque

import pytest

from flask_spiderpool.bus import bus_from_url
from flask_spiderpool.bus.base import CommandMessage
from flask_spiderpool.bus.memory import QUEUE_LENGTH, MemoryBus, MemoryHub, hub_named
from flask_spiderpool.bus.redis import RedisBus
from flask_spiderpool.errors import ConfigError
from flask_spiderpool.terms import Command


def version(number: int) -> CommandMessage:
    """Return a command that can be told from others."""
    return CommandMessage(Command.SETTINGS, {"version": number})


def test_a_slow_reader_loses_the_oldest() -> None:
    """A reader that never reads costs bounded memory."""
    bus = MemoryBus()
    list(bus.commands(0))
    for number in range(QUEUE_LENGTH + 5):
        bus.send(version(number))
    assert next(bus.commands(0)) == version(5)


def test_a_url_and_a_prefix_name_a_hub(namespace: str) -> None:
    """Buses of one URL and prefix hear each other, those of another prefix do not."""
    one, same = (bus_from_url("memory://", prefix=namespace) for _ in range(2))
    other = bus_from_url("memory://", prefix=f"{namespace}-other")
    assert [*one.commands(0), *other.commands(0)] == []
    same.send(version(1))
    assert list(one.commands(0)) == [version(1)]
    assert list(other.commands(0)) == []


def test_a_hub_goes_with_its_buses(namespace: str) -> None:
    """Nothing of an app stays in the process when its buses are gone."""
    hub = hub_named(namespace)
    hub.commands.append(deque())
    assert hub_named(namespace) is hub
    hub.commands.clear()
    del hub
    gc.collect()
    fresh = hub_named(namespace)
    assert fresh.commands == []


def test_closing_one_of_two_empty_ones() -> None:
    """Closing a bus ends its own subscription, not one that looks the same."""
    hub = MemoryHub()
    one, two = MemoryBus(hub), MemoryBus(hub)
    assert [*one.commands(0), *two.commands(0)] == []
    two.close()
    one.send(version(1))
    assert list(one.commands(0)) == [version(1)]


def test_a_url_chooses() -> None:
    """redis:// is made without connecting; an unknown scheme is named with what is allowed."""
    bus = bus_from_url("redis://127.0.0.1:1/0")
    assert isinstance(bus, RedisBus)
    bus.close()
    with pytest.raises(ConfigError, match=r"SPIDERPOOL_BUS_URL.*kafka.*database://"):
        bus_from_url("kafka://host")
