from __future__ import annotations

import asyncio
import threading

from flask_spiderpool.limiter.base import Grant
from flask_spiderpool.limiter.memory import MemoryLimiter
from flask_spiderpool.tasks.acquire import LoopLimiter


class RemoteLimiter:
    """Remembers the threads that it was asked in."""

    def __init__(self) -> None:
        self.threads: list[int] = []
        self.blocks: list[tuple[str, float]] = []
        self.blocked = threading.Event()

    def acquire(self, key: str, rate: float, burst: int, n: int = 1) -> Grant:
        self.threads.append(threading.get_ident())
        return Grant(n, 0.0)

    def block(self, key: str, for_s: float) -> None:
        self.blocks.append((key, for_s))
        self.blocked.set()

    def close(self) -> None: ...


def test_a_remote_limiter_is_asked_off_the_loop():
    """A Redis that hangs for a second must not hold up every slice of the process."""
    remote = RemoteLimiter()
    limiter = LoopLimiter(remote)
    grant = asyncio.run(limiter.acquire("h", 1.0, 1, 1))
    limiter.block("h", 3.0)
    assert remote.blocked.wait(5)
    limiter.close()
    assert grant == Grant(1, 0.0)
    assert remote.threads != [threading.get_ident()]
    assert remote.blocks == [("h", 3.0)]


def test_a_limiter_in_memory_is_asked_directly():
    """Two microseconds are less than a thread's hop; block holds at once."""
    limiter = LoopLimiter(MemoryLimiter())
    limiter.block("h", 60.0)
    assert asyncio.run(limiter.acquire("h", 1.0, 1, 1)).granted == 0
    assert asyncio.run(limiter.acquire("free", 0.0, 1, 1)).granted == 1
    limiter.close()
