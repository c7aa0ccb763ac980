"""PORT: how fast the pool may ask one host."""

from __future__ import annotations

from typing import NamedTuple, Protocol


class Grant(NamedTuple):
    """The answer of a limiter: how many tokens were taken, and how long to wait for the next (seconds)."""

    granted: int
    wait_s: float


class Limiter(Protocol):
    """A token bucket per key, shared by everyone who may ask that key's host.

    The bucket of a key refills at ``rate`` tokens a second up to ``burst``. A key that the limiter has
    never seen is *not* a full bucket: it holds ``min(burst, rate x age of the limiter's own store)``
    tokens, so that a restart of the store grants no second burst. For every window of ``t`` seconds the
    grants stay at or below ``burst + rate x t``; one token of burst is held back, and for burst 1 the
    interval is ``1/rate + 50 ms``, because arrivals at the site jitter although grants do not (PROTOCOL,
    Limiter). A granted token is used at once or lost.

    Calls never sleep. All times are seconds by the store's own clock. When the store cannot be reached
    nothing is granted (``Grant(0, wait_s)``) and nothing is raised.
    """

    def acquire(self, key: str, rate: float, burst: int, n: int = 1) -> Grant:
        """Take up to ``n`` tokens of ``key``; ``rate <= 0`` means unlimited (all granted)."""
        ...

    def block(self, key: str, for_s: float) -> None:
        """Grant nothing for ``key`` in the next ``for_s`` seconds (429, Retry-After); the longer block wins."""
        ...

    def close(self) -> None:
        """Give back connections and locks. Idempotent."""
        ...
