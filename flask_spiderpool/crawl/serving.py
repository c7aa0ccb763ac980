"""The hosts of a slice: one coroutine a host starts its requests as fast as it may be asked."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from flask_spiderpool.crawl.gate import Gate, HostGate
from flask_spiderpool.crawl.parts import EngineParts
from flask_spiderpool.crawl.politeness import Pace, Wait, decide
from flask_spiderpool.crawl.request import LeasedRequest, Outcome, Verdict
from flask_spiderpool.crawl.robots import RobotsUnreachable
from flask_spiderpool.crawl.rules import TaskRules
from flask_spiderpool.crawl.settling import Settler
from flask_spiderpool.crawl.visit import Visit
from flask_spiderpool.errors import Fenced, FetchError
from flask_spiderpool.terms import Reason

logger = logging.getLogger(__name__)

FREE_S = 0.5  #: a block of a host without a delay is noticed within this
DOUBT_S = 0.1  #: pause between two looks at a lease that may have ended


#: Causes of a missing robots.txt that say more than ``robots_unreachable``: the host itself was not reached.
_NETWORK = frozenset({Reason.DNS, Reason.REFUSED, Reason.TLS, Reason.TIMEOUT_CONNECT})


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
    free_until: float = 0.0  #: loop time until which a host without a delay is known not to be blocked


class Serving:
    """Starts what a slice has leased and hands the outcomes to the settler. Belongs to one event loop.

    Waits of up to ``short_wait_s`` are slept here, with no place in the gate held meanwhile; a host that must
    rest longer gives its requests back, and :attr:`rests` says for how long.
    """

    def __init__(
        self,
        parts: EngineParts,
        rules: TaskRules,
        visit: Visit,
        settler: Settler,
        may_send: Callable[[], bool],
        changed: Callable[[], None],
    ) -> None:
        self.rests: dict[int, float] = {}  #: host id -> seconds; the next lease writes and empties it
        self.rested = False  #: a host was given back since the slice last looked
        self.finished = 0  #: requests that came to an end here
        self._parts = parts
        self._rules = rules
        self._visit = visit
        self._settler = settler
        self._may_send = may_send
        self._changed = changed
        self._gate = Gate(rules.concurrency, rules.concurrency_per_host)
        self._lanes: dict[int, HostLane] = {}
        self._visits: set[asyncio.Task[None]] = set()
        self._ending = False  #: nothing is started any more

    @property
    def backlog(self) -> int:
        """How many leased requests have not been started."""
        return sum(len(lane.queue) for lane in self._lanes.values())

    @property
    def visits(self) -> frozenset[asyncio.Task[None]]:
        """What is under way."""
        return frozenset(self._visits)

    @property
    def is_idle(self) -> bool:
        """Nothing is leased, starting or under way."""
        return not (self._visits or self.backlog or any(lane.server for lane in self._lanes.values()))

    def room_per_host(self, left_s: float, most: int) -> dict[int, int]:
        """Return how many more requests each paced host of this slice can be sent in ``left_s`` seconds."""
        return {
            lane.host_id: max(0, lane.pace.sendable(left_s, most) - len(lane.queue))
            for lane in self._lanes.values()
            if lane.pace.rate > 0
        }

    def take(self, requests: Iterable[LeasedRequest]) -> None:
        """Queue what was leased and serve its hosts."""
        loop = asyncio.get_running_loop()
        for request in requests:
            lane = self._lanes.get(request.host_id)
            if lane is None:
                lane = HostLane(request.host_id, request.host_key, self._rules.pace)
                self._lanes[request.host_id] = lane
            lane.queue.append(request)
            if lane.server is None:
                lane.server = loop.create_task(self._serve(lane))

    async def end(self) -> None:
        """Start nothing more; what is under way goes on."""
        self._ending = True
        servers = [lane.server for lane in self._lanes.values() if lane.server]
        for server in servers:
            server.cancel()
        await asyncio.gather(*servers, return_exceptions=True)

    async def cancel(self) -> None:
        """Cancel what is under way: it is queued again, uncounted."""
        await self.end()
        visits = list(self._visits)
        for visit in visits:
            visit.cancel()
        await asyncio.gather(*visits, return_exceptions=True)

    def release_unstarted(self) -> None:
        """Give back what was leased and not started."""
        for lane in self._lanes.values():
            self._give_back(lane)

    # -- one host -----------------------------------------------------------------------------------

    async def _serve(self, lane: HostLane) -> None:
        """Start the host's requests one after the other."""
        try:
            while lane.queue and not self._ending:
                request = lane.queue[0]
                try:
                    await self._step(lane, request)
                except Fenced:
                    continue  # robots.txt was not sent: the guard is asked again
                except Exception as error:
                    # A fault of ours must cost one request, never the host.
                    logger.exception("serving %s failed", request.url)
                    if lane.queue and lane.queue[0] is request:
                        self._drop(lane, Verdict.RETRY, Reason.INTERNAL, f"{type(error).__name__}: {error}")
        finally:
            lane.server = None
            self._changed()

    async def _step(self, lane: HostLane, request: LeasedRequest) -> None:
        """Bring the host's first request one step further."""
        if not self._may_send():
            # The lease is in doubt: soon it is renewed, or the slice ends.
            await asyncio.sleep(DOUBT_S)
            return
        if not await self._robots_admits(lane, request):
            return
        await self._settler.room()
        wait_s = await self._start_or_wait(lane, request)
        if wait_s > self._parts.settings.short_wait_s:
            self._rest(lane, wait_s)
        elif wait_s > 0:
            await asyncio.sleep(wait_s)

    async def _start_or_wait(self, lane: HostLane, request: LeasedRequest) -> float:
        """Start the request if a token can be had now; return the seconds to wait for one, or 0."""
        await self._gate.enter(lane.gate)
        started = False
        try:
            if self._ending or not lane.queue or lane.queue[0] is not request:
                return 0.0
            wait_s = await self._lane_token(lane)
            if wait_s is not None or self._ending:
                return wait_s or 0.0
            lane.queue.popleft()
            visit = asyncio.get_running_loop().create_task(self._one(lane, request))
            self._visits.add(visit)
            visit.add_done_callback(self._visits.discard)
            started = True
            return 0.0
        finally:
            if not started:
                self._gate.leave(lane.gate)

    async def _robots_admits(self, lane: HostLane, request: LeasedRequest) -> bool:
        """Ask robots.txt; a refused request is settled here and now."""
        if not self._rules.obey_robots:
            return True
        try:
            rules = self._visit.known_robots(request.url) or await self._visit.robots(request.url)
        except FetchError as error:
            if not lane.queue or lane.queue[0] is not request:
                return False
            if isinstance(error, RobotsUnreachable):
                self._put_off(lane, error)
            elif error.reason == Reason.HOST_RESTS:
                self._rest(lane, error.retry_after_s or self._parts.settings.short_wait_s)
            else:
                self._drop(lane, Verdict.FAILED, error.reason, str(error))
            return False
        if rules.crawl_delay_s and not lane.paced_by_robots:
            lane.pace = Pace.of(self._rules.delay_s, rules.crawl_delay_s)
            lane.paced_by_robots = True
        if rules.allowed(request.url):
            return True
        if lane.queue and lane.queue[0] is request:
            self._drop(lane, Verdict.SKIPPED, Reason.ROBOTS, "robots.txt disallows it")
        return False

    def _drop(self, lane: HostLane, verdict: Verdict, reason: str, message: str) -> None:
        self._settler.add(Outcome(lane.queue.popleft(), verdict, reason=str(reason), message=message))

    def _put_off(self, lane: HostLane, error: RobotsUnreachable) -> None:
        """Count an attempt of each request that a missing robots.txt holds up, so that they fail in the end.

        Without that a mistyped host would keep its task running for ever, and nobody would be told why.
        """
        rest_s = error.retry_after_s or self._parts.settings.short_wait_s
        reason = error.cause if error.cause in _NETWORK else error.reason
        self.rests[lane.host_id] = max(rest_s, self.rests.get(lane.host_id, 0.0))
        self.rested = True
        while lane.queue:
            self._settler.add(
                Outcome(
                    lane.queue.popleft(),
                    Verdict.RETRY,
                    reason=str(reason),
                    message=str(error),
                    retry_after_s=rest_s,
                )
            )

    def _rest(self, lane: HostLane, rest_s: float) -> None:
        """Give back what is queued for a host that must not be asked for a while."""
        self.rests[lane.host_id] = max(rest_s, self.rests.get(lane.host_id, 0.0))
        self.rested = True
        self._give_back(lane)

    def _give_back(self, lane: HostLane) -> None:
        while lane.queue:
            self._settler.add(Outcome(lane.queue.popleft(), Verdict.RELEASE))

    async def _lane_token(self, lane: HostLane) -> float | None:
        """As :meth:`_token_or_wait`; a host without a delay is asked about blocks only now and then."""
        if lane.pace.rate > 0:
            return await self._token_or_wait(lane.host_key, lane.pace)
        now = asyncio.get_running_loop().time()
        if now < lane.free_until:
            return None
        wait_s = await self._token_or_wait(lane.host_key, lane.pace)
        if wait_s is None:
            lane.free_until = now + FREE_S
        return wait_s

    async def _token_or_wait(self, host_key: str, pace: Pace) -> float | None:
        """Return None when a token was taken, else the seconds to wait."""
        decision = await decide(self._parts.acquire, host_key, pace)
        return decision.wait_s if isinstance(decision, Wait) else None

    async def take_token(self, host_key: str, pace: Pace) -> None:
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
        if outcome.retry_after_s is not None and outcome.rest_host is not None:
            self._parts.block(outcome.rest_host, outcome.retry_after_s)
            # After a redirect it is another host that asks for rest; then only this request waits.
            if outcome.rest_host == lane.host_key:
                lane.free_until = 0.0
                self._rest(lane, outcome.retry_after_s)
        self.finished += 1
        self._settler.add(outcome)
        if not lane.queue:
            self._changed()
