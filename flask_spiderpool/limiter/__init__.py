"""PORT: how fast the pool may ask one host (:class:`~flask_spiderpool.limiter.base.Limiter`)."""

from __future__ import annotations

import os
from collections.abc import Callable
from urllib.parse import urlsplit

from flask_spiderpool.errors import ConfigError
from flask_spiderpool.limiter.base import Grant, Limiter
from flask_spiderpool.limiter.memory import Hold, MemoryLimiter

__all__ = ["Grant", "Hold", "Limiter", "limiter_from_url"]


def limiter_from_url(
    url: str,
    *,
    prefix: str = "spiderpool",
    lock_path: str | os.PathLike[str] | None = None,
    hold: Callable[[], Hold] | None = None,
) -> Limiter:
    """Make the limiter that ``url`` names; no connection is made before the first grant.

    ``memory://`` counts in this process and holds ``lock_path`` and what ``hold`` makes, so that a second
    process is refused (:class:`~flask_spiderpool.errors.SetupError`). ``redis://``, ``rediss://`` and ``unix://`` count in Redis,
    under keys that begin with ``prefix``.
    """
    scheme = urlsplit(url).scheme
    if scheme == "memory":
        return MemoryLimiter(lock_path=lock_path, hold=hold)
    if scheme in ("redis", "rediss", "unix"):
        from flask_spiderpool.limiter.redis import RedisLimiter

        return RedisLimiter(url, prefix=prefix)
    raise ConfigError([f"SPIDERPOOL_LIMITER_URL = {url!r}: allowed are memory:// and redis://host:port/db"])
