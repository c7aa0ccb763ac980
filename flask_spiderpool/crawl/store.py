"""PORT: the frontier as the engine sees it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Protocol, TypeVar

from flask_spiderpool.crawl.request import Lease, Outcome, Renewal, Settled, Ticket

T = TypeVar("T")


class FrontierStore(Protocol):
    """Lease requests of a task, settle what they came to, keep the lease alive.

    Calls are synchronous and block on the database; the engine makes them on its store executor, the renewal
    thread on its own connection. Each call is one transaction. Every call but ``renew`` raises
    :class:`~flask_spiderpool.errors.Fenced` when the ticket's epoch is over: the caller must then write
    and send nothing more. Deadlocks, serialization errors and a database that is away for a moment are
    retried inside; what cannot be mended raises :class:`~flask_spiderpool.errors.Unavailable`.
    """

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
        """Take up to ``n`` queued requests, hosts in turn, the best of each host first.

        ``per_host`` caps how many may be taken of a ``host_id`` (what that host can be sent within the
        slice); hosts not named get ``default_per_host``. ``rest_hosts`` gives, per ``host_id``, seconds
        for which its lane shall rest from now on (429, robots unreachable); it is written first.
        ``suspects=False`` takes no request with a death (at most one suspect is in flight in a process).
        An empty ``requests`` does not mean the task is finished: see ``next_ready_in_s``.
        """
        ...

    def renew(self, tickets: Sequence[Ticket]) -> dict[Ticket, Renewal]:
        """Prolong the leases of all of a process's slots in one statement; a missing ticket is fenced."""
        ...

    def settle(self, ticket: Ticket, outcomes: Sequence[Outcome]) -> Settled:
        """Write what a batch of leased requests came to, with pages, items, links, logs and counters.

        A batch whose rows are no longer leased by this ticket had been settled before: success. If the
        data of one page cannot be stored, the batch is repeated page by page and that page becomes
        ``failed(store_error)``.
        """
        ...

    def submit(self, call: Callable[[], T], /) -> Future[T]:
        """Run a store call where it blocks nobody: the writer thread of SQLite, else a small pool."""
        ...
