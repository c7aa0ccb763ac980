"""PORT: commands to running slices, events from them (:class:`~flask_spiderpool.bus.base.Bus`)."""

from __future__ import annotations

from urllib.parse import urlsplit

from flask_spiderpool.bus.base import Bus, CommandMessage, EventMessage
from flask_spiderpool.bus.memory import MemoryBus, hub_named
from flask_spiderpool.errors import ConfigError

__all__ = ["Bus", "CommandMessage", "EventMessage", "bus_from_url"]


def bus_from_url(url: str, *, prefix: str = "spiderpool") -> Bus:
    """Make the bus that ``url`` names; no connection is made before the first message.

    ``memory://`` joins the buses of this process that have the same URL and ``prefix``; ``redis://``,
    ``rediss://`` and ``unix://`` join all that have the same server and ``prefix``. ``database://`` is not
    made here: it needs the store, so the composition root makes it.
    """
    scheme = urlsplit(url).scheme
    if scheme == "memory":
        return MemoryBus(hub_named(f"{prefix} {url}"))
    if scheme in ("redis", "rediss", "unix"):
        from flask_spiderpool.bus.redis import RedisBus

        return RedisBus(url, prefix=prefix)
    raise ConfigError(
        [f"SPIDERPOOL_BUS_URL = {url!r}: allowed are database://, memory:// and redis://host:port/db"]
    )
