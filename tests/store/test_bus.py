"""The database bus keeps what every bus promises."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from flask_spiderpool.bus.base import Bus, CommandMessage, EventMessage
from flask_spiderpool.store import bus as database
from flask_spiderpool.store.bus import DatabaseBus
from flask_spiderpool.terms import Command, Event
from tests.bus.contract import BusContract
from tests.store.frontiers import Frontier


class TestDatabaseBus(BusContract):
    """Each bus has a store of its own, as in processes of their own."""

    @pytest.fixture
    def new_bus(self, frontier: Frontier) -> Callable[[], Bus]:
        """Return a function that makes buses on one database."""
        return lambda: DatabaseBus(frontier.another_store(), 0.01)


def event(number: int) -> EventMessage:
    """Return a numbered event."""
    return EventMessage(Event.TASK_PROGRESS, {"n": number})


def test_messages_are_seen_in_the_order_of_their_ids(postgres_frontier: Frontier) -> None:
    """A command whose sender is slow to commit is not overtaken: a reader past the later id would miss it."""
    f = postgres_frontier
    reader, sender = (DatabaseBus(f.another_store(), 0.01) for _ in range(2))
    assert list(reader.commands(0)) == []
    with f.transaction() as tx:
        tx.all(database._ORDER, topic="command")
        tx.run(database._INSERT, topic="command", name="settings", data='{"n": 1}')
        later = f.waiting(sender.send, CommandMessage(Command.SETTINGS, {"n": 2}))
        assert list(reader.commands(0)) == []
    later.result(10)
    assert [message.data["n"] for message in reader.commands(0.5)] == [1, 2]


def test_an_event_waits_for_nobody(postgres_frontier: Frontier) -> None:
    """A sender that is slow to commit holds up no other's event: slices publish them all over the cluster."""
    f = postgres_frontier
    reader, sender = (DatabaseBus(f.another_store(), 0.01) for _ in range(2))
    assert list(reader.subscribe(0)) == []
    with f.transaction() as tx:
        tx.all(database._ORDER, topic="event")
        tx.run(database._INSERT, topic="event", name="task.progress", data='{"n": 1}')
        sender.publish(event(2))
        assert [message.data["n"] for message in reader.subscribe(0.5)] == [2]


def test_pruned_messages_do_not_confuse_a_reader(frontier: Frontier) -> None:
    """A reader that has seen everything goes on after the keeper has deleted what is old."""
    reader, sender = (DatabaseBus(frontier.another_store(), 0.01) for _ in range(2))
    assert list(reader.subscribe(0)) == []
    for number in range(3):
        sender.publish(event(number))
    assert len(list(reader.subscribe(0.05))) == 3
    frontier.advance(1000)
    frontier.store.keep("k")
    sender.publish(event(9))
    assert [message.data["n"] for message in reader.subscribe(0.5)] == [9]


def test_database_that_is_away(postgres_frontier: Frontier, caplog: pytest.LogCaptureFixture) -> None:
    """Sending and reading raise nothing while the database is away, and it is said once."""
    store = postgres_frontier.another_store()
    bus = DatabaseBus(store, 0.01)
    store._transactions._retry_s = 0
    postgres_frontier.sql("ALTER TABLE spiderpool_bus_message RENAME TO gone")
    for number in range(3):
        bus.publish(event(number))
    assert caplog.text.count("drops messages") == 1
    bus.close()
