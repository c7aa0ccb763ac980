"""May this URL be asked now? Decided purely; acting and waiting is the caller's."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from flask_spiderpool.limiter.base import Grant


@dataclass(frozen=True, slots=True)
class Pace:
    """How fast one host may be asked by the whole pool."""

    rate: float  #: requests a second; 0 means unlimited
    burst: int

    @classmethod
    def of(cls, delay_s: float, crawl_delay_s: float | None = None) -> Pace:
        """Turn the longer of the spider's delay and robots.txt's Crawl-delay into a pace."""
        delay = max(delay_s, crawl_delay_s or 0.0)
        return cls(rate=0.0 if delay <= 0 else 1.0 / delay, burst=1)

    def sendable(self, within_s: float, at_most: int) -> int:
        """Return how many requests fit into the next ``within_s`` seconds, at most ``at_most``."""
        if self.rate <= 0:
            return at_most
        return min(at_most, int(self.rate * within_s) + self.burst)


@dataclass(frozen=True, slots=True)
class Go:
    """Send it now: a token was taken for it."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Ask again in ``wait_s`` seconds; nothing was taken."""

    wait_s: float


Decision = Go | Wait

#: Takes tokens for a host: ``(key, rate, burst, n) -> Grant``. Remote limiters answer off the loop.
Acquire = Callable[[str, float, int, int], Awaitable[Grant]]

GO = Go()


async def decide(acquire: Acquire, host_key: str, pace: Pace) -> Decision:
    """Take one token of ``host_key``, or say how long to wait. Robots has been asked before."""
    grant = await acquire(host_key, pace.rate, pace.burst, 1)
    return GO if grant.granted else Wait(max(grant.wait_s, 0.005))
