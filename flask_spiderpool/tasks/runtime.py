"""What one process keeps to run slices: loop, connections, threads. The worker's composition root.

Made lazily, after the fork, and closed once. The foreground crawl makes one of its own, without bus, pulse
and keeper.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field

from flask_spiderpool.bus.base import Bus
from flask_spiderpool.config import Settings
from flask_spiderpool.crawl.address import AddressGuard
from flask_spiderpool.crawl.callbacks import CallbackThreads
from flask_spiderpool.crawl.engine import SliceRun
from flask_spiderpool.crawl.extract import Extractor
from flask_spiderpool.crawl.fetch import Fetcher
from flask_spiderpool.crawl.parts import EngineParts
from flask_spiderpool.crawl.request import Outcome, Settled, Ticket
from flask_spiderpool.crawl.robots import RobotsCache
from flask_spiderpool.crawl.seen import SeenSet
from flask_spiderpool.crawl.spider import SpiderRegistry
from flask_spiderpool.crawl.transport import AiohttpTransport
from flask_spiderpool.limiter.base import Limiter
from flask_spiderpool.pulse.base import Pulse
from flask_spiderpool.store import Message, Store
from flask_spiderpool.tasks.acquire import LoopLimiter
from flask_spiderpool.tasks.beat import Beat
from flask_spiderpool.tasks.commands import CommandListener
from flask_spiderpool.tasks.keeper import Keeper
from flask_spiderpool.tasks.loop import LoopThread
from flask_spiderpool.tasks.renewal import Renewals

logger = logging.getLogger(__name__)

CLOSE_EXTRA_S = 5.0  #: beyond the stop grace: the last settle and hand-on


def process_name() -> str:
    """Return ``hostname:pid:boot``, unique for one life of one process."""
    return f"{socket.gethostname()}:{os.getpid()}:{time.time_ns() // 1_000_000}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeParts:
    """What a runtime is given. It closes none of these: they belong to whoever made them."""

    settings: Settings
    registry: SpiderRegistry
    store: Store
    limiter: Limiter
    send: Callable[[Sequence[Message]], None]
    enter_app: Callable[[], AbstractContextManager[None]]
    bus: Bus | None = None
    pulse: Pulse | None = None
    denied: frozenset[tuple[str, int]] = frozenset()  #: the app's own servers: never crawled
    in_thread: Callable[[], object] = field(default=lambda: None)  #: called once in each callback thread
    on_broken: Callable[[], object] = field(
        default=lambda: None
    )  #: called when the event loop ended by itself


class Runtime:
    """Runs the slices of one process.

    ``threads`` is how many it may be given at once; ``keeps`` says whether the keeper runs here. The
    life is :meth:`start`, any number of slices, :meth:`close`.
    """

    def __init__(self, parts: RuntimeParts, *, threads: int, keeps: bool, name: str | None = None) -> None:
        self.parts = parts
        self.name = name or process_name()
        self.pid = os.getpid()
        settings = parts.settings
        self.renewals = Renewals(parts.store, settings.renew_s)
        self.draining = False
        self.broken = False  #: the event loop ended by itself: no slice can run here any more
        self._slices = 0
        self._runs: set[SliceRun] = set()
        self._quiet = threading.Condition()
        self._closed = False
        self._loop = LoopThread(on_end=self._break)
        self._limiter = LoopLimiter(parts.limiter)
        self._callbacks = CallbackThreads(settings.callback_threads, initializer=parts.in_thread)
        self._extractor = Extractor(
            timeout_s=settings.extract_timeout_s, memory_limit_bytes=settings.extract_memory_bytes
        )
        self._transport = AiohttpTransport(
            AddressGuard(settings.allow_addresses, denied=parts.denied),
            connect_timeout_s=settings.connect_timeout_s,
        )
        self._beat = (
            Beat(parts.pulse, self.name, threads=threads, running=lambda: self._slices)
            if parts.pulse is not None
            else None
        )
        self._commands = CommandListener(parts.bus, self.renewals) if parts.bus is not None else None
        self._keeper = Keeper(parts.store, self.name, settings.keeper_s, parts.send) if keeps else None
        self.engine = self._engine_parts()

    def start(self) -> None:
        """Start the threads. Raises what the limiter says of a second process."""
        self._loop.start()
        for thread in (self.renewals, self._beat, self._commands, self._keeper):
            if thread is not None:
                thread.start()

    def run(self, slice_run: SliceRun, timeout_s: float) -> float | None:
        """Run a slice on the loop and wait for its end; what it raises is raised here.

        Celery's own time limits do not reach the thread pool, so the limit is set round the coroutine.
        """

        async def bounded() -> float | None:
            async with asyncio.timeout(timeout_s):
                return await slice_run.run()

        with self._quiet:
            self._runs.add(slice_run)
        try:
            future = self._loop.submit(bounded())
            if self.draining:
                self._loop.loop.call_soon_threadsafe(slice_run.stop_soon)
            return future.result()
        finally:
            with self._quiet:
                self._runs.discard(slice_run)

    @contextmanager
    def slice_place(self) -> Iterator[bool]:
        """Count a slice; False says that the process winds up and that nothing may be claimed any more."""
        with self._quiet:
            admitted = not self.draining
            self._slices += admitted
        try:
            yield admitted
        finally:
            with self._quiet:
                self._slices -= admitted
                self._quiet.notify_all()

    def drain(self) -> None:
        """Take no new slice and end those that run: started requests finish within ``stop_grace_s``."""
        with self._quiet:
            if self.draining:
                return
            self.draining = True
            self._quiet.notify_all()
            runs = list(self._runs)
        for slice_run in runs:
            self._loop.loop.call_soon_threadsafe(slice_run.stop_soon)

    def wait_for_drain(self, timeout_s: float) -> bool:
        """Wait up to ``timeout_s`` seconds, less if the process begins to wind up; tell whether it does."""
        with self._quiet:
            return self._quiet.wait_for(lambda: self.draining, timeout_s)

    def close(self, grace_s: float | None = None) -> None:
        """Drain, wait for the slices to hand on, then end every thread. Idempotent.

        Takes at most ``grace_s`` (default: ``stop_grace_s``) + 5 s, plus a moment for the threads.
        """
        if grace_s is None:
            grace_s = self.parts.settings.stop_grace_s
        self.drain()
        with self._quiet:
            if self._closed:
                return
            self._closed = True
            self._quiet.wait_for(lambda: self._slices == 0, grace_s + CLOSE_EXTRA_S)
            left = self._slices
        if left:
            logger.warning("%d slices did not end in time; their leases expire by themselves", left)
        for thread in (self._keeper, self._commands, self._beat, self.renewals):
            if thread is not None:
                _quietly(thread.stop)
        self._callbacks.close()
        self._limiter.close()
        _quietly(self._extractor.close)
        _quietly(self._close_loop)

    def _break(self) -> None:
        self.broken = True
        self.parts.on_broken()

    def _close_loop(self) -> None:
        if self.broken:
            return  # the connections' loop is gone: the process's end closes them
        try:
            self._loop.submit(self._transport.aclose()).result(CLOSE_EXTRA_S)
        finally:
            self._loop.close()

    def _count(self, ticket: Ticket, outcomes: Sequence[Outcome], settled: Settled) -> None:
        if self._beat is not None:
            self._beat.count(ticket, outcomes, settled)

    def _engine_parts(self) -> EngineParts:
        settings = self.parts.settings
        fetcher = Fetcher(self._transport, user_agent=settings.user_agent)
        return EngineParts(
            settings=settings,
            store=self.parts.store,
            fetcher=fetcher,
            robots=RobotsCache(fetcher, ttl_s=settings.robots_ttl_s),
            extractor=self._extractor,
            acquire=self._limiter.acquire,
            block=self._limiter.block,
            callbacks=self._callbacks,
            enter_app=self.parts.enter_app,
            seen=SeenSet(settings.seen_size),
            listener=self._count,
        )


def _quietly(act: Callable[[], None]) -> None:
    """Do one step of winding up; a failure must not keep the others from being done."""
    try:
        act()
    except Exception:
        logger.warning("winding up: %r failed", act, exc_info=True)
