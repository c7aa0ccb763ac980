"""One slice: lease, ask politely, fetch, settle, until its time is over or nothing is left.

The parts: :class:`SliceRun` keeps the slice supplied and ends it; one serving coroutine a host paces that
host; a visit turns one request into an outcome; the settler writes outcomes in bulk meanwhile.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Sequence

from flask_spiderpool.crawl.guard import LeaseGuard
from flask_spiderpool.crawl.parts import EngineParts
from flask_spiderpool.crawl.politeness import Pace
from flask_spiderpool.crawl.request import Lease, Outcome, Settled, Ticket
from flask_spiderpool.crawl.rules import TaskRules
from flask_spiderpool.crawl.serving import Serving
from flask_spiderpool.crawl.settling import RETRY_S, Settler
from flask_spiderpool.crawl.spider import Spider
from flask_spiderpool.crawl.visit import Visit
from flask_spiderpool.errors import Fenced, Unavailable
from flask_spiderpool.terms import Desired

LEASE_LEAST = 64  #: requests of a lease
LEASE_MOST = 400
FRUITLESS_S = 0.25  #: pause after a lease that brought less than it asked for
FRUITLESS_MOST_S = 4.0


class SliceRun:
    """The work of one slice, from its claim to its hand-on. Runs once, on the process's loop.

    Ends when ``slice_s`` is over, when nothing of the task is ready soon, when a limit is reached, or when
    the guard says that the task shall not run or another epoch has begun.
    """

    def __init__(self, parts: EngineParts, guard: LeaseGuard, spider: Spider, rules: TaskRules) -> None:
        self._parts = parts
        self._guard = guard
        self._rules = rules
        self._ticket = guard.ticket
        settings = parts.settings
        self._settler = Settler(
            parts.store,
            guard.ticket,
            parts.seen,
            pages=settings.settle_pages,
            every_s=settings.settle_s,
            listener=self._settled,
            is_fenced=lambda: guard.fenced,
        )
        self._wake = asyncio.Event()
        visit = Visit(parts, guard, spider, rules, self._take_token)
        self._serving = Serving(parts, rules, visit, self._settler, guard.may_send, self._wake.set)
        self._shutdown = False
        self._dry_until = 0.0  #: loop time before which a lease would find nothing
        self._next_ready_in_s: float | None = None
        self._limit_reached = False
        self._holds_seat = False
        self._fruitless = 0

    def stop_soon(self) -> None:
        """End the slice as at the end of its time: the process is shutting down. On the loop only."""
        self._shutdown = True
        self._wake.set()

    async def run(self) -> float | None:
        """Work; return in how many seconds something of the task ripens (0: now; None: nothing known).

        Raises :class:`Fenced` if another epoch began; nothing more was written or sent then.
        """
        loop = asyncio.get_running_loop()
        self._loop = loop
        self._ends_at = loop.time() + self._parts.settings.slice_s
        self._guard.changed = self._guard_changed
        self._settler.changed = self._wake.set
        self._settling = loop.create_task(self._settler.run())
        self._settling.add_done_callback(lambda _: self._wake.set())
        try:
            await self._work()
            await self._drain()
        finally:
            await self._close()
        if self._guard.fenced:
            raise Fenced
        await self._settling
        if self._limit_reached or self._guard.desired != Desired.RUN:
            return None
        return 0.0 if self._serving.backlog or self._settler.added else self._next_ready_in_s

    def _guard_changed(self) -> None:
        """Look up at once: called by the renewal and bus threads."""
        self._loop.call_soon_threadsafe(self._wake.set)

    # -- the supply ---------------------------------------------------------------------------------

    async def _work(self) -> None:
        """Lease and start until the slice shall end."""
        while not self._must_end():
            self._wake.clear()
            if self._wants_lease():
                await self._lease()
                continue
            if self._is_exhausted():
                return
            timeout = min(self._ends_at, max(self._dry_until, self._loop.time() + 0.01)) - self._loop.time()
            try:
                await asyncio.wait_for(self._wake.wait(), max(timeout, 0.001))
            except TimeoutError:
                continue

    def _must_end(self) -> bool:
        return (
            self._shutdown
            or self._guard.fenced
            or self._guard.desired != Desired.RUN
            or self._settling.done()
            or self._loop.time() >= self._ends_at
        )

    def _wants_lease(self) -> bool:
        if self._limit_reached or not self._guard.may_send():
            return False
        waits_for_limit = self._next_ready_in_s is not None and self._settler.settled
        gives_back = self._settler.moved or waits_for_limit
        if self._settler.added or self._serving.rested or (gives_back and self._serving.is_idle):
            self._settler.added = self._settler.moved = self._settler.settled = False
            self._serving.rested = False
            self._dry_until = 0.0
        return self._loop.time() >= self._dry_until and self._serving.backlog < self._rules.concurrency

    def _is_exhausted(self) -> bool:
        """Nothing is queued, under way or unsettled here, and nothing ripens soon."""
        if not self._serving.is_idle:
            return False
        if not self._settler.idle:
            self._settler.flush()
            return False
        if self._limit_reached or self._next_ready_in_s is None:
            return True
        return self._dry_until - self._loop.time() > self._parts.settings.short_wait_s

    async def _lease(self) -> None:
        left_s = self._ends_at - self._loop.time()
        n = self._lease_size(left_s)
        rests, self._serving.rests = self._serving.rests, {}
        seat = self._take_seat()
        try:
            call = functools.partial(
                self._parts.store.lease,
                self._ticket,
                n,
                self._serving.room_per_host(left_s, n),
                self._rules.pace.sendable(left_s, n),
                suspects=seat,
                rest_hosts=rests,
            )
            lease = await asyncio.wrap_future(self._parts.store.submit(call))
        except BaseException as error:
            self._serving.rests = rests | self._serving.rests
            if seat:
                self._leave_seat()
            if not isinstance(error, Unavailable):
                raise
            self._dry_until = self._loop.time() + RETRY_S
            self._next_ready_in_s = RETRY_S
            return
        if seat and not any(request.deaths for request in lease.requests):
            self._leave_seat()
        self._take_in(lease, n)

    def _lease_size(self, left_s: float) -> int:
        """Return about a second's work: enough to overlap the next lease, little enough for siblings."""
        elapsed_s = self._parts.settings.slice_s - left_s
        rate = self._serving.finished / elapsed_s if elapsed_s > 0.2 else 0.0
        return int(min(LEASE_MOST, max(LEASE_LEAST, self._rules.concurrency, rate)))

    def _take_in(self, lease: Lease, n: int) -> None:
        self._guard.want(lease.desired)
        self._limit_reached = lease.limit_reached
        self._settler.moved = self._settler.settled = False
        self._next_ready_in_s = lease.next_ready_in_s
        self._serving.take(lease.requests)
        if len(lease.requests) < n:
            self._dry_until = self._loop.time() + self._pause_s(lease)

    def _pause_s(self, lease: Lease) -> float:
        """Return how long another lease would find no more than this one did."""
        ripe_in_s = lease.next_ready_in_s
        if ripe_in_s is not None and ripe_in_s > 0.05:
            self._fruitless = 0
            return ripe_in_s
        # What is ready belongs to hosts of which this slice holds all that it can send, or is a sibling's:
        # look again now and then, less often each time.
        self._fruitless = 0 if lease.requests else self._fruitless + 1
        return min(FRUITLESS_S * 2.0**self._fruitless, FRUITLESS_MOST_S)

    # -- the suspects' seat -------------------------------------------------------------------------

    def _take_seat(self) -> bool:
        """Take the process's one seat for a request that a worker died with, if it is free."""
        if not self._holds_seat and self._parts.suspects.take():
            self._holds_seat = True
            return True
        return False

    def _leave_seat(self) -> None:
        if self._holds_seat:
            self._holds_seat = False
            self._parts.suspects.leave()

    def _settled(self, ticket: Ticket, outcomes: Sequence[Outcome], settled: Settled) -> None:
        # Only now is the suspect out of the process's hands: a death before this is still its own.
        if any(outcome.request.deaths for outcome in outcomes):
            self._leave_seat()
        self._parts.listener(ticket, outcomes, settled)

    async def _take_token(self, host_key: str, pace: Pace) -> None:
        await self._serving.take_token(host_key, pace)

    # -- the end ------------------------------------------------------------------------------------

    async def _drain(self) -> None:
        """Let started requests finish: all their time after a whole slice, the grace after a verb."""
        await self._serving.end()
        grace_s = self._parts.settings.stop_grace_s
        hurried_at: float | None = None
        while (visits := self._serving.visits) and not self._guard.fenced and not self._settling.done():
            if hurried_at is None and self._is_hurried():
                hurried_at = self._loop.time()
                self._serving.release_unstarted()
            if hurried_at is not None and self._loop.time() - hurried_at >= grace_s:
                break
            self._wake.clear()
            wake = self._loop.create_task(self._wake.wait())
            await asyncio.wait([*visits, wake], timeout=0.5, return_when=asyncio.FIRST_COMPLETED)
            wake.cancel()
        if self._is_hurried():
            self._serving.release_unstarted()

    def _is_hurried(self) -> bool:
        return self._shutdown or self._guard.desired != Desired.RUN

    async def _close(self) -> None:
        """Cancel what is still under way and settle everything, unless another epoch has begun."""
        self._guard.changed = lambda: None
        await self._serving.cancel()
        if self._guard.fenced:
            self._settling.cancel()
        self._settler.close()
        await asyncio.gather(self._settling, return_exceptions=True)
        self._leave_seat()
