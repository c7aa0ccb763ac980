"""What all slices of one process share, made once by the worker's runtime."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

from flask_spiderpool.config import Settings
from flask_spiderpool.crawl.callbacks import CallbackThreads
from flask_spiderpool.crawl.extract import Extractor
from flask_spiderpool.crawl.fetch import Fetcher
from flask_spiderpool.crawl.politeness import Acquire
from flask_spiderpool.crawl.request import Outcome, Settled, Ticket
from flask_spiderpool.crawl.robots import RobotsCache
from flask_spiderpool.crawl.seen import SeenSet
from flask_spiderpool.crawl.store import FrontierStore


class SuspectSeat:
    """One seat a process for a request that a worker died with (PROTOCOL, *Deaths*)."""

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def take(self) -> bool:
        """Take the seat if it is free."""
        return self._lock.acquire(blocking=False)

    def leave(self) -> None:
        """Free the seat."""
        self._lock.release()


def _ignore(ticket: Ticket, outcomes: Sequence[Outcome], settled: Settled) -> None:
    """Nobody listens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineParts:
    """The shared parts of a process's engine. All but ``callbacks`` belong to the loop thread."""

    settings: Settings
    store: FrontierStore
    fetcher: Fetcher
    robots: RobotsCache
    extractor: Extractor
    acquire: Acquire  #: the limiter, made awaitable
    block: Callable[[str, float], None]  #: the limiter's ``block``; must not block the loop
    callbacks: CallbackThreads  #: threads in which parse functions run
    enter_app: Callable[[], AbstractContextManager[None]]  #: what a parse function runs inside
    seen: SeenSet
    suspects: SuspectSeat = field(default_factory=SuspectSeat)
    listener: Callable[[Ticket, Sequence[Outcome], Settled], None] = _ignore
