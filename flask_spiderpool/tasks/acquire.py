"""The limiter as the engine's loop calls it: awaitable, and never blocking the loop."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

from flask_spiderpool.crawl.politeness import Acquire
from flask_spiderpool.limiter.base import Grant, Limiter
from flask_spiderpool.limiter.memory import MemoryLimiter

REMOTE_THREADS = 4


class LoopLimiter:
    """A limiter for the loop: one in memory is asked directly (2 us), a remote one on threads."""

    def __init__(self, limiter: Limiter) -> None:
        self._limiter = limiter
        self._threads = (
            None
            if isinstance(limiter, MemoryLimiter)
            else ThreadPoolExecutor(REMOTE_THREADS, thread_name_prefix="spiderpool-limiter")
        )

    @property
    def acquire(self) -> Acquire:
        """The awaitable form of ``Limiter.acquire``."""
        return self._acquire_here if self._threads is None else self._acquire_on_thread

    def block(self, key: str, for_s: float) -> None:
        """Say that ``key`` must rest; returns at once."""
        if self._threads is None:
            self._limiter.block(key, for_s)
        else:
            self._threads.submit(self._limiter.block, key, for_s)

    def close(self) -> None:
        """End the threads. The limiter itself belongs to whoever made it."""
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)

    async def _acquire_here(self, key: str, rate: float, burst: int, n: int) -> Grant:
        return self._limiter.acquire(key, rate, burst, n)

    async def _acquire_on_thread(self, key: str, rate: float, burst: int, n: int) -> Grant:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, self._limiter.acquire, key, rate, burst, n)
