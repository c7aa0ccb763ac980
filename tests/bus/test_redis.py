"""What only the Redis bus has: a server that may be away, restarted, or frozen."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator

import pytest
from redis import Redis

from flask_spiderpool.bus.base import CommandMessage, EventMessage
from flask_spiderpool.bus.redis import RedisBus
from flask_spiderpool.terms import Command, Event
from tests.bus.contract import ARRIVES_S, DONE, STOP, first
from tests.servers.process import free_port
from tests.servers.redis import RedisServer


@pytest.fixture
def bus(own_redis: RedisServer) -> Iterator[RedisBus]:
    """A bus on a Redis that the test may kill."""
    bus = RedisBus(own_redis.url)
    yield bus
    bus.close()


def until_heard(bus: RedisBus, sender: RedisBus) -> object:
    """Send until one message comes through; the bus may lose what is sent while it reconnects."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        sender.send(STOP)
        for command in bus.commands(0.2):
            return command
    return pytest.fail("the bus did not come back")


def test_a_restart_is_survived(bus: RedisBus, own_redis: RedisServer) -> None:
    """After kill -9 and restart both sides reconnect by themselves."""
    list(bus.commands(0))
    own_redis.restart()
    with_new_sender = RedisBus(own_redis.url)
    assert until_heard(bus, with_new_sender) == STOP
    assert until_heard(bus, bus) == STOP
    with_new_sender.close()


def test_away_is_quiet_and_quick(caplog: pytest.LogCaptureFixture) -> None:
    """Without a server everything is dropped: nothing raised, logged once a direction, no time lost."""
    bus = RedisBus(f"redis://127.0.0.1:{free_port()}/0")
    began = time.monotonic()
    for _ in range(200):
        bus.send(STOP)
        bus.publish(DONE)
    assert list(bus.commands(0)) == []
    assert list(bus.subscribe(0.05)) == []
    assert time.monotonic() - began < 1.5
    assert [record.levelname for record in caplog.records] == ["WARNING"] * 3
    bus.close()


def test_reading_waits_out_its_time_while_redis_is_away() -> None:
    """A reader without a server does not return early and spin."""
    bus = RedisBus(f"redis://127.0.0.1:{free_port()}/0")
    began = time.monotonic()
    assert list(bus.commands(0.3)) == []
    assert time.monotonic() - began >= 0.3
    bus.close()


def test_losing_the_server_makes_no_reader_spin(bus: RedisBus, own_redis: RedisServer) -> None:
    """A reader whose server went away waits its time out at rest."""
    list(bus.commands(0))
    own_redis.kill()
    began, worked = time.monotonic(), time.process_time()
    assert list(bus.commands(0.6)) == []
    assert time.monotonic() - began >= 0.6
    assert time.process_time() - worked < 0.3


def test_a_frozen_server_holds_a_sender_for_less_than_a_second(bus: RedisBus, own_redis: RedisServer) -> None:
    """The first send costs under a second, the next ones nothing; a new bus is held no longer."""
    bus.send(STOP)
    fresh = RedisBus(own_redis.url)
    os.kill(own_redis.pid, signal.SIGSTOP)
    try:
        for sender in (bus, fresh):
            began = time.monotonic()
            sender.send(STOP)
            assert time.monotonic() - began < 1.0
            began = time.monotonic()
            sender.send(STOP)
            assert time.monotonic() - began < 0.1
    finally:
        os.kill(own_redis.pid, signal.SIGCONT)
        fresh.close()


def test_a_reader_that_began_before_the_server_hears_it(own_redis: RedisServer) -> None:
    """A worker that starts while Redis is down listens as soon as it is up."""
    own_redis.kill()
    bus = RedisBus(own_redis.url)
    assert list(bus.commands(0)) == []
    own_redis.start()
    sender = RedisBus(own_redis.url)
    assert until_heard(bus, sender) == STOP
    bus.close()
    sender.close()


def test_strangers_on_the_channel_are_ignored(bus: RedisBus, own_redis: RedisServer) -> None:
    """What is no message, or a name that this version does not know, is passed over."""
    list(bus.commands(0))
    list(bus.subscribe(0))
    with Redis.from_url(own_redis.url) as client:
        for text in (
            b"\xff\xfe",
            "no json",
            "[]",
            '{"name":"new.verb","data":{}}',
            '{"name":"desired","data":1}',
        ):
            client.publish("spiderpool:commands", text)
            client.publish("spiderpool:events", text)
    bus.send(STOP)
    bus.publish(DONE)
    assert first(bus.commands(ARRIVES_S)) == STOP
    assert first(bus.subscribe(ARRIVES_S)) == DONE


def test_prefixes_are_apart(own_redis: RedisServer) -> None:
    """Two pools on one Redis do not hear each other, not even across its databases."""
    ours, theirs = RedisBus(own_redis.url, prefix="one"), RedisBus(own_redis.url_of(3), prefix="two")
    assert [*ours.commands(0), *theirs.commands(0)] == []
    ours.send(STOP)
    theirs.send(CommandMessage(Command.SETTINGS, {"version": 1}))
    assert first(theirs.commands(ARRIVES_S)) == CommandMessage(Command.SETTINGS, {"version": 1})
    assert first(ours.commands(ARRIVES_S)) == STOP
    assert list(ours.commands(0)) == []
    ours.close()
    theirs.close()


def test_events_flow_while_commands_are_silent(bus: RedisBus) -> None:
    """One direction does not need the other to be read."""
    list(bus.subscribe(0))
    event = EventMessage(Event.TASK_STATUS, {"task_id": "6f1c", "status": "running"})
    bus.publish(event)
    assert first(bus.subscribe(ARRIVES_S)) == event
