from __future__ import annotations

import logging
import threading

import pytest

from flask_spiderpool.errors import Unavailable
from flask_spiderpool.tasks.periodic import Periodic


def test_calls_at_once_and_when_woken():
    """The first call comes with the start, a further one with a wake, long before the interval."""
    calls: list[int] = []
    called = threading.Semaphore(0)

    def act() -> None:
        calls.append(1)
        called.release()

    periodic = Periodic("p", 3600, act)
    periodic.start()
    assert called.acquire(timeout=5)
    periodic.wake()
    assert called.acquire(timeout=5)
    periodic.stop()
    assert len(calls) == 2


def test_stop_ends_the_thread_for_good():
    """After stop nothing is called any more, also when woken."""
    calls: list[int] = []
    periodic = Periodic("p", 3600, lambda: calls.append(1))
    periodic.stop()
    periodic.start()
    periodic.stop()
    assert calls == []
    assert "p" not in {thread.name for thread in threading.enumerate()}


def test_a_lasting_failure_is_logged_once_and_its_end_once(caplog: pytest.LogCaptureFixture):
    """A database that is away for a minute costs one line when it goes and one when it is back."""
    answers = iter([Unavailable("gone"), Unavailable("gone"), None, None])

    def act() -> None:
        answer = next(answers)
        if answer is not None:
            raise answer

    periodic = Periodic("renewal", 1, act)
    with caplog.at_level(logging.WARNING):
        for _ in range(4):
            periodic.once()
    assert [record.message for record in caplog.records] == [
        "renewal fails, it is tried again: Unavailable: gone",
        "renewal works again",
    ]


def test_a_failure_of_ours_is_logged_with_its_traceback(caplog: pytest.LogCaptureFixture):
    """What is no service being away is a bug, and its traceback is wanted."""

    def act() -> None:
        raise KeyError("x")

    with caplog.at_level(logging.WARNING):
        Periodic("keeper", 1, act).once()
    assert caplog.records[0].exc_info is not None
