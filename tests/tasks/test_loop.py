from __future__ import annotations

import asyncio
import threading
from concurrent.futures import CancelledError

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


@pytest.mark.parametrize("end", ["stop", "exit", "interrupt"])
def test_a_loop_that_ends_by_itself_tells(end: str, caplog: pytest.LogCaptureFixture):
    """Once, with the cause in the log, and what still ran is cancelled; :meth:`close` is then no news."""
    told = threading.Event()
    thread = LoopThread(on_end=told.set)
    thread.start()

    async def hang() -> None:
        await asyncio.Event().wait()

    def raise_(error: type[BaseException]) -> None:
        raise error("from within")

    left = thread.submit(hang())
    acts = {
        "stop": (thread.loop.stop,),
        "exit": (raise_, SystemExit),
        "interrupt": (raise_, KeyboardInterrupt),
    }
    thread.loop.call_soon_threadsafe(*acts[end])
    assert told.wait(5)
    with pytest.raises(CancelledError):
        left.result(5)
    assert "ended by itself" in caplog.text
    assert ("from within" in caplog.text) == (end != "stop")
    thread._thread.join(5)
    thread.close()


def test_a_loop_that_is_closed_tells_nothing(caplog: pytest.LogCaptureFixture):
    """An end that was asked for is no fault."""
    told = threading.Event()
    thread = LoopThread(on_end=told.set)
    thread.start()
    thread.close()
    assert not thread._thread.is_alive()
    assert not told.is_set()
    assert caplog.text == ""
