"""How many requests may be under way at once: in a slice, and to one host."""

from __future__ import annotations

import asyncio
from collections import deque


class HostGate:
    """One host's part of a :class:`Gate`."""

    __slots__ = ("active", "blocked")

    def __init__(self) -> None:
        self.active = 0
        #: Its only waiter, held back by the host's own limit.
        self.blocked: asyncio.Future[None] | None = None


class Gate:
    """Counts what is under way; whoever waits gets in by turns.

    Belongs to one event loop. Each host has one waiter at most (its serving coroutine), so that one host
    with much work cannot crowd out the others, and a leave costs O(1).
    """

    def __init__(self, total: int, per_host: int) -> None:
        self.active = 0
        self._total = total
        self._per_host = per_host
        self._waiting: deque[tuple[HostGate, asyncio.Future[None]]] = deque()

    def try_enter(self, host: HostGate) -> bool:
        """Enter if nobody has to wait for that."""
        if self.active >= self._total or host.active >= self._per_host or self._waiting:
            return False
        self._count(host)
        return True

    async def enter(self, host: HostGate) -> None:
        """Enter, waiting for a place if there is none."""
        if self.try_enter(host):
            return
        waiter = asyncio.get_running_loop().create_future()
        if host.active >= self._per_host:
            host.blocked = waiter
        else:
            self._waiting.append((host, waiter))
        self._admit()
        try:
            await waiter
        except asyncio.CancelledError:
            host.blocked = None
            if waiter.done() and not waiter.cancelled():
                self.leave(host)
            raise

    def leave(self, host: HostGate) -> None:
        """Give a place back."""
        self.active -= 1
        host.active -= 1
        if host.blocked is not None:
            self._waiting.append((host, host.blocked))
            host.blocked = None
        self._admit()

    def _count(self, host: HostGate) -> None:
        self.active += 1
        host.active += 1

    def _admit(self) -> None:
        while self._waiting and self.active < self._total:
            host, waiter = self._waiting.popleft()
            if not waiter.done():
                self._count(host)
                waiter.set_result(None)
