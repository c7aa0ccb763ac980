"""The seen-set: a hint that is right when it says yes, and bounded."""

from __future__ import annotations

from uuid import UUID

from flask_spiderpool.crawl.seen import SeenSet

FIRST, SECOND = UUID(int=1), UUID(int=2)


def _prints(start: int, count: int) -> list[bytes]:
    return [index.to_bytes(16, "big") for index in range(start, start + count)]


def test_tasks_do_not_see_each_other() -> None:
    """A fingerprint is known to the task that learned it, to no other."""
    seen = SeenSet(100)
    seen.learn(FIRST, _prints(0, 3))
    assert set(_prints(0, 3)) == seen.of(FIRST)
    assert not seen.of(SECOND)


def test_the_oldest_task_goes_first_when_it_is_full() -> None:
    """Past its size the set of the task that was used longest ago is dropped whole."""
    seen = SeenSet(10)
    seen.learn(FIRST, _prints(0, 6))
    seen.learn(SECOND, _prints(100, 6))
    assert not seen.of(FIRST)
    assert len(seen.of(SECOND)) == 6


def test_a_single_task_starts_anew_when_it_is_full() -> None:
    """One task alone never grows past the size; the reference a slice holds stays the live set."""
    seen = SeenSet(10)
    known = seen.of(FIRST)
    seen.learn(FIRST, _prints(0, 11))
    assert len(known) == 0
    seen.learn(FIRST, _prints(0, 2))
    assert len(known) == 2


def test_an_ended_task_is_forgotten() -> None:
    """forget drops a task's fingerprints."""
    seen = SeenSet(10)
    seen.learn(FIRST, _prints(0, 2))
    seen.forget(FIRST)
    assert not seen.of(FIRST)
