"""The store: the frontier's port for the engine, and what slices, the keeper and the status route call."""

from __future__ import annotations

import functools
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, TypeVar
from uuid import UUID

import sqlalchemy as sa

from flask_spiderpool.config import Settings
from flask_spiderpool.crawl.request import Lease, Outcome, Renewal, Settled, Ticket
from flask_spiderpool.errors import UnknownTask
from flask_spiderpool.models import metadata
from flask_spiderpool.store import dispatch, expire, fail, keep, numbers, record, slots
from flask_spiderpool.store import lease as leasing
from flask_spiderpool.store import renew as renewing
from flask_spiderpool.store import verdict as judging
from flask_spiderpool.store.context import Context
from flask_spiderpool.store.engine import make_engine
from flask_spiderpool.store.facts import FactsOf
from flask_spiderpool.store.settling import settle_batch
from flask_spiderpool.store.slots import Claim, Message
from flask_spiderpool.store.sql import Statement, Tx
from flask_spiderpool.store.transact import RETRY_S, Transactions
from flask_spiderpool.terms import EndReason, Status

T = TypeVar("T")

log = logging.getLogger("spiderpool.store")

_RENEWALS = 3  #: looks at a slot that another transaction holds, 20 ms apart
_NOW = Statement("SELECT @now")


class Store:
    """Frontier and results in the pool's database; satisfies :class:`~flask_spiderpool.crawl.store.FrontierStore`.

    Thread-safe; may be made before a fork. Every call is one transaction on the store's own engine (READ
    COMMITTED; on SQLite the one writer thread), never the host's session. Calls block on the database: on an
    event loop use :meth:`submit`. A database that stays away raises :class:`~flask_spiderpool.errors.Unavailable`.
    """

    def __init__(
        self,
        engine: sa.Engine,
        settings: Settings,
        *,
        owns_engine: bool = True,
        renewals: bool = True,
        retry_s: float = RETRY_S,
    ) -> None:
        self.settings = settings
        self._transactions = Transactions(
            engine, settings, owns_engine=owns_engine, renewals=renewals, retry_s=retry_s
        )
        self._contexts: dict[int, Context] = {}  #: by process id

    @classmethod
    def open(cls, url: str | sa.URL, settings: Settings, *, renewals: bool = True) -> Store:
        """Open a store with engines of its own on ``url``; nothing is connected yet.

        ``renewals=False`` for a process that runs no slices: it needs no connection for them.
        """
        connections = settings.store_threads if sa.make_url(url).get_backend_name() == "postgresql" else 2
        return cls(make_engine(url, connections=connections), settings, renewals=renewals)

    @property
    def _here(self) -> Context:
        """This process's memory; ``setdefault``, so that two threads of a new process end with one."""
        pid = os.getpid()
        context = self._contexts.get(pid)
        if context is None:
            context = self._contexts.setdefault(pid, Context(self.settings, FactsOf(self.settings)))
        return context

    def submit(self, fn: Callable[..., T], *args: Any, first: bool = False, **kw: Any) -> Future[T]:
        """Run a call of this store off the calling thread and return its future.

        SQLite: the writer thread, ``first`` before what is queued. PostgreSQL: a pool of ``store_threads``.
        """
        return self._transactions.submit(fn, *args, first=first, **kw)

    def write(self, fn: Callable[[Tx], T]) -> T:
        """Run ``fn`` in a transaction of the store's engine (for the other modules of this package)."""
        return self._transactions.write(fn)

    def read(self, fn: Callable[[Tx], T]) -> T:
        """The same for a function that changes nothing."""
        return self._transactions.read(fn)

    # The port: what the engine calls.

    def lease(
        self,
        ticket: Ticket,
        n: int,
        per_host: Mapping[int, int],
        default_per_host: int,
        *,
        suspects: bool,
        rest_hosts: Mapping[int, float],
    ) -> Lease:
        """See :meth:`flask_spiderpool.crawl.store.FrontierStore.lease`."""
        ask = leasing.Ask(n, per_host, default_per_host, suspects, rest_hosts)
        return self.write(functools.partial(leasing.lease, context=self._here, ticket=ticket, ask=ask))

    def renew(self, tickets: Sequence[Ticket]) -> dict[Ticket, Renewal]:
        """See :meth:`flask_spiderpool.crawl.store.FrontierStore.renew`."""
        open_, renewed = list(tickets), {}
        for _ in range(_RENEWALS):
            asked = tuple(open_)
            renewed.update(
                self._transactions.write(lambda tx: renewing.renew(tx, self.settings, asked), first=True)  # noqa: B023
            )
            open_ = [ticket for ticket in open_ if ticket not in renewed]
            if not open_ or not self._transactions.postgres:
                return renewed
            locked = self._transactions.write(lambda tx: renewing.left(tx, asked), first=True)  # noqa: B023
            open_ = [ticket for ticket in open_ if ticket in locked]
            if not open_:
                return renewed
            self._transactions.wait(0.02)
        return renewed | {ticket: locked[ticket] for ticket in open_}

    def settle(self, ticket: Ticket, outcomes: Sequence[Outcome]) -> Settled:
        """See :meth:`flask_spiderpool.crawl.store.FrontierStore.settle`."""
        return settle_batch(self.write, self._here, ticket, outcomes)

    # The slice.

    def claim(self, task_id: UUID, n: int, epoch: int, worker: str) -> Claim | None:
        """Begin the slice that a message names. None: the message is old or doubled, or nothing is to be done."""
        ticket = Ticket(task_id, n, epoch)
        claimed = self.write(lambda tx: slots.claim(tx, self._here, ticket, worker))
        if claimed is None:
            self._judge_if_there(task_id)
        return claimed

    def decline(self, ticket: Ticket) -> None:
        """Put back what a message named: this worker winds up. Without it the slot rested until the re-send."""
        self.write(lambda tx: slots.decline(tx, ticket))

    def hand_on(self, ticket: Ticket, *, next_in_s: float | None) -> list[Message]:
        """End a slice in order and return the messages to send now.

        ``next_in_s``: the slice knows that nothing can be sent before so many seconds (limiter, crawl delay).
        Raises :class:`~flask_spiderpool.errors.Fenced` when the slot is no longer the slice's.
        """
        self.write(lambda tx: slots.hand_on(tx, self._here, ticket, next_in_s))
        self.verdict(ticket.task_id)
        return self.dispatch(self.settings.worker_threads)

    def fail_task(self, which: Ticket | UUID, reason: EndReason, message: str | None = None) -> None:
        """Say that a task has failed: its spider cannot be loaded, or its runner broke. Fenced by a ticket."""
        self.write(lambda tx: fail.fail_task(tx, which, reason, message))

    def record(self, ticket: Ticket, outcomes: Sequence[Outcome]) -> Settled:
        """Write what a runner that is not sliced (Scrapy, a script) has fetched; fenced by the same epoch.

        The requests need not be in the frontier: ``request.id`` is not read, ``url``, ``fingerprint``,
        ``host_key`` and ``depth`` are. A URL of the task that has an outcome already keeps it.
        """
        return self.write(lambda tx: record.record(tx, self._here, ticket, outcomes))

    def verdict(self, task_id: UUID) -> Status:
        """Return a task's status after changing it when it is time (paused, stopped, finished, failed).

        Leases whose time is up are returned before, so that a task with no worker alive does not hang.
        Raises :class:`~flask_spiderpool.errors.UnknownTask`.
        """
        self._expire_of(task_id)
        return self.write(lambda tx: judging.verdict(tx, task_id))

    def _expire_of(self, task_id: UUID) -> None:
        for slot in self.read(lambda tx: expire.expired_of(tx, task_id)):
            self.write(functools.partial(expire.expire, context=self._here, slot=slot))

    def _judge_if_there(self, task_id: UUID) -> None:
        try:
            self.verdict(task_id)
        except UnknownTask:
            log.info("a message named task %s, which is gone", task_id)

    def dispatch(self, limit: int) -> list[Message]:
        """Send up to ``limit`` due slots, as far as the cluster has room; publish what is returned."""
        return self.write(lambda tx: dispatch.dispatch(tx, self.settings, limit))

    # The keeper.

    def keep(self, holder: str) -> list[Message]:
        """One pass of the keeper, if ``holder`` holds the office; publish what is returned."""
        if not self.write(lambda tx: keep.elect(tx, holder, self.settings)):
            return []
        return self.keep_house()

    def keep_house(self) -> list[Message]:
        """The pass itself, with no election: every act is a compare-and-set, so two at once do no harm."""
        judged: set[UUID] = set()
        for slot in self.read(lambda tx: expire.expired(tx, keep.MOST)):
            if self.write(functools.partial(expire.expire, context=self._here, slot=slot)):
                judged.add(slot[0])
        messages = self._resend()
        for task_id in self.read(keep.ripe_tasks):
            self.write(functools.partial(keep.promote, task_id=task_id))
        for task_id in sorted(judged.union(self.read(keep.to_judge))):
            self._expire_of(task_id)
            self.write(functools.partial(judging.verdict_if_free, task_id=task_id))
        for task_id in self.read(keep.stranded):
            if self.write(functools.partial(keep.wake, task_id=task_id)):
                log.warning("task %s had work and no slot awake; a slot was made due", task_id)
        self.write(keep.rest_unwanted)
        self.write(lambda tx: keep.prune(tx, self._here))
        return messages + self.dispatch(keep.MOST)

    def _resend(self) -> list[Message]:
        unanswered = self.read(keep.unanswered)
        if not unanswered:
            return []
        long = self.read(lambda tx: keep.queue_is_long(tx, self.settings))
        sent = [
            self.write(functools.partial(keep.resend, settings=self.settings, slot=slot, long=long))
            for slot in unanswered
        ]
        return [message for message in sent if message is not None]

    # Looks.

    def numbers(self, task_id: UUID) -> dict[str, Any]:
        """See :func:`flask_spiderpool.store.numbers.numbers`."""
        return self.read(lambda tx: numbers.numbers(tx, task_id))

    def reconcile(self, task_id: UUID) -> dict[str, Any]:
        """See :func:`flask_spiderpool.store.numbers.reconcile`."""
        return self.read(lambda tx: numbers.reconcile(tx, task_id))

    def status_counts(self) -> dict[str, int]:
        """Return how many tasks stand in each status."""
        return self.read(numbers.status_counts)

    def pool_numbers(self) -> dict[str, Any]:
        """See :func:`flask_spiderpool.store.numbers.pool_numbers`."""
        return self.read(numbers.pool_numbers)

    def now(self) -> float:
        """Return the store's clock, in epoch seconds."""
        return float(self.read(lambda tx: tx.all(_NOW)[0][0]))

    def create_tables(self) -> None:
        """Create the pool's tables that are missing (for tests and the foreground crawl; hosts use migrations)."""
        metadata.create_all(self._transactions.engine)

    def close(self) -> None:
        """Finish what is queued, end threads and connections. Idempotent."""
        self._transactions.close()
