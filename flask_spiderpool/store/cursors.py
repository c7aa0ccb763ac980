"""Where a slice stands in each lane: ``(priority, id)`` of the last request it took from there.

A long snapshot (a dump, a report) keeps dead rows at the head of the queue, and each lease walked over them
again: 31 ms instead of 0.5. With the cursor it begins behind them. What is queued again before the cursor
(a release, a ripe retry, a better priority) is found when the cursor is forgotten, now and then and whenever
a lease came back with less than was asked.
"""

from __future__ import annotations

from uuid import UUID

from flask_spiderpool.crawl.request import Ticket

_LEASES = 20  #: a ticket's cursors are forgotten after so many leases
_TICKETS = 4096

Position = tuple[int, int]


class Cursors:
    """The cursors of a process's slices; forgotten with the slot's epoch."""

    def __init__(self) -> None:
        self._of: dict[tuple[UUID, int], tuple[int, int, dict[int, Position]]] = {}

    def of(self, ticket: Ticket) -> dict[int, Position]:
        """Return the lane positions of a ticket; empty at its beginning and after every twentieth lease."""
        key = (ticket.task_id, ticket.n)
        epoch, leases, positions = self._of.get(key, (ticket.epoch, 0, {}))
        if epoch != ticket.epoch or leases >= _LEASES:
            leases, positions = 0, {}
        if len(self._of) >= _TICKETS:
            self._of.clear()
        self._of[key] = (ticket.epoch, leases + 1, positions)
        return positions

    def advance(self, ticket: Ticket, host_id: int, position: Position) -> None:
        """Remember that ``host_id`` was taken up to ``position``."""
        known = self._of.get((ticket.task_id, ticket.n))
        if known is not None and known[0] == ticket.epoch:
            known[2][host_id] = max(position, known[2].get(host_id, position))

    def forget(self, ticket: Ticket) -> None:
        """Begin at the head of every lane again."""
        self._of.pop((ticket.task_id, ticket.n), None)
