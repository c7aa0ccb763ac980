"""Give leases back: by a slice that hands them on, or by whoever finds that a slice has died."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from flask_spiderpool.store import lanes
from flask_spiderpool.store.sql import Statement, Tx

# Of whatever epoch: a slot that is handed on or expired holds nothing any more.
_RETURN_ALL = Statement(
    """
    UPDATE spiderpool_request SET state = 0, slot = NULL, epoch = NULL
    WHERE task_id = :task AND slot = :n AND state = 1
    RETURNING host_id
    """
)
_NONE_LEFT = Statement(
    "UPDATE spiderpool_slot SET leased = 0 WHERE task_id = :task AND n = :n AND leased <> 0"
)


def return_all(tx: Tx, task_id: UUID, n: int, now: float) -> int:
    """Queue again everything that slot ``n`` (locked) holds; its ``leased`` becomes 0. No death is counted."""
    rows = tx.all(_RETURN_ALL, task=task_id, n=n)
    _requeue(tx, task_id, rows, now)
    tx.run(_NONE_LEFT, task=task_id, n=n)
    return len(rows)


def _requeue(tx: Tx, task_id: UUID, rows: list[tuple[Any, ...]], now: float) -> None:
    counts: dict[int, int] = {}
    for (host,) in rows:
        counts[host] = counts.get(host, 0) + 1
    lanes.add(tx, task_id, counts, now)
