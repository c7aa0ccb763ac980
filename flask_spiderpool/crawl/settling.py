"""Settle what requests came to: in bulk, one transaction at a time, while fetching goes on."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Sequence

from flask_spiderpool.crawl.request import Outcome, Settled, Ticket, Verdict
from flask_spiderpool.crawl.seen import SeenSet
from flask_spiderpool.crawl.store import FrontierStore
from flask_spiderpool.errors import Fenced, Unavailable

RETRY_S = 1.0  #: pause between two looks for a database that is away

_GIVEN_BACK = frozenset({Verdict.RETRY, Verdict.RELEASE})

Listener = Callable[[Ticket, Sequence[Outcome], Settled], None]


class Settler:
    """Collects the outcomes of one slice and settles them when ``pages`` are there or ``every_s`` has passed.

    What the store raises ends :meth:`run`; nothing is taken in any more after that.
    """

    def __init__(
        self,
        store: FrontierStore,
        ticket: Ticket,
        seen: SeenSet,
        *,
        pages: int,
        every_s: float,
        listener: Listener,
        is_fenced: Callable[[], bool],
    ) -> None:
        self.added = False  #: a settle has brought new requests since the engine last looked
        self.settled = False  #: anything was settled since the engine last looked
        self.moved = False  #: a settle has given requests back since the engine last looked
        self.changed: Callable[[], None] = lambda: None  #: called after each settle
        self._store = store
        self._ticket = ticket
        self._seen = seen
        self._pages = pages
        self._every_s = every_s
        self._listener = listener
        self._is_fenced = is_fenced
        self._buffer: list[Outcome] = []
        self._busy = False
        self._closed = False
        self._every_s_left = every_s
        self._wake = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()

    @property
    def idle(self) -> bool:
        """Tell whether everything that was added has been settled."""
        return not self._buffer and not self._busy

    def add(self, outcome: Outcome) -> None:
        """Take in one outcome."""
        self._buffer.append(outcome)
        if len(self._buffer) == 1 or len(self._buffer) >= self._pages:
            self._wake.set()
        # The database is slower than the site: hold fetching back rather than pile up bodies.
        if len(self._buffer) >= 4 * self._pages:
            self._room.clear()

    async def room(self) -> None:
        """Wait while the buffer is full."""
        if not self._room.is_set():
            await self._room.wait()

    def flush(self) -> None:
        """Settle soon what is there: nothing more will come for a while."""
        self._every_s_left = 0.0
        self._wake.set()

    def close(self) -> None:
        """Settle the rest and let :meth:`run` return."""
        self._closed = True
        self._wake.set()

    async def run(self) -> None:
        """Settle until closed and empty."""
        loop = asyncio.get_running_loop()
        while True:
            while not self._buffer and not self._closed:
                self._wake.clear()
                await self._wake.wait()
            if not self._buffer:
                return
            until = loop.time() + self._every_s
            self._every_s_left = self._every_s
            while len(self._buffer) < self._pages and not self._closed:
                left = min(until - loop.time(), self._every_s_left)
                if left <= 0:
                    break
                self._wake.clear()
                try:
                    await asyncio.wait_for(self._wake.wait(), left)
                except TimeoutError:
                    break
            await self._settle()

    async def _patiently(self, call: Callable[[], Settled]) -> Settled:
        """Keep what was fetched while the database is away; only another epoch makes it worthless."""
        while True:
            try:
                return await asyncio.wrap_future(self._store.submit(call))
            except Unavailable:
                if self._is_fenced():
                    raise Fenced from None
                await asyncio.sleep(RETRY_S)

    async def _settle(self) -> None:
        batch, self._buffer = self._buffer, []
        self._room.set()
        self._busy = True
        settled = await self._patiently(functools.partial(self._store.settle, self._ticket, batch))
        self._busy = False
        self._seen.learn(
            self._ticket.task_id, (link.fingerprint for outcome in batch for link in outcome.links)
        )
        self.added = self.added or settled.added > 0
        self.settled = True
        self.moved = self.moved or any(outcome.verdict in _GIVEN_BACK for outcome in batch)
        self._listener(self._ticket, batch, settled)
        self.changed()
