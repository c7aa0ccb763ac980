"""Limiters on a clock that the test turns."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from flask_spiderpool.limiter.base import Limiter
from flask_spiderpool.limiter.memory import MemoryLimiter
from flask_spiderpool.limiter.redis import RedisLimiter


class HandClock:
    """Seconds that pass when told to. Starts at a time of day, where floats are coarse."""

    def __init__(self, now: float = 1_790_000_000.25) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now

    def advance(self, by_s: float) -> None:
        self.now += by_s


@pytest.fixture
def clock() -> HandClock:
    """A clock that stands still until the test advances it."""
    return HandClock()


@pytest.fixture(params=["memory", "redis"])
def new_limiter(
    request: pytest.FixtureRequest, clock: HandClock, namespace: str
) -> Iterator[Callable[[], Limiter]]:
    """Return a function that makes limiters on ``clock``; those on Redis share their buckets."""
    made: list[Limiter] = []

    def new() -> Limiter:
        limiter: Limiter
        if request.param == "memory":
            limiter = MemoryLimiter(clock=clock)
        else:
            limiter = RedisLimiter(
                request.getfixturevalue("redis_url"), prefix=namespace, clock=clock, now=clock
            )
        made.append(limiter)
        return limiter

    yield new
    for limiter in made:
        limiter.close()


@pytest.fixture
def limiter(new_limiter: Callable[[], Limiter], clock: HandClock) -> Limiter:
    """A limiter whose store is old enough that its buckets are full."""
    limiter = new_limiter()
    limiter.acquire("first-use", 1.0, 1)
    clock.advance(100_000)
    return limiter
