"""What every limiter does, on every backend."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from flask_spiderpool.limiter.base import Grant, Limiter
from tests.limiter.conftest import HandClock


def test_a_full_bucket_gives_its_burst_less_one(limiter: Limiter) -> None:
    """One token of burst is held back."""
    assert limiter.acquire("site", 2.0, 5, n=10).granted == 4
    assert limiter.acquire("site", 2.0, 5).granted == 0


def test_the_wait_is_until_the_next_token(limiter: Limiter, clock: HandClock) -> None:
    """After the wait that was named one token is there, and shortly before it is not."""
    grant = limiter.acquire("site", 2.0, 5, n=4)
    assert grant == Grant(4, pytest.approx(0.5))
    clock.advance(grant.wait_s - 0.01)
    assert limiter.acquire("site", 2.0, 5).granted == 0
    clock.advance(0.01)
    assert limiter.acquire("site", 2.0, 5).granted == 1


def test_a_partial_grant(limiter: Limiter, clock: HandClock) -> None:
    """Asked for more than there is, the limiter gives what there is."""
    limiter.acquire("site", 2.0, 5, n=4)
    clock.advance(1.25)
    assert limiter.acquire("site", 2.0, 5, n=9) == Grant(2, pytest.approx(0.25))


def test_asking_for_nothing_takes_nothing(limiter: Limiter) -> None:
    """n=0 only tells the wait."""
    assert limiter.acquire("site", 2.0, 5, n=0) == Grant(0, 0.0)
    assert limiter.acquire("site", 2.0, 5, n=4).granted == 4


@pytest.mark.parametrize("rate", [0.1, 1.0, 20.0])
def test_burst_one_has_a_guard(limiter: Limiter, clock: HandClock, rate: float) -> None:
    """With burst 1 the interval is 1/rate and 50 ms."""
    assert limiter.acquire("site", rate, 1, n=3) == Grant(1, pytest.approx(1 / rate + 0.05))
    clock.advance(1 / rate + 0.04)
    assert limiter.acquire("site", rate, 1).granted == 0
    clock.advance(0.01)
    assert limiter.acquire("site", rate, 1).granted == 1


@pytest.mark.parametrize("rate", [0.0, -1.0])
def test_no_rate_is_no_limit(limiter: Limiter, rate: float) -> None:
    """rate <= 0 grants all, always."""
    assert [limiter.acquire("site", rate, 1, n=50) for _ in range(3)] == [Grant(50, 0.0)] * 3


def test_keys_are_apart(limiter: Limiter) -> None:
    """An empty bucket says nothing about another key's."""
    assert limiter.acquire("one", 1.0, 3, n=9).granted == 2
    assert limiter.acquire("two", 1.0, 3, n=9).granted == 2


def test_a_new_store_has_no_burst(new_limiter: Callable[[], Limiter], clock: HandClock) -> None:
    """A key never seen holds rate x age of the store, not a full bucket."""
    limiter = new_limiter()
    assert limiter.acquire("site", 2.0, 9) == Grant(0, pytest.approx(0.5))
    clock.advance(1.5)
    assert limiter.acquire("another", 2.0, 9, n=99).granted == 3
    clock.advance(100)
    assert limiter.acquire("third", 2.0, 9, n=99).granted == 8


def test_a_block_grants_nothing(limiter: Limiter, clock: HandClock) -> None:
    """A blocked key gets nothing until the block ends, and then a first token, not a burst."""
    limiter.block("site", 30.0)
    assert limiter.acquire("site", 2.0, 5, n=3) == Grant(0, pytest.approx(30.5))
    clock.advance(30.4)
    assert limiter.acquire("site", 2.0, 5, n=3).granted == 0
    clock.advance(0.1)
    assert limiter.acquire("site", 2.0, 5, n=3).granted == 1


def test_a_block_holds_without_a_rate(limiter: Limiter, clock: HandClock) -> None:
    """A key without a limit is blocked too, and free at the end."""
    limiter.block("site", 30.0)
    assert limiter.acquire("site", 0.0, 1) == Grant(0, pytest.approx(30.0))
    clock.advance(30.0)
    assert limiter.acquire("site", 0.0, 1) == Grant(1, 0.0)


@pytest.mark.parametrize("waits", [(30.0, 5.0), (5.0, 30.0)])
def test_the_longer_block_wins(limiter: Limiter, clock: HandClock, waits: tuple[float, float]) -> None:
    """Of two blocks the one that ends later counts, whichever came first."""
    for wait_s in waits:
        limiter.block("site", wait_s)
    clock.advance(29.9)
    assert limiter.acquire("site", 0.0, 1).granted == 0
    clock.advance(0.1)
    assert limiter.acquire("site", 0.0, 1).granted == 1


@pytest.mark.parametrize("for_s", [0.0, -5.0])
def test_a_block_of_no_length(limiter: Limiter, for_s: float) -> None:
    """A block that ends at once changes nothing."""
    limiter.block("site", for_s)
    assert limiter.acquire("site", 2.0, 5, n=9).granted == 4


def test_a_block_has_a_longest_length(limiter: Limiter, clock: HandClock) -> None:
    """A site that asks for a hundred years is asked again after a week."""
    limiter.block("site", 100 * 365 * 86_400.0)
    clock.advance(7 * 86_400.0 - 1)
    assert limiter.acquire("site", 0.0, 1).granted == 0
    clock.advance(1)
    assert limiter.acquire("site", 0.0, 1).granted == 1


def test_a_block_gives_no_burst_back(limiter: Limiter, clock: HandClock) -> None:
    """A short block of a slow, empty bucket does not fill it."""
    assert limiter.acquire("site", 0.0001, 1).granted == 1
    limiter.block("site", 1.0)
    clock.advance(9_000)
    assert limiter.acquire("site", 0.0001, 1).granted == 0


def test_a_clock_set_back_does_not_stop_the_site(limiter: Limiter, clock: HandClock) -> None:
    """After a step back of an hour the bucket goes on refilling from there."""
    limiter.acquire("site", 2.0, 5, n=4)
    clock.advance(-3600)
    assert limiter.acquire("site", 2.0, 5) == Grant(0, pytest.approx(0.5))
    clock.advance(0.5)
    assert limiter.acquire("site", 2.0, 5).granted == 1


def test_a_rate_may_change(limiter: Limiter, clock: HandClock) -> None:
    """The next call's rate and burst count at once."""
    assert limiter.acquire("site", 1.0, 9, n=8).granted == 8
    clock.advance(2)
    assert limiter.acquire("site", 0.5, 9, n=8).granted == 1
    clock.advance(100)
    assert limiter.acquire("site", 0.5, 3, n=8).granted == 2


def test_threads_share_a_bucket(limiter: Limiter) -> None:
    """Eight threads together get what one would."""
    granted: list[int] = []

    def ask() -> None:
        granted.extend(limiter.acquire("site", 0.001, 21).granted for _ in range(10))

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(granted) == 20


def test_close_twice(new_limiter: Callable[[], Limiter]) -> None:
    """Closing is idempotent."""
    limiter = new_limiter()
    limiter.close()
    limiter.close()
