"""The slot: claimed, handed on, woken (PROTOCOL, *The slot is outbox, ticket, lease and fence in one row*)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple
from uuid import UUID

from flask_spiderpool.crawl.request import Ticket
from flask_spiderpool.store.context import Context
from flask_spiderpool.store.fence import hold
from flask_spiderpool.store.history import write_history
from flask_spiderpool.store.leases import return_all
from flask_spiderpool.store.sql import Statement, Tx, json_value
from flask_spiderpool.terms import ENDED, Desired, Status


class Message(NamedTuple):
    """What is published as ``spiderpool.slice(task_id, n, epoch)``; smaller ``priority`` goes first."""

    ticket: Ticket
    queue: str
    priority: int


@dataclass(frozen=True, slots=True)
class Claim:
    """A claimed slot: the ticket of its new epoch, and what the slice needs to know of the task."""

    ticket: Ticket
    spider: str
    options: dict[str, Any]
    desired: str
    lease_s: float
    max_pages: int | None
    deadline_in_s: float | None  #: seconds left of max_time_s; None: no limit
    owner: str | None


_CLAIM = Statement(
    """
    UPDATE spiderpool_slot
    SET state = 'running', epoch = epoch + 1, until = @now + :lease_s, sends = 0, worker = :worker,
        due_at = NULL, spared = FALSE
    WHERE task_id = :task AND n = :n AND epoch = :epoch AND state = 'sent'
    RETURNING epoch, @now
    """
)
_TASK = Statement(
    """
    SELECT desired, status, spider, options, max_pages, deadline_at, owner, max_time_s,
           discovered - done - failed - skipped
    FROM spiderpool_task WHERE id = :task FOR KEY SHARE
    """
)
_HELD_BY_ALL = Statement("SELECT COALESCE(sum(leased), 0)::bigint FROM spiderpool_slot WHERE task_id = :task")
_BEGIN = Statement(
    """
    UPDATE spiderpool_task
    SET status = 'running', started_at = COALESCE(started_at, :at), deadline_at = :now::float8 + max_time_s
    WHERE id = :task AND status = 'pending' AND desired = 'run'
    """
)
_REST = Statement(
    """
    UPDATE spiderpool_slot
    SET state = 'idle', due_at = NULL, until = NULL, sends = 0, worker = NULL
    WHERE task_id = :task AND n = :n
    """
)
_DUE = Statement(
    """
    UPDATE spiderpool_slot
    SET state = 'due', due_at = :due_at, until = NULL, sends = 0, worker = NULL
    WHERE task_id = :task AND n = :n
    """
)
_DECLINE = Statement(
    """
    UPDATE spiderpool_slot
    SET state = 'due', due_at = @now, until = NULL
    WHERE task_id = :task AND n = :n AND epoch = :epoch AND state = 'sent'
    """
)
_NEXT = Statement(
    """
    SELECT (SELECT min(ready_at) FROM spiderpool_lane WHERE task_id = :task AND has_work),
           (SELECT min(ready_at) FROM spiderpool_request WHERE task_id = :task AND state = 2)
    """
)
_READY = Statement(
    """
    SELECT COALESCE(sum(queued), 0)::bigint FROM (
        SELECT queued FROM spiderpool_lane WHERE task_id = :task AND has_work AND ready_at <= :now LIMIT 1000
    ) AS l
    """
)
_AWAKE = Statement("SELECT count(*) FROM spiderpool_slot WHERE task_id = :task AND state <> 'idle'")
_IDLE = Statement(
    """
    SELECT n FROM spiderpool_slot WHERE task_id = :task AND state = 'idle'
    ORDER BY n LIMIT :k FOR UPDATE SKIP LOCKED
    """
)
_WAKE = Statement(
    "UPDATE spiderpool_slot SET state = 'due', due_at = :now WHERE task_id = :task AND n = :n AND state = 'idle'"
)


def claim(tx: Tx, context: Context, ticket: Ticket, worker: str) -> Claim | None:
    """Begin the slice that a message names; None: the message is old or doubled, or there is nothing to do.

    A claim that finds the task not wanted, ended, or with nothing queued lays the slot to rest.
    """
    row = tx.one(
        _CLAIM,
        task=ticket.task_id,
        n=ticket.n,
        epoch=ticket.epoch,
        lease_s=context.settings.lease_s,
        worker=worker[:200],
    )
    if row is None:
        return None
    mine, now = ticket._replace(epoch=row[0]), row[1]
    task = tx.one(_TASK, task=ticket.task_id)
    options = json_value(task[3]) or {} if task else {}
    idle = is_sliced(options) and task is not None and not _has_work(tx, ticket, task[8])
    if task is None or task[0] != Desired.RUN or task[1] in ENDED or idle:
        rest(tx, ticket.task_id, ticket.n)
        return None
    deadline_at = task[5]
    if task[1] == Status.PENDING and tx.run(_BEGIN, task=ticket.task_id, now=now, at=tx.moment(now)):
        write_history(tx, ticket.task_id, Status.PENDING, Status.RUNNING, now)
        deadline_at = None if task[7] is None else now + task[7]
    return Claim(
        ticket=mine,
        spider=task[2],
        options=options,
        desired=task[0],
        lease_s=context.settings.lease_s,
        max_pages=task[4],
        deadline_in_s=None if deadline_at is None else max(0.0, deadline_at - now),
        owner=task[6],
    )


def decline(tx: Tx, ticket: Ticket) -> None:
    """Make the slot of a message due again at once: the worker that took the message will not claim it."""
    tx.run(_DECLINE, task=ticket.task_id, n=ticket.n, epoch=ticket.epoch)


def rest(tx: Tx, task_id: UUID, n: int) -> None:
    """Lay a slot to rest: nothing is due, sent or running. Its leases are the caller's business."""
    tx.run(_REST, task=task_id, n=n)


def is_sliced(options: Mapping[str, Any]) -> bool:
    """Tell whether a task is worked off in slices; a runner of another kind finds its requests as it goes."""
    return bool(options.get("runner", "slice") == "slice")


def _has_work(tx: Tx, ticket: Ticket, unsettled: int) -> bool:
    """Something is queued or waiting: what is not settled, less what all slots hold."""
    row = tx.one(_HELD_BY_ALL, task=ticket.task_id)
    return unsettled > int(row[0] if row else 0)


def hand_on(tx: Tx, context: Context, ticket: Ticket, next_in_s: float | None) -> None:
    """End a slice in order: leases returned without a death, the slot due when there is more, else at rest."""
    held = hold(tx, ticket)
    context.cursors.forget(ticket)
    task = tx.one(_TASK, task=ticket.task_id)
    return_all(tx, ticket.task_id, ticket.n, held.now)
    due_at = None
    if task is not None and task[0] == Desired.RUN and task[1] not in ENDED:
        due_at = next_due(tx, ticket.task_id)
    if due_at is None:
        rest(tx, ticket.task_id, ticket.n)
        return
    due_at = max(due_at, held.now + (next_in_s or 0.0))
    tx.run(_DUE, task=ticket.task_id, n=ticket.n, due_at=due_at)
    wake_siblings(tx, context, ticket.task_id, held.now)


def next_due(tx: Tx, task_id: UUID) -> float | None:
    """Return when something of the task is ready at the earliest (epoch seconds); None: nothing to do."""
    row = tx.one(_NEXT, task=task_id)
    times = [at for at in row or () if at is not None]
    return min(times) if times else None


def wake_siblings(tx: Tx, context: Context, task_id: UUID, now: float) -> None:
    """Make idle slots of the task due when more than a batch is ready for each slot that is awake.

    It waits for nobody: a sibling that is just being laid to rest is skipped, and woken by the next settle.
    """
    row = tx.one(_READY, task=task_id, now=now)
    wanted = -(-(row[0] if row else 0) // context.settings.settle_pages)
    if wanted < 2:
        return
    awake = tx.one(_AWAKE, task=task_id)
    k = wanted - (awake[0] if awake else 0)
    if k > 0:
        for (n,) in tx.all(_IDLE, task=task_id, k=k):
            tx.run(_WAKE, task=task_id, n=n, now=now)
