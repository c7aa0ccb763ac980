"""The bus of a pool that has no Redis: a table, polled."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError
from concurrent.futures import TimeoutError as FutureTimeout
from typing import Any, TypeVar

from flask_spiderpool.bus.base import CommandMessage, EventMessage
from flask_spiderpool.errors import Unavailable
from flask_spiderpool.store.frontier import Store
from flask_spiderpool.store.sql import Statement, Tx, json_value
from flask_spiderpool.terms import Command, Event

log = logging.getLogger("spiderpool.bus")

SEND_S = 0.9  #: a message that is not written within this is dropped: the bus is a hint
_AT_ONCE = 1000

# Ids are given when a row is written but seen when it is committed: without this lock a reader that has seen
# a later id would never see the earlier one. It waits less than the port's second. For commands alone: they
# are few. Slices publish events all over the cluster, and who misses one reads the numbers a moment later.
_ORDER = Statement(
    "SELECT set_config('lock_timeout', '500ms', true), "
    "pg_advisory_xact_lock(hashtextextended('spiderpool bus ' || :topic::text, 0))",
    sqlite="SELECT :topic",
)
_INSERT = Statement(
    "INSERT INTO spiderpool_bus_message (topic, name, data, at) VALUES (:topic, :name, :data::jsonb, @now)"
)
_LAST = Statement("SELECT COALESCE(max(id), 0) FROM spiderpool_bus_message WHERE topic = :topic")
_AFTER = Statement(
    f"""
    SELECT id, name, data FROM spiderpool_bus_message WHERE topic = :topic AND id > :after
    ORDER BY id LIMIT {_AT_ONCE}
    """
)

M = TypeVar("M")


class _Reading:
    """A subscription: the last id seen (None: not begun), and rows read but not yet taken."""

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.after: int | None = None
        self.rows: deque[tuple[str, Any]] = deque()
        self.lock = threading.Lock()


class DatabaseBus:
    """Messages in the pool's own database; see :class:`~flask_spiderpool.bus.base.Bus`.

    A look costs one indexed read; a message costs up to ``poll_s`` seconds. The keeper deletes old ones. An
    event takes no lock: a listener may miss one that is committed while another sender's overtakes it.
    """

    def __init__(
        self, store: Store, poll_s: float = 0.5, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._store = store
        self._poll_s = poll_s
        self._clock = clock
        self._closed = threading.Event()
        self._told = False
        self._commands = _Reading("command")
        self._events = _Reading("event")

    def send(self, command: CommandMessage) -> None:
        """Tell every worker process; dropped when the database is away."""
        self._put("command", command.name, command.data)

    def commands(self, timeout_s: float) -> Iterator[CommandMessage]:
        """Yield the commands that arrive within ``timeout_s`` seconds."""
        self._begin(self._commands)
        return self._read(self._commands, timeout_s, lambda name, data: CommandMessage(Command(name), data))

    def publish(self, event: EventMessage) -> None:
        """Tell every listener; dropped when the database is away."""
        self._put("event", event.name, event.data)

    def subscribe(self, timeout_s: float) -> Iterator[EventMessage]:
        """Yield the events that arrive within ``timeout_s`` seconds."""
        self._begin(self._events)
        return self._read(self._events, timeout_s, lambda name, data: EventMessage(Event(name), data))

    def close(self) -> None:
        """Wake whoever reads. The store is its owner's to close."""
        self._closed.set()

    def _put(self, topic: str, name: str, data: dict[str, Any]) -> None:
        text = json.dumps(data)
        if self._closed.is_set():
            return

        def insert(tx: Tx) -> None:
            if topic == "command":
                tx.all(_ORDER, topic=topic)
            tx.run(_INSERT, topic=topic, name=str(name), data=text)

        try:
            future = self._store.submit(self._store.write, insert)
        except RuntimeError as error:  # the store is closed
            self._complain(error)
            return
        try:
            future.result(SEND_S)
            self._told = False
        except (FutureTimeout, CancelledError, Unavailable) as error:
            future.cancel()
            self._complain(error)
        except Exception as error:
            self._complain(error)

    def _begin(self, reading: _Reading) -> None:
        with reading.lock:
            if reading.after is not None or self._closed.is_set():
                return
            try:
                reading.after = self._store.read(lambda tx: int(tx.all(_LAST, topic=reading.topic)[0][0]))
            except Unavailable as error:
                self._complain(error)

    def _read(
        self, reading: _Reading, timeout_s: float, make: Callable[[str, dict[str, Any]], M]
    ) -> Iterator[M]:
        deadline = self._clock() + timeout_s
        while not self._closed.is_set():
            row = self._next(reading)
            if row is not None:
                try:
                    message = make(row[0], json_value(row[1]))
                except ValueError:  # a name of a later version
                    continue
                yield message
                continue
            left_s = deadline - self._clock()
            if left_s <= 0:
                return
            self._closed.wait(min(self._poll_s, left_s))

    def _next(self, reading: _Reading) -> tuple[str, Any] | None:
        self._begin(reading)
        with reading.lock:
            if not reading.rows and reading.after is not None:
                after = reading.after
                try:
                    rows = self._store.read(lambda tx: tx.all(_AFTER, topic=reading.topic, after=after))
                except Unavailable as error:
                    self._complain(error)
                    return None
                for id_, name, data in rows:
                    reading.rows.append((name, data))
                    reading.after = id_
            return reading.rows.popleft() if reading.rows else None

    def _complain(self, error: BaseException) -> None:
        if not self._told:
            self._told = True
            log.warning("the database bus drops messages: %s", error or type(error).__name__)
