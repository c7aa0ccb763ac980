"""The bus of a pool with several processes, by Redis pub/sub."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from redis import Redis
from redis.backoff import NoBackoff
from redis.client import PubSub
from redis.exceptions import RedisError
from redis.retry import Retry

from flask_spiderpool.bus.base import CommandMessage, EventMessage
from flask_spiderpool.bus.codec import decode_command, decode_event, encode
from flask_spiderpool.circuit import Circuit

log = logging.getLogger(__name__)

# Connecting and the answer, each: together a caller is held for less than a second.
_TIMEOUT_S = 0.45
# A reader wakes this often to see whether the bus was closed.
_WAKE_S = 0.5

_Message = TypeVar("_Message")


class RedisBus:
    """Two pub/sub channels, ``<prefix>:commands`` and ``<prefix>:events``.

    See :class:`~flask_spiderpool.bus.base.Bus`. A connection that breaks is made anew by the next call or,
    while a reader waits, within 0.5 to 5 s; what was sent meanwhile is lost. While Redis is away ``send``
    and ``publish`` cost nothing. Each direction of one bus is read by one thread at a time.
    """

    def __init__(
        self, url: str, *, prefix: str = "spiderpool", clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._client = _connect(url)
        self._clock = clock
        self._circuit = Circuit(clock=clock)
        self._closed = threading.Event()
        self._commands = _Subscription(self._client, f"{prefix}:commands", self._closed, clock)
        self._events = _Subscription(self._client, f"{prefix}:events", self._closed, clock)

    def send(self, command: CommandMessage) -> None:
        """Tell every worker process."""
        self._tell(self._commands.channel, encode(command))

    def commands(self, timeout_s: float) -> Iterator[CommandMessage]:
        """Yield the commands that arrive within ``timeout_s`` seconds."""
        return self._commands.read(timeout_s, decode_command)

    def publish(self, event: EventMessage) -> None:
        """Tell every listener."""
        self._tell(self._events.channel, encode(event))

    def subscribe(self, timeout_s: float) -> Iterator[EventMessage]:
        """Yield the events that arrive within ``timeout_s`` seconds."""
        return self._events.read(timeout_s, decode_event)

    def close(self) -> None:
        """Give back the connections; a reader in another thread ends within half a second."""
        self._closed.set()
        self._commands.close()
        self._events.close()
        self._client.close()

    def _tell(self, channel: str, text: str) -> None:
        if self._closed.is_set() or self._circuit.enter() > 0:
            return
        try:
            self._client.publish(channel, text)
        except (RedisError, OSError) as exc:
            if self._circuit.failed():
                log.warning("the bus's Redis failed; messages are dropped until it answers: %s", exc)
        else:
            if self._circuit.succeeded():
                log.info("the bus's Redis answers again")


class _Subscription:
    """One channel as one bus reads it."""

    def __init__(
        self, client: Redis, channel: str, closed: threading.Event, clock: Callable[[], float]
    ) -> None:
        self.channel = channel
        self._client = client
        self._closed = closed
        self._clock = clock
        self._circuit = Circuit(clock=clock)
        self._guard = threading.Lock()  # one thread reads; close may come from another
        self._pubsub: PubSub | None = None

    def read(self, timeout_s: float, decode: Callable[[str | bytes], _Message | None]) -> Iterator[_Message]:
        """Subscribe if need be, at once; then yield what arrives."""
        deadline = self._clock() + timeout_s
        self._subscribe()
        return self._messages(deadline, decode)

    def close(self) -> None:
        """End the subscription; waits for a reader that is in the middle of a read."""
        with self._guard:
            self._drop()

    def _messages(
        self, deadline: float, decode: Callable[[str | bytes], _Message | None]
    ) -> Iterator[_Message]:
        while not self._closed.is_set():
            left_s = deadline - self._clock()
            payload = self._next(min(max(left_s, 0.0), _WAKE_S))
            if payload is not None:
                message = decode(payload)
                if message is not None:
                    yield message
            elif left_s <= 0:
                return

    def _next(self, wait_s: float) -> bytes | None:
        """Return one payload, or None after ``wait_s`` or a failure."""
        rest_s = self._subscribe()
        if rest_s > 0:
            self._closed.wait(min(rest_s, wait_s))
            return None
        deadline = self._clock() + wait_s
        with self._guard:
            try:
                while self._pubsub is not None:
                    left_s = max(deadline - self._clock(), 0.0)
                    answer: dict[str, Any] | None = self._pubsub.get_message(timeout=left_s)
                    if answer is None:
                        return None
                    if answer["type"] == "message":
                        return bytes(answer["data"])
            except (RedisError, OSError) as exc:
                self._failed(exc)
        return None

    def _subscribe(self) -> float:
        """Stand subscribed; return 0.0, or the seconds until it is worth another try."""
        with self._guard:
            if self._pubsub is not None:
                return 0.0
            if self._closed.is_set():
                return _WAKE_S
            rest_s = self._circuit.enter()
            if rest_s > 0:
                return rest_s
            pubsub: PubSub = self._client.pubsub()  # type: ignore[no-untyped-call]
            try:
                pubsub.subscribe(self.channel)
                # Only the confirmation says that from now on nothing is missed.
                if pubsub.get_message(timeout=_TIMEOUT_S) is None:
                    raise TimeoutError("no confirmation of the subscription")
            except (RedisError, OSError) as exc:
                pubsub.close()
                self._failed(exc)
                return max(self._circuit.left_s(), 0.01)
            self._pubsub = pubsub
            if self._circuit.succeeded():
                log.info("subscribed to %s again", self.channel)
            return 0.0

    def _failed(self, exc: Exception) -> None:
        self._drop()
        if self._circuit.failed():
            log.warning("lost the subscription to %s; trying again: %s", self.channel, exc)

    def _drop(self) -> None:
        if self._pubsub is not None:
            self._pubsub.close()
            self._pubsub = None


def _connect(url: str) -> Redis:
    client: Redis = Redis.from_url(
        url,
        socket_timeout=_TIMEOUT_S,
        socket_connect_timeout=_TIMEOUT_S,
        # Waiting is the circuit's; a repeated publish would double its message for nothing.
        retry=Retry(NoBackoff(), 0),
        protocol=2,
        # A subscriber sends nothing, so that only these tell it that its server vanished without a word.
        socket_keepalive=True,
        health_check_interval=10,
    )
    return client
