"""Prolong the leases of all of a process's slots in one statement."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from flask_spiderpool.config import Settings
from flask_spiderpool.crawl.request import Renewal, Ticket
from flask_spiderpool.store.sql import Statement, Tx, task_uuid

# SKIP LOCKED: a verb in a host's slow transaction holds its task's slots; the other tasks must not wait for it.
_RENEW = Statement(
    """
    WITH mine AS MATERIALIZED (
        SELECT s.task_id, s.n FROM spiderpool_slot s
        JOIN unnest(:tasks::uuid[], :ns::int[], :epochs::bigint[]) AS c(task_id, n, epoch)
          ON c.task_id = s.task_id AND c.n = s.n AND c.epoch = s.epoch
        WHERE s.state = 'running'
        ORDER BY s.task_id, s.n FOR UPDATE OF s SKIP LOCKED
    )
    UPDATE spiderpool_slot AS s SET until = @now + :lease_s
    FROM mine JOIN spiderpool_task t ON t.id = mine.task_id
    WHERE s.task_id = mine.task_id AND s.n = mine.n
    RETURNING s.task_id, s.n, s.epoch, t.desired, t.status
    """
)
_RENEW_ONE = Statement(
    "",
    sqlite="""
    UPDATE spiderpool_slot SET until = @now + :lease_s
    WHERE task_id = :task AND n = :n AND epoch = :epoch AND state = 'running'
    RETURNING task_id, n, epoch, (SELECT desired FROM spiderpool_task t WHERE t.id = task_id),
              (SELECT status FROM spiderpool_task t WHERE t.id = task_id)
    """,
)
_LEFT = Statement(
    """
    SELECT s.task_id, s.n, s.epoch, t.desired, t.status, s.until - @now
    FROM spiderpool_slot s
    JOIN unnest(:tasks::uuid[], :ns::int[], :epochs::bigint[]) AS c(task_id, n, epoch)
      ON c.task_id = s.task_id AND c.n = s.n AND c.epoch = s.epoch
    JOIN spiderpool_task t ON t.id = s.task_id
    WHERE s.state = 'running'
    """
)


def renew(tx: Tx, settings: Settings, tickets: Sequence[Ticket]) -> dict[Ticket, Renewal]:
    """Return the renewals by ticket; a missing one is fenced.

    A slot that another transaction holds just now is not prolonged by this call: its renewal then says what
    is left of its lease, and the next call tries again.
    """
    if not tickets:
        return {}
    if tx.postgres:
        rows = tx.all(_RENEW, lease_s=settings.lease_s, **_columns(tickets))
    else:
        rows = []
        for ticket in sorted(tickets):
            rows += tx.all(
                _RENEW_ONE, task=ticket.task_id, n=ticket.n, epoch=ticket.epoch, lease_s=settings.lease_s
            )
    return {_ticket(row): Renewal(_desired(row), settings.lease_s) for row in rows}


def left(tx: Tx, tickets: Sequence[Ticket]) -> dict[Ticket, Renewal]:
    """Return what is left of the leases of slots that were locked when they should have been renewed."""
    rows = tx.all(_LEFT, **_columns(tickets))
    return {_ticket(row): Renewal(_desired(row), max(0.0, row[5])) for row in rows}


def _columns(tickets: Sequence[Ticket]) -> dict[str, Any]:
    ordered = sorted(tickets)
    return {
        "tasks": [ticket.task_id for ticket in ordered],
        "ns": [ticket.n for ticket in ordered],
        "epochs": [ticket.epoch for ticket in ordered],
    }


def _ticket(row: tuple[Any, ...]) -> Ticket:
    return Ticket(task_uuid(row[0]), row[1], row[2])


def _desired(row: tuple[Any, ...]) -> str:
    """What the slice shall do; an ended task wants nothing whatever its ``desired`` says."""
    return "stop" if row[4] in ("stopped", "finished", "failed") else str(row[3])
