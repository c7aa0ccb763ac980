"""Whatever is asked in whatever order: both backends agree, and no window is over-spent."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate
from typing import NamedTuple
from uuid import uuid4

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from redis import Redis

from flask_spiderpool.limiter.base import Limiter
from flask_spiderpool.limiter.memory import MemoryLimiter
from flask_spiderpool.limiter.redis import RedisLimiter
from tests.limiter.conftest import HandClock
from tests.servers.redis import RedisServer


class Step(NamedTuple):
    """One thing that happens: time passes, then tokens are asked or the key is blocked."""

    after_s: float
    ask: int | None
    block_s: float | None


_times = st.one_of(st.just(0.0), st.floats(0, 0.2), st.floats(0, 30), st.floats(0, 9_000))
_steps = st.builds(Step, _times, st.integers(0, 30), st.none()) | st.builds(
    Step, _times, st.none(), st.floats(0, 60) | st.floats(0, 1e9)
)
_rates = st.sampled_from([0.01, 0.5, 1.0, 3.0, 20.0, 1000.0]) | st.floats(0.001, 500)
_bursts = st.integers(1, 50)


@pytest.fixture(scope="module")
def client(redis_server: RedisServer) -> Iterator[Redis]:
    """One connection for all examples; each takes keys of its own."""
    with Redis.from_url(redis_server.url) as client:
        yield client


def play(limiter: Limiter, clock: HandClock, steps: list[Step], rate: float, burst: int) -> list[object]:
    """Carry out the steps; return what was answered, with the time."""
    answers: list[object] = []
    for step in steps:
        clock.advance(step.after_s)
        if step.block_s is not None:
            limiter.block("site", step.block_s)
        elif step.ask is not None:
            answers.append((clock.now, *limiter.acquire("site", rate, burst, step.ask)))
    return answers


@example([Step(50_000, 30, None), Step(0, None, 5.0), Step(3_605, 30, None)], 1.0, 10)
@given(st.lists(_steps, max_size=25), st.just(0.0) | _rates, _bursts)
def test_memory_and_redis_agree(client: Redis, steps: list[Step], rate: float, burst: int) -> None:
    """The script and the Python arithmetic give the same grants and waits, to the last bit."""
    clocks = HandClock(), HandClock()
    memory = MemoryLimiter(clock=clocks[0])
    redis = RedisLimiter(client, prefix=f"agree:{uuid4().hex}", clock=clocks[1], now=clocks[1])
    redis.acquire("first-use", 1.0, 1)
    assert play(redis, clocks[1], steps, rate, burst) == play(memory, clocks[0], steps, rate, burst)


@example([Step(0.0, 30, None)] * 3, 20.0, 20)
@given(st.lists(_steps, max_size=60), _rates, _bursts)
def test_no_window_is_overspent(steps: list[Step], rate: float, burst: int) -> None:
    """No window of t seconds holds more than burst + rate x t grants; with burst 1 none are closer than 1/rate."""
    clock = HandClock(0.0)
    answers = play(MemoryLimiter(clock=clock), clock, steps, rate, burst)
    times = [answer[0] for answer in answers]  # type: ignore[index]
    sums = list(accumulate((answer[1] for answer in answers), initial=0))  # type: ignore[index]
    held_back = 1 if burst > 1 else 0
    for first in range(len(times)):
        for last in range(first, len(times)):
            spent = sums[last + 1] - sums[first]
            assert spent <= burst - held_back + rate * (times[last] - times[first]) + 1e-5


@given(st.lists(st.tuples(_times, st.integers(1, 30), _rates, _bursts), max_size=40))
def test_changing_rates_overspend_nothing(asks: list[tuple[float, int, float, int]]) -> None:
    """With rate and burst changing from call to call, their largest values bound every window."""
    clock = HandClock(0.0)
    limiter = MemoryLimiter(clock=clock)
    spent: list[tuple[float, int]] = []
    for after_s, n, rate, burst in asks:
        clock.advance(after_s)
        spent.append((clock.now, limiter.acquire("site", rate, burst, n).granted))
    for first in range(len(asks)):
        for last in range(first, len(asks)):
            window = range(first, last + 1)
            rate = max(asks[i][2] for i in window)
            burst = max(asks[i][3] for i in window)
            t = spent[last][0] - spent[first][0]
            assert sum(spent[i][1] for i in window) <= burst + rate * t + 1e-5


@given(_rates, _bursts)
def test_waiting_as_told_gets_a_token(rate: float, burst: int) -> None:
    """Who waits as long as was said gets a token, or is off by rounding only."""
    clock = HandClock()
    limiter = MemoryLimiter(clock=clock)
    for _ in range(burst + 3):
        grant = limiter.acquire("site", rate, burst)
        clock.advance(grant.wait_s)
        assert limiter.acquire("site", rate, burst, n=0).wait_s < 1e-6
