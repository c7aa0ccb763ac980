from __future__ import annotations

import asyncio
import threading

import pytest

from flask_spiderpool.tasks.loop import LoopThread


@pytest.fixture
def loop_thread():
    thread = LoopThread()
    thread.start()
    yield thread
    thread.close()


def test_coroutines_of_several_threads_run_in_one_loop(loop_thread: LoopThread):
    """Whoever hands a coroutine in, it runs in the same loop and thread."""

    async def where() -> tuple[int, int]:
        return id(asyncio.get_running_loop()), threading.get_ident()

    places = set()

    def ask() -> None:
        places.add(loop_thread.submit(where()).result(5))

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(places) == 1
    assert places.pop()[1] != threading.get_ident()


def test_what_a_coroutine_raises_reaches_the_caller(loop_thread: LoopThread):
    """An exception comes out of the future."""

    async def fail() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        loop_thread.submit(fail()).result(5)


def test_close_cancels_what_still_runs():
    """A coroutine that hangs is cancelled, so that its clean-up runs and the thread ends."""
    thread = LoopThread()
    thread.start()
    begun, ended = threading.Event(), threading.Event()

    async def hang() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    thread.submit(hang())
    assert begun.wait(5)
    thread.close()
    assert ended.is_set()
    assert not thread._thread.is_alive()
    thread.close()  # idempotent


def test_the_loop_cannot_be_used_before_its_start():
    """A clear error rather than a hang."""
    with pytest.raises(RuntimeError, match="not been started"):
        _ = LoopThread().loop
