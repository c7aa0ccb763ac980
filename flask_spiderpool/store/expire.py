"""A slot whose time is up: its slice is dead, or as good as dead.

Deaths (PROTOCOL): a request that was leased when its worker died is a suspect from then on. If one of the
dead process's leases was a suspect already, only that suspect gets the death, wherever in the process it
was; else all get one. At the third it is set aside.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

from flask_spiderpool.store import lanes
from flask_spiderpool.store.context import Context
from flask_spiderpool.store.slots import next_due
from flask_spiderpool.store.sql import Statement, Tx, task_uuid
from flask_spiderpool.terms import ENDED, Desired

_EXPIRED = Statement(
    """
    SELECT task_id, n, epoch FROM spiderpool_slot WHERE state = 'running' AND until < @now
    ORDER BY until LIMIT :limit
    """
)
_EXPIRED_OF = Statement(
    """
    SELECT task_id, n, epoch FROM spiderpool_slot
    WHERE task_id = :task AND state = 'running' AND until < @now ORDER BY n
    """
)
_LOCK = Statement(
    """
    SELECT worker, spared, @now FROM spiderpool_slot
    WHERE task_id = :task AND n = :n AND epoch = :epoch AND state = 'running' AND until < @now
    FOR UPDATE SKIP LOCKED
    """
)
_TASK = Statement("SELECT desired, status FROM spiderpool_task WHERE id = :task FOR KEY SHARE")
# A process's suspect may be leased by another of its slots, expired or not yet.
_SUSPECTED = Statement(
    """
    SELECT s.task_id, s.n FROM spiderpool_slot s
    JOIN spiderpool_request r ON r.task_id = s.task_id AND r.slot = s.n AND r.epoch = s.epoch
    WHERE s.worker = :worker AND s.state = 'running' AND r.state = 1 AND r.deaths > 0
    """
)
_SPARE = Statement(
    """
    UPDATE spiderpool_slot SET spared = TRUE WHERE (task_id, n) IN (
        SELECT task_id, n FROM spiderpool_slot
        WHERE worker = :worker AND state = 'running' AND NOT (task_id = :task AND n = :n)
        ORDER BY task_id, n FOR UPDATE SKIP LOCKED
    )
    """
)
_COUNT_DEATHS = Statement(
    """
    UPDATE spiderpool_request SET deaths = deaths + 1
    WHERE task_id = :task AND slot = :n AND state = 1 AND (deaths > 0 OR :everyone)
    """
)
_SET_ASIDE = Statement(
    """
    UPDATE spiderpool_request
    SET state = 4, reason = 'deaths', settled_at = :now,
        message = 'its worker process died with it ' || deaths || ' times'
    WHERE task_id = :task AND slot = :n AND state = 1 AND deaths >= :most
    RETURNING is_seed
    """
)
_REQUEUE = Statement(
    """
    UPDATE spiderpool_request SET state = 0, slot = NULL, epoch = NULL
    WHERE task_id = :task AND slot = :n AND state = 1
    RETURNING host_id
    """
)
_END = Statement(
    """
    UPDATE spiderpool_slot
    SET state = :state, due_at = :due_at, until = NULL, leased = 0, sends = 0, worker = NULL
    WHERE task_id = :task AND n = :n
    """
)
_COUNT = Statement(
    """
    UPDATE spiderpool_task SET failed = failed + :failed, seeds_failed = seeds_failed + :seeds WHERE id = :task
    """
)


def expired(tx: Tx, limit: int) -> list[tuple[UUID, int, int]]:
    """Return the running slots of all tasks whose time is up, the oldest first."""
    return [(task_uuid(task), n, epoch) for task, n, epoch in tx.all(_EXPIRED, limit=limit)]


def expired_of(tx: Tx, task_id: UUID) -> list[tuple[UUID, int, int]]:
    """Return the running slots of one task whose time is up."""
    return [(task_uuid(task), n, epoch) for task, n, epoch in tx.all(_EXPIRED_OF, task=task_id)]


def expire(tx: Tx, context: Context, slot: tuple[UUID, int, int]) -> int | None:
    """Return an expired slot's leases and make it due again, in one transaction.

    A compare-and-set: None when another has done it or the slice has renewed. Else how many requests were
    set aside for their deaths; then the task may be complete.
    """
    task_id, n, epoch = slot
    held = tx.one(_LOCK, task=task_id, n=n, epoch=epoch)
    if held is None:
        return None
    worker, spared, now = held
    task = tx.one(_TASK, task=task_id)
    _count_deaths(tx, task_id, n, worker, spared=bool(spared))
    gone = tx.all(_SET_ASIDE, task=task_id, n=n, now=now, most=context.settings.deaths)
    counts: dict[int, int] = {}
    for (host,) in tx.all(_REQUEUE, task=task_id, n=n):
        counts[host] = counts.get(host, 0) + 1
    lanes.add(tx, task_id, counts, now)
    due_at = None
    if task is not None and task[0] == Desired.RUN and task[1] not in ENDED:
        due_at = next_due(tx, task_id)
    tx.run(_END, task=task_id, n=n, state="idle" if due_at is None else "due", due_at=due_at)
    if gone:
        tx.run(_COUNT, task=task_id, failed=len(gone), seeds=sum(bool(row[0]) for row in gone))
    return len(gone)


def _count_deaths(tx: Tx, task_id: UUID, n: int, worker: Any, *, spared: bool) -> None:
    suspected = [(task_uuid(task), slot) for task, slot in tx.all(_SUSPECTED, worker=worker)]
    tx.run(_COUNT_DEATHS, task=task_id, n=n, everyone=not suspected and not spared)
    if (task_id, n) in suspected:
        # The others of the process may expire after this one, when its suspect is no longer leased.
        tx.run(_SPARE, worker=worker, task=task_id, n=n)
