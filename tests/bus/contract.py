"""What every bus does. A backend's test module subclasses :class:`BusContract` and gives ``new_bus``."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import islice

import pytest

from flask_spiderpool.bus.base import Bus, CommandMessage, EventMessage
from flask_spiderpool.terms import Command, Event

#: A message that is due is waited for this long; long only where something is wrong.
ARRIVES_S = 10.0

STOP = CommandMessage(Command.DESIRED, {"task_id": "6f1c", "desired": "stop"})
DONE = EventMessage(
    Event.TASK_PROGRESS, {"task_id": "6f1c", "done": 7, "title": "Lampion \u706f\u7c60 \U0001f3ee"}
)


def first(messages: Iterator[object]) -> object:
    """Return the first message; fail if none arrives in time."""
    for message in messages:
        return message
    pytest.fail("no message arrived")


def take(messages: Iterator[object], n: int) -> list[object]:
    """Return the next ``n`` messages; fail if they do not arrive in time."""
    taken = list(islice(messages, n))
    assert len(taken) == n, f"{len(taken)} of {n} messages arrived"
    return taken


class BusContract:
    """The promises of :class:`~flask_spiderpool.bus.base.Bus`, for a backend that ``new_bus`` makes."""

    @pytest.fixture
    def new_bus(self) -> Callable[[], Bus]:
        """Return a function that makes buses which hear each other and nobody else's."""
        raise NotImplementedError

    @pytest.fixture
    def buses(self, new_bus: Callable[[], Bus]) -> Iterator[tuple[Bus, Bus, Bus]]:
        """Three processes' buses; the first two have begun to listen to both directions."""
        three = new_bus(), new_bus(), new_bus()
        for bus in three[:2]:
            assert list(bus.commands(0)) == []
            assert list(bus.subscribe(0)) == []
        yield three
        for bus in three:
            bus.close()

    def test_a_command_reaches_every_worker(self, buses: tuple[Bus, Bus, Bus]) -> None:
        """Each bus that listens gets the command as it was sent."""
        one, two, sender = buses
        sender.send(STOP)
        assert first(one.commands(ARRIVES_S)) == STOP
        assert first(two.commands(ARRIVES_S)) == STOP

    def test_an_event_reaches_every_listener(self, buses: tuple[Bus, Bus, Bus]) -> None:
        """Each bus that listens gets the event as it was published, in any script."""
        one, two, sender = buses
        sender.publish(DONE)
        assert first(one.subscribe(ARRIVES_S)) == DONE
        assert first(two.subscribe(ARRIVES_S)) == DONE

    def test_a_sender_hears_itself(self, buses: tuple[Bus, Bus, Bus]) -> None:
        """Whoever listens hears what it sends, for web and worker may be one process."""
        one, _, _ = buses
        one.send(STOP)
        one.publish(DONE)
        assert first(one.commands(ARRIVES_S)) == STOP
        assert first(one.subscribe(ARRIVES_S)) == DONE

    def test_directions_are_apart(self, buses: tuple[Bus, Bus, Bus]) -> None:
        """Commands are not events."""
        one, _, sender = buses
        sender.publish(DONE)
        sender.send(STOP)
        assert first(one.commands(ARRIVES_S)) == STOP
        assert first(one.subscribe(ARRIVES_S)) == DONE
        assert list(one.commands(0)) == []
        assert list(one.subscribe(0)) == []

    def test_order_of_one_sender(self, buses: tuple[Bus, Bus, Bus]) -> None:
        """Messages of one sender arrive in order."""
        one, _, sender = buses
        sent = [CommandMessage(Command.SETTINGS, {"version": number}) for number in range(200)]
        for command in sent:
            sender.send(command)
        assert take(one.commands(ARRIVES_S), 200) == sent

    def test_reading_goes_on_where_it_ended(self, buses: tuple[Bus, Bus, Bus]) -> None:
        """What arrives between two calls, or was left by an abandoned one, is seen by the next."""
        one, _, sender = buses
        for version in range(3):
            sender.send(CommandMessage(Command.SETTINGS, {"version": version}))
        seen = [take(one.commands(ARRIVES_S), 1)[0] for _ in range(2)]
        sender.send(CommandMessage(Command.SETTINGS, {"version": 3}))
        seen += take(one.commands(ARRIVES_S), 2)
        assert [command.data["version"] for command in seen] == [0, 1, 2, 3]  # type: ignore[attr-defined]

    def test_what_was_sent_before_is_not_seen(self, buses: tuple[Bus, Bus, Bus]) -> None:
        """A subscription begins with its first call, not at its first message."""
        _, _, late = buses
        buses[0].send(STOP)
        listening = late.commands(ARRIVES_S)
        news = CommandMessage(Command.SETTINGS, {"version": 2})
        buses[0].send(news)
        assert first(listening) == news

    def test_an_empty_bus_returns_in_time(self, buses: tuple[Bus, Bus, Bus]) -> None:
        """With nothing to read both directions end after their time."""
        assert list(buses[0].commands(0.05)) == []
        assert list(buses[0].subscribe(0.05)) == []

    def test_a_waiting_reader_is_woken(self, buses: tuple[Bus, Bus, Bus]) -> None:
        """A reader that waits in another thread gets what is sent meanwhile."""
        one, _, sender = buses
        got: list[object] = []
        reader = threading.Thread(target=lambda: got.append(first(one.commands(ARRIVES_S))))
        reader.start()
        sender.send(STOP)
        reader.join(2 * ARRIVES_S)
        assert got == [STOP]

    def test_what_is_sent_is_a_copy(self, buses: tuple[Bus, Bus, Bus]) -> None:
        """Changing the data after sending changes nothing that was sent."""
        one, _, sender = buses
        data = {"version": 1}
        sender.send(CommandMessage(Command.SETTINGS, data))
        data["version"] = 2
        assert first(one.commands(ARRIVES_S)) == CommandMessage(Command.SETTINGS, {"version": 1})

    def test_data_that_is_no_json(self, buses: tuple[Bus, Bus, Bus]) -> None:
        """Data that JSON cannot carry is the caller's bug, on every backend alike."""
        with pytest.raises(TypeError):
            buses[2].send(CommandMessage(Command.SETTINGS, {"version": object()}))

    def test_many_threads_send(self, buses: tuple[Bus, Bus, Bus]) -> None:
        """Commands of several threads all arrive."""
        one, _, sender = buses

        def tell(number: int) -> None:
            for part in range(20):
                sender.send(CommandMessage(Command.SETTINGS, {"n": number * 20 + part}))

        threads = [threading.Thread(target=tell, args=(number,)) for number in range(5)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        seen = take(one.commands(ARRIVES_S), 100)
        assert sorted(command.data["n"] for command in seen) == list(range(100))  # type: ignore[attr-defined]

    def test_close_is_the_end(self, new_bus: Callable[[], Bus]) -> None:
        """A closed bus reads nothing and raises nothing; closing twice is allowed."""
        bus = new_bus()
        assert list(bus.commands(0)) == []
        bus.close()
        bus.close()
        with suppress(StopIteration):
            assert next(bus.commands(0.01)) is None
        bus.send(STOP)
        bus.publish(DONE)

    def test_close_wakes_a_reader(self, new_bus: Callable[[], Bus]) -> None:
        """A reader that waits in another thread ends soon after close."""
        bus = new_bus()
        reading = bus.commands(600)
        reader = threading.Thread(target=lambda: list(reading), daemon=True)
        reader.start()
        bus.close()
        reader.join(ARRIVES_S)
        assert not reader.is_alive()
