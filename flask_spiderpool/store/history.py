"""One row for each change of a task's status."""

from __future__ import annotations

from uuid import UUID

from flask_spiderpool.store.sql import Statement, Tx
from flask_spiderpool.store.text import clean_or_none

_INSERT = Statement(
    """
    INSERT INTO spiderpool_history (task_id, at, from_status, to_status, reason, by, note)
    VALUES (:task, :at, :before, :after, :reason, :by, :note)
    """
)


def write_history(
    tx: Tx,
    task_id: UUID,
    before: str | None,
    after: str,
    now: float,
    *,
    reason: str | None = None,
    by: str | None = None,
    note: str | None = None,
) -> None:
    """Write when a task went from where to where, why, and by whom (None: the pool itself)."""
    tx.run(
        _INSERT,
        task=task_id,
        at=tx.moment(now),
        before=None if before is None else str(before),
        after=str(after),
        reason=None if reason is None else str(reason),
        by=clean_or_none(by, 200),
        note=clean_or_none(note),
    )
