"""The renewal of a process's leases: its own thread, its own connection, one statement for all slots."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol
from uuid import UUID

from flask_spiderpool.crawl.guard import LeaseGuard, boot_clock
from flask_spiderpool.crawl.request import Renewal, Ticket
from flask_spiderpool.tasks.periodic import Periodic


class Renewer(Protocol):
    """What this module needs of the store."""

    def renew(self, tickets: Sequence[Ticket]) -> Mapping[Ticket, Renewal]:
        """Prolong the leases of these tickets; those not in the answer are fenced."""
        ...


class Renewals:
    """The guards of all running slices of this process, and the thread that renews them.

    When the database is away the thread keeps trying and the guards expire by themselves: a slice that
    may be dead sends nothing.
    """

    def __init__(self, store: Renewer, interval_s: float, *, clock: Callable[[], float] = boot_clock) -> None:
        self._store = store
        self._clock = clock
        self._guards: dict[Ticket, LeaseGuard] = {}
        self._lock = threading.Lock()
        self._thread = Periodic("spiderpool-renewal", interval_s, self.renew_once)

    def start(self) -> None:
        """Begin to renew."""
        self._thread.start()

    def stop(self) -> None:
        """Renew no more."""
        self._thread.stop()

    def add(self, guard: LeaseGuard) -> None:
        """Renew this slice's lease from now on."""
        with self._lock:
            self._guards[guard.ticket] = guard

    def discard(self, guard: LeaseGuard) -> None:
        """The slice has ended."""
        with self._lock:
            self._guards.pop(guard.ticket, None)

    def of_task(self, task_id: UUID) -> list[LeaseGuard]:
        """Return the guards of one task's running slices."""
        with self._lock:
            return [guard for ticket, guard in self._guards.items() if ticket.task_id == task_id]

    def look_again(self) -> None:
        """Renew now rather than at the next beat: something about a task has changed."""
        self._thread.wake()

    def renew_once(self) -> None:
        """Renew every running slice in one statement.

        The time is taken *before* the statement is sent: counted from the answer, the process would
        believe itself to hold a lease that the database had already given away.
        """
        with self._lock:
            guards = list(self._guards.values())
        if not guards:
            return
        asked_at = self._clock()
        answers = self._store.renew([guard.ticket for guard in guards])
        for guard in guards:
            renewal = answers.get(guard.ticket)
            if renewal is None:
                guard.lose()
            else:
                guard.renewed(asked_at, renewal)
