"""Messages as JSON text, the same on every backend."""

from __future__ import annotations

import json

from flask_spiderpool.bus.base import CommandMessage, EventMessage
from flask_spiderpool.terms import Command, Event


def encode(message: CommandMessage | EventMessage) -> str:
    """Return the message as one line of JSON; data that is not JSON raises TypeError, a caller's bug."""
    return json.dumps({"name": message.name, "data": message.data}, separators=(",", ":"))


def decode_command(text: str | bytes) -> CommandMessage | None:
    """Return the command, or None for what this version does not know (a rolling update has two versions)."""
    parts = _parts(text)
    if parts is None or parts[0] not in set(Command):
        return None
    return CommandMessage(Command(parts[0]), parts[1])


def decode_event(text: str | bytes) -> EventMessage | None:
    """Return the event, or None for what this version does not know."""
    parts = _parts(text)
    if parts is None or parts[0] not in set(Event):
        return None
    return EventMessage(Event(parts[0]), parts[1])


def _parts(text: str | bytes) -> tuple[str, dict[str, object]] | None:
    try:
        message = json.loads(text)
    except ValueError:
        return None
    if not isinstance(message, dict):
        return None
    name, data = message.get("name"), message.get("data")
    if not isinstance(name, str) or not isinstance(data, dict):
        return None
    return name, data
