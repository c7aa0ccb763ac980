"""Retries that rest in state ``waiting`` become queued when their time has come."""

from __future__ import annotations

from uuid import UUID

from flask_spiderpool.store import lanes
from flask_spiderpool.store.sql import Statement, Tx

_MOST = 500  #: promoted by one call; a burst of more waits for the next lease

_PROMOTE = Statement(
    f"""
    UPDATE spiderpool_request SET state = 0, ready_at = NULL, slot = NULL, epoch = NULL
    WHERE id IN (
        SELECT id FROM spiderpool_request WHERE task_id = :task AND state = 2 AND ready_at <= :now
        ORDER BY ready_at LIMIT {_MOST} FOR UPDATE SKIP LOCKED
    )
    RETURNING host_id
    """
)


def promote(tx: Tx, task_id: UUID, now: float) -> int:
    """Queue the task's ripe retries and return how many; the caller holds a slot of it, or makes one due."""
    counts: dict[int, int] = {}
    rows = tx.all(_PROMOTE, task=task_id, now=now)
    for (host,) in rows:
        counts[host] = counts.get(host, 0) + 1
    lanes.add(tx, task_id, counts, now)
    return len(rows)
