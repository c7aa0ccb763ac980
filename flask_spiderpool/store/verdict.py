"""Say what a task has become: paused, stopped, finished, failed. Nobody else assigns these.

The task row is locked FOR UPDATE by a statement of its own; only then the slots are read, so that a lease
that was under way is seen (PROTOCOL, *Finish, pause, stop*).
"""

from __future__ import annotations

from typing import Any, NamedTuple
from uuid import UUID

from flask_spiderpool.errors import UnknownTask
from flask_spiderpool.store.history import write_history
from flask_spiderpool.store.slots import is_sliced
from flask_spiderpool.store.sql import Statement, Tx, json_value
from flask_spiderpool.terms import ENDED, EndReason, Status

_LOOK = """
    SELECT status, desired, discovered, done, failed, skipped, max_pages, deadline_at, seeds, seeds_failed,
           options, @now
    FROM spiderpool_task WHERE id = :task FOR UPDATE
    """
_LOCK = Statement(_LOOK)
_LOCK_FREE = Statement(f"{_LOOK.rstrip()} SKIP LOCKED")
_SLOTS = Statement(
    """
    SELECT COALESCE(sum(leased), 0)::bigint, COALESCE(sum(CASE WHEN state = 'idle' THEN 0 ELSE 1 END), 0)::bigint
    FROM spiderpool_slot WHERE task_id = :task
    """
)
_SAY = Statement(
    """
    UPDATE spiderpool_task SET status = :status, ended_at = :ended_at, end_reason = :reason
    WHERE id = :task AND status = :before
    """
)


class _Task(NamedTuple):
    status: str
    desired: str
    discovered: int
    done: int
    failed: int
    skipped: int
    max_pages: int | None
    deadline_at: float | None
    seeds: int
    seeds_failed: int
    options: Any
    now: float


def verdict(tx: Tx, task_id: UUID) -> Status:
    """Return the task's status, after changing it if it is time. Expired leases are returned before (``expire``)."""
    row = tx.one(_LOCK, task=task_id)
    if row is None:
        raise UnknownTask
    return _verdict(tx, task_id, _Task(*row))


def verdict_if_free(tx: Tx, task_id: UUID) -> None:
    """The same, unless another transaction holds the task's row (a verb's, of a host): then the next pass will."""
    row = tx.one(_LOCK_FREE, task=task_id)
    if row is not None:
        _verdict(tx, task_id, _Task(*row))


def _verdict(tx: Tx, task_id: UUID, task: _Task) -> Status:
    if task.status in ENDED or task.status == Status.PAUSED:
        return Status(task.status)
    slots = tx.one(_SLOTS, task=task_id)
    leased, awake = slots if slots is not None else (0, 0)
    said = _judge(task, leased, awake)
    if said is None:
        return Status(task.status)
    say(tx, task_id, task.status, said[0], task.now, reason=said[1])
    return said[0]


def say(
    tx: Tx,
    task_id: UUID,
    before: str,
    after: Status,
    now: float,
    *,
    reason: EndReason | None = None,
    by: str | None = None,
    note: str | None = None,
) -> None:
    """Change a task's status (its row is locked) and write the history row."""
    ended = after in ENDED
    tx.run(
        _SAY,
        task=task_id,
        before=before,
        status=str(after),
        ended_at=tx.moment(now) if ended else None,
        reason=None if reason is None or not ended else str(reason),
    )
    write_history(tx, task_id, before, after, now, reason=reason, by=by, note=note)


def _judge(task: _Task, leased: int, awake: int) -> tuple[Status, EndReason | None] | None:
    if task.status == Status.PAUSING:
        return (Status.PAUSED, None) if leased == 0 else None
    if task.status == Status.STOPPING:
        return (Status.STOPPED, EndReason.BY_PERSON) if leased == 0 else None
    # A runner that is not sliced finds requests as it goes: it is complete when it has let go of its slot.
    runs_on = awake > 0 and not is_sliced(json_value(task.options) or {})
    if task.discovered == task.done + task.failed + task.skipped and not runs_on:
        if task.seeds and task.seeds_failed >= task.seeds:
            return Status.FAILED, EndReason.ALL_SEEDS_FAILED
        return Status.FINISHED, EndReason.COMPLETE
    if leased:
        return None
    if task.max_pages is not None and task.done >= task.max_pages:
        return Status.FINISHED, EndReason.MAX_PAGES
    if task.deadline_at is not None and task.deadline_at <= task.now:
        return Status.FINISHED, EndReason.MAX_TIME
    return None
