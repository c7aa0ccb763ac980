"""Threads for spiders' code: bounded waits, stuck threads replaced, nothing that keeps a process alive."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from flask_spiderpool.crawl.callbacks import CallbackThreads, NeverReturned


@pytest.fixture
def release() -> Iterator[threading.Event]:
    """What stuck calls wait for; set at the test's end."""
    event = threading.Event()
    yield event
    event.set()


def test_results_and_faults_come_back() -> None:
    """A call's value is returned and its exception raised, whatever kind it is."""
    threads = CallbackThreads(2)

    def interrupt() -> None:
        raise KeyboardInterrupt

    async def scenario() -> None:
        assert await threads.run(lambda: 5, 10) == 5
        with pytest.raises(ZeroDivisionError):
            await threads.run(lambda: 1 // 0, 10)
        with pytest.raises(RuntimeError, match="KeyboardInterrupt"):
            await threads.run(interrupt, 10)

    asyncio.run(scenario())
    threads.close()
    with pytest.raises(RuntimeError, match="closed"):
        threads.submit(lambda: None)


def test_a_call_that_never_returns_costs_nobody_a_place(release: threading.Event) -> None:
    """Its wait ends, its thread is replaced, and when it comes back there is one thread too few no more."""
    threads = CallbackThreads(1)

    async def scenario() -> None:
        for stuck in (1, 2, 3):
            with pytest.raises(NeverReturned):
                await threads.run(release.wait, 0.01)
            assert threads.stuck == stuck
        assert await threads.run(lambda: "served", 10) == "served"

    asyncio.run(scenario())
    threads.close()


def test_the_wait_for_a_thread_is_not_the_calls_own(release: threading.Event) -> None:
    """A call that waits behind another is given its whole time once it runs."""
    threads = CallbackThreads(1)
    first_runs = threading.Event()

    def first() -> None:
        first_runs.set()
        release.wait()

    async def scenario() -> None:
        holder = asyncio.create_task(threads.run(first, 60))
        await asyncio.to_thread(first_runs.wait)
        second = asyncio.create_task(threads.run(lambda: "in time", 0.05))
        await asyncio.wait([second], timeout=0.2)
        assert not second.done()
        release.set()
        assert await second == "in time"
        await holder

    asyncio.run(scenario())
    threads.close()


def test_a_cancelled_wait_gives_the_call_up(release: threading.Event) -> None:
    """Whether it runs or still waits, a cancelled call holds up nobody."""
    threads = CallbackThreads(1)
    ran: list[str] = []

    async def scenario() -> None:
        running = asyncio.create_task(threads.run(release.wait, 60))
        waiting = asyncio.create_task(threads.run(lambda: ran.append("never"), 60))
        await asyncio.sleep(0.05)
        waiting.cancel()
        running.cancel()
        await asyncio.gather(running, waiting, return_exceptions=True)
        assert await threads.run(lambda: "served", 10) == "served"

    asyncio.run(scenario())
    assert ran == []
    threads.close()


def test_a_stuck_call_does_not_keep_the_process() -> None:
    """The interpreter ends although a callback never returns."""
    code = (
        "import time\n"
        "from flask_spiderpool.crawl.callbacks import CallbackThreads\n"
        "threads = CallbackThreads(1)\n"
        "threads.submit(lambda: time.sleep(600))\n"
        "print('ended')\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert ended.stdout == "ended\n"
