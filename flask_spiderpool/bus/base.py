"""PORT: commands to running slices, events from them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

from flask_spiderpool.terms import Command, Event


@dataclass(frozen=True, slots=True)
class CommandMessage:
    """What control tells the slices: a name of :class:`~flask_spiderpool.terms.Command` and JSON data."""

    name: Command
    data: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class EventMessage:
    """What slices tell whoever listens: a name of :class:`~flask_spiderpool.terms.Event` and JSON data."""

    name: Event
    data: dict[str, Any] = field(default_factory=dict)


class Bus(Protocol):
    """A hint, never the truth: every message may be lost or doubled, and nothing may depend on one.

    A lost command costs at most one lease renewal (PROTOCOL, *A slice that may be dead sends nothing*).
    ``send`` and ``publish`` never raise for an unreachable backend and never block for more than a second:
    they drop the message and log once. Messages sent before a subscription began are not seen by it;
    messages of one sender arrive in order.
    """

    def send(self, command: CommandMessage) -> None:
        """Tell every worker process."""
        ...

    def commands(self, timeout_s: float) -> Iterator[CommandMessage]:
        """Yield the commands that arrive within ``timeout_s`` seconds, then return; call it again for more.

        The subscription of the calling bus instance begins with the first call and stands between calls.
        """
        ...

    def publish(self, event: EventMessage) -> None:
        """Tell every listener."""
        ...

    def subscribe(self, timeout_s: float) -> Iterator[EventMessage]:
        """Yield the events that arrive within ``timeout_s`` seconds, then return; as :meth:`commands`."""
        ...

    def close(self) -> None:
        """Give back connections and threads. Idempotent."""
        ...
