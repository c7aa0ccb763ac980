"""One slice: lease, ask politely, fetch, settle, until its time is over or nothing is left.

The parts: :class:`SliceRun` keeps the slice supplied and ends it; one serving coroutine a host paces that
host; a visit turns one request into an outcome; the settler writes outcomes in bulk meanwhile.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import time
from collections import deque
from dataclasses import dataclass, field

from flask_spiderpool.crawl.gate import Gate, HostGate
from flask_spiderpool.crawl.guard import LeaseGuard
from flask_spiderpool.crawl.parts import EngineParts
from flask_spiderpool.crawl.politeness import Pace, Wait, decide
from flask_spiderpool.crawl.request import Lease, LeasedRequest, Outcome, Verdict
from flask_spiderpool.crawl.rules import TaskRules
from flask_spiderpool.crawl.settling import RETRY_S, Settler
from flask_spiderpool.crawl.spider import Spider
from flask_spiderpool.crawl.visit import Visit
from flask_spiderpool.errors import Fenced, FetchError, Unavailable
from flask_spiderpool.terms import Desired, Reason

logger = logging.getLogger(__name__)

LEASE_LEAST = 64  #: requests of a lease
LEASE_MOST = 400
FRUITLESS_S = 0.25  #: pause after a lease that brought less than it asked for
FRUITLESS_MOST_S = 4.0


@dataclass(slots=True, eq=False)
class HostLane:
    """A host's part of a slice: what was leased for it, and how fast it may be asked."""

    host_id: int
    host_key: str
    pace: Pace
    gate: HostGate = field(default_factory=HostGate)
    queue: deque[LeasedRequest] = field(default_factory=deque)
    server: asyncio.Task[None] | None = None
    paced_by_robots: bool = False


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
            listener=parts.listener,
            is_fenced=lambda: guard.fenced,
        )
        self._visit = Visit(parts, guard, spider, rules, self._take_token)
        self._gate = Gate(rules.concurrency, rules.concurrency_per_host)
        self._lanes: dict[int, HostLane] = {}
        self._rest_hosts: dict[int, float] = {}
        self._visits: set[asyncio.Task[None]] = set()
        self._wake = asyncio.Event()
        self._ending = False  #: nothing is started any more
        self._shutdown = False
        self._dry_until = 0.0  #: loop time before which a lease would find nothing
        self._next_ready_in_s: float | None = None
        self._limit_reached = False
        self._holds_suspect_seat = False
        self._finished = 0
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
        unstarted = any(lane.queue for lane in self._lanes.values())
        return 0.0 if unstarted or self._settler.added else self._next_ready_in_s

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

    def _backlog(self) -> int:
        return sum(len(lane.queue) for lane in self._lanes.values())

    def _wants_lease(self) -> bool:
        if self._limit_reached:
            return False
        waits_for_limit = self._next_ready_in_s is not None and self._settler.settled
        if self._settler.added or ((self._settler.moved or waits_for_limit) and self._is_empty_handed()):
            self._settler.added = self._settler.moved = self._settler.settled = False
            self._dry_until = 0.0
        return self._loop.time() >= self._dry_until and self._backlog() < self._rules.concurrency

    def _is_empty_handed(self) -> bool:
        return not (self._visits or self._backlog() or any(lane.server for lane in self._lanes.values()))

    def _is_exhausted(self) -> bool:
        """Nothing is queued, under way or unsettled here, and nothing ripens soon."""
        if not self._is_empty_handed():
            return False
        if not self._settler.idle:
            self._settler.flush()
            return False
        if self._limit_reached or self._next_ready_in_s is None:
            return True
        return self._dry_until - self._loop.time() > self._parts.settings.short_wait_s

    async def _lease(self) -> None:
        # About a second's work: enough to overlap the next lease, little enough to leave to siblings.
        elapsed = self._parts.settings.slice_s - (self._ends_at - self._loop.time())
        rate = self._finished / elapsed if elapsed > 0.2 else 0.0
        n = int(min(LEASE_MOST, max(LEASE_LEAST, self._rules.concurrency, rate)))
        left_s = self._ends_at - self._loop.time()
        per_host = {
            lane.host_id: max(0, lane.pace.sendable(left_s, n) - len(lane.queue))
            for lane in self._lanes.values()
            if lane.pace.rate > 0
        }
        default = self._rules.pace.sendable(left_s, n)
        rest, self._rest_hosts = self._rest_hosts, {}
        seat = not self._holds_suspect_seat and self._parts.suspects.take()
        lease: Lease | None = None
        try:
            call = functools.partial(
                self._parts.store.lease,
                self._ticket,
                n,
                per_host,
                default,
                suspects=seat,
                rest_hosts=rest,
            )
            lease = await asyncio.wrap_future(self._parts.store.submit(call))
        except Unavailable:
            self._rest_hosts = rest | self._rest_hosts
            self._dry_until = self._loop.time() + RETRY_S
            self._next_ready_in_s = RETRY_S
            return
        finally:
            if seat:
                self._holds_suspect_seat = lease is not None and any(r.deaths for r in lease.requests)
                if not self._holds_suspect_seat:
                    self._parts.suspects.leave()
        self._take_in(lease, n)

    def _take_in(self, lease: Lease, n: int) -> None:
        self._guard.want(lease.desired)
        self._limit_reached = lease.limit_reached
        self._settler.moved = self._settler.settled = False
        self._next_ready_in_s = lease.next_ready_in_s
        for request in lease.requests:
            lane = self._lanes.get(request.host_id)
            if lane is None:
                lane = HostLane(request.host_id, request.host_key, self._rules.pace)
                self._lanes[request.host_id] = lane
            lane.queue.append(request)
            if lane.server is None:
                lane.server = self._loop.create_task(self._serve(lane))
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

    # -- one host -----------------------------------------------------------------------------------

    async def _serve(self, lane: HostLane) -> None:
        """Start the host's requests one after the other, as fast as it may be asked."""
        try:
            while lane.queue and not self._ending:
                request = lane.queue[0]
                if not await self._robots_admits(lane, request):
                    continue
                await self._settler.room()
                await self._gate.enter(lane.gate)
                started = False
                try:
                    if self._ending or not lane.queue:
                        continue
                    wait_s = await self._token_or_wait(lane.host_key, lane.pace)
                    if wait_s is None and not self._ending:
                        lane.queue.popleft()
                        self._start(lane, request)
                        started = True
                finally:
                    if not started:
                        self._gate.leave(lane.gate)
                if wait_s is not None:
                    if wait_s > self._parts.settings.short_wait_s:
                        self._rest(lane, wait_s)
                        return
                    await asyncio.sleep(wait_s)
        finally:
            lane.server = None
            self._wake.set()

    async def _robots_admits(self, lane: HostLane, request: LeasedRequest) -> bool:
        """Ask robots.txt; a refused request is settled here and now."""
        if not self._rules.obey_robots:
            return True
        try:
            rules = self._visit.known_robots(request.url) or await self._visit.robots(request.url)
        except FetchError as error:
            if error.reason == Reason.ROBOTS_UNREACHABLE and lane.queue:
                self._rest(lane, error.retry_after_s or self._parts.settings.short_wait_s)
            else:
                self._drop(lane, request, Verdict.FAILED, error.reason, str(error))
            return False
        if rules.crawl_delay_s and not lane.paced_by_robots:
            lane.pace = Pace.of(self._rules.delay_s, rules.crawl_delay_s)
            lane.paced_by_robots = True
        if rules.allowed(request.url):
            return True
        self._drop(lane, request, Verdict.SKIPPED, Reason.ROBOTS, "robots.txt disallows it")
        return False

    def _drop(
        self, lane: HostLane, request: LeasedRequest, verdict: Verdict, reason: str, message: str
    ) -> None:
        lane.queue.popleft()
        self._settle(Outcome(request, verdict, reason=str(reason), message=message))

    def _rest(self, lane: HostLane, rest_s: float) -> None:
        """Give back what is queued for a host that must not be asked for a while."""
        self._rest_hosts[lane.host_id] = max(rest_s, self._rest_hosts.get(lane.host_id, 0.0))
        while lane.queue:
            self._settle(Outcome(lane.queue.popleft(), Verdict.RELEASE))
        self._dry_until = 0.0

    async def _token_or_wait(self, host_key: str, pace: Pace) -> float | None:
        """Return None when a token was taken, else the seconds to wait."""
        if pace.rate <= 0:
            return None
        decision = await decide(self._parts.acquire, host_key, pace)
        return decision.wait_s if isinstance(decision, Wait) else None

    async def _take_token(self, host_key: str, pace: Pace) -> None:
        """Wait for a token for a redirect hop, a robots.txt or a second sending.

        Raises ``FetchError(host_rests)`` when that would take longer than a short wait: the request is tried
        again later rather than holding the slice.
        """
        while (wait_s := await self._token_or_wait(host_key, pace)) is not None:
            if wait_s > self._parts.settings.short_wait_s:
                raise FetchError(
                    Reason.HOST_RESTS,
                    f"{host_key} rests for {wait_s:.0f} s",
                    retry=True,
                    retry_after_s=wait_s,
                )
            await asyncio.sleep(wait_s)

    # -- one request --------------------------------------------------------------------------------

    def _start(self, lane: HostLane, request: LeasedRequest) -> None:
        visit = self._loop.create_task(self._one(lane, request))
        self._visits.add(visit)
        visit.add_done_callback(self._visits.discard)

    async def _one(self, lane: HostLane, request: LeasedRequest) -> None:
        started = time.monotonic()
        try:
            outcome = await self._visit.make(request)
            outcome.elapsed_ms = int((time.monotonic() - started) * 1000)
        except Fenced:
            # Not sent: the guard forbade it. If the slice still holds its slot the request goes back.
            outcome = Outcome(request, Verdict.RELEASE)
        except asyncio.CancelledError:
            outcome = Outcome(request, Verdict.RELEASE, reason=Reason.CANCELLED)
        finally:
            self._gate.leave(lane.gate)
        if outcome.retry_after_s is not None and outcome.verdict is Verdict.RETRY:
            self._parts.block(lane.host_key, outcome.retry_after_s)
            self._rest(lane, outcome.retry_after_s)
        self._finished += 1
        self._settle(outcome)
        if not lane.queue:
            self._wake.set()

    def _settle(self, outcome: Outcome) -> None:
        if outcome.request.deaths and self._holds_suspect_seat:
            self._holds_suspect_seat = False
            self._parts.suspects.leave()
        self._settler.add(outcome)

    # -- the end ------------------------------------------------------------------------------------

    async def _drain(self) -> None:
        """Let started requests finish: all their time after a whole slice, the grace after a verb."""
        self._ending = True
        servers = [lane.server for lane in self._lanes.values() if lane.server]
        for server in servers:
            server.cancel()
        await asyncio.gather(*servers, return_exceptions=True)
        grace_s = self._parts.settings.stop_grace_s
        hurried_at: float | None = None
        while self._visits and not self._guard.fenced and not self._settling.done():
            if hurried_at is None and (self._shutdown or self._guard.desired != Desired.RUN):
                hurried_at = self._loop.time()
                self._release_unstarted()
            if hurried_at is not None and self._loop.time() - hurried_at >= grace_s:
                break
            self._wake.clear()
            await asyncio.wait(
                [*self._visits, wake := self._loop.create_task(self._wake.wait())],
                timeout=0.5,
                return_when=asyncio.FIRST_COMPLETED,
            )
            wake.cancel()
        if self._shutdown or self._guard.desired != Desired.RUN:
            self._release_unstarted()

    def _release_unstarted(self) -> None:
        for lane in self._lanes.values():
            while lane.queue:
                self._settle(Outcome(lane.queue.popleft(), Verdict.RELEASE))

    async def _close(self) -> None:
        """Cancel what is still under way and settle everything, unless another epoch has begun."""
        self._ending = True
        self._guard.changed = lambda: None
        visits = list(self._visits)
        for visit in visits:
            visit.cancel()
        await asyncio.gather(*visits, return_exceptions=True)
        if self._guard.fenced:
            self._settling.cancel()
        self._settler.close()
        await asyncio.gather(self._settling, return_exceptions=True)
        if self._holds_suspect_seat:
            self._holds_suspect_seat = False
            self._parts.suspects.leave()
