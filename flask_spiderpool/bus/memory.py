"""The bus of a pool that lives in one process."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import TypeVar
from weakref import WeakValueDictionary

from flask_spiderpool.bus.base import CommandMessage, EventMessage
from flask_spiderpool.bus.codec import decode_command, decode_event, encode

#: Messages that a subscription keeps for a slow reader; the oldest are lost first.
QUEUE_LENGTH = 10_000

_Message = TypeVar("_Message")


class MemoryHub:
    """What the buses of one process share: who listens."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.commands: list[deque[str]] = []
        self.events: list[deque[str]] = []


_hubs: WeakValueDictionary[str, MemoryHub] = WeakValueDictionary()
_hubs_guard = threading.Lock()


def hub_named(name: str) -> MemoryHub:
    """Return this process's hub of that name; it lives as long as a bus uses it."""
    with _hubs_guard:
        hub = _hubs.get(name)
        if hub is None:
            hub = _hubs[name] = MemoryHub()
        return hub


class MemoryBus:
    """Queues in this process's memory; see :class:`~flask_spiderpool.bus.base.Bus`.

    Buses that are given one hub hear each other. Nothing reaches another process.
    """

    def __init__(self, hub: MemoryHub | None = None, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._hub = MemoryHub() if hub is None else hub
        self._clock = clock
        self._commands: deque[str] | None = None
        self._events: deque[str] | None = None
        self._closed = False

    def send(self, command: CommandMessage) -> None:
        """Tell every bus of the hub."""
        self._put(self._hub.commands, encode(command))

    def commands(self, timeout_s: float) -> Iterator[CommandMessage]:
        """Yield the commands that arrive within ``timeout_s`` seconds."""
        with self._hub.changed:
            if self._commands is None:
                self._commands = self._listen(self._hub.commands)
        return self._read(self._commands, timeout_s, decode_command)

    def publish(self, event: EventMessage) -> None:
        """Tell every listener of the hub."""
        self._put(self._hub.events, encode(event))

    def subscribe(self, timeout_s: float) -> Iterator[EventMessage]:
        """Yield the events that arrive within ``timeout_s`` seconds."""
        with self._hub.changed:
            if self._events is None:
                self._events = self._listen(self._hub.events)
        return self._read(self._events, timeout_s, decode_event)

    def close(self) -> None:
        """End the subscriptions and wake whoever reads them."""
        with self._hub.changed:
            self._closed = True
            # By identity: deques that are equal, such as two empty ones, are not the same subscription.
            self._hub.commands[:] = [queue for queue in self._hub.commands if queue is not self._commands]
            self._hub.events[:] = [queue for queue in self._hub.events if queue is not self._events]
            self._hub.changed.notify_all()

    def _listen(self, queues: list[deque[str]]) -> deque[str]:
        queue: deque[str] = deque(maxlen=QUEUE_LENGTH)
        if not self._closed:
            queues.append(queue)
        return queue

    def _put(self, queues: list[deque[str]], text: str) -> None:
        with self._hub.changed:
            if self._closed:
                return
            for queue in queues:
                queue.append(text)
            self._hub.changed.notify_all()

    def _read(
        self, queue: deque[str], timeout_s: float, decode: Callable[[str], _Message | None]
    ) -> Iterator[_Message]:
        deadline = self._clock() + timeout_s
        while True:
            text = self._next(queue, deadline)
            if text is None:
                return
            message = decode(text)
            if message is not None:
                yield message

    def _next(self, queue: deque[str], deadline: float) -> str | None:
        with self._hub.changed:
            while not self._closed:
                if queue:
                    return queue.popleft()
                left_s = deadline - self._clock()
                if left_s <= 0:
                    return None
                self._hub.changed.wait(left_s)
            return None
