"""A task that cannot run at all fails: its spider is missing or broken, or its runner is."""

from __future__ import annotations

from uuid import UUID

from flask_spiderpool.crawl.request import Ticket
from flask_spiderpool.store.fence import hold
from flask_spiderpool.store.leases import return_all
from flask_spiderpool.store.slots import rest
from flask_spiderpool.store.sql import Statement, Tx
from flask_spiderpool.store.verdict import say
from flask_spiderpool.terms import ENDED, EndReason, Status

_LOCK_SLOTS = Statement(
    "SELECT n, state, @now FROM spiderpool_slot WHERE task_id = :task ORDER BY n FOR UPDATE"
)
_LOCK_TASK = Statement("SELECT status, @now FROM spiderpool_task WHERE id = :task FOR UPDATE")


def fail_task(tx: Tx, which: Ticket | UUID, reason: EndReason, message: str | None) -> None:
    """Fail a task; an ended one stays as it is. Every slot's leases are returned and its epoch is over.

    With a ticket it is fenced: :class:`~flask_spiderpool.errors.Fenced` when the slot is another's now.
    """
    task_id = which.task_id if isinstance(which, Ticket) else which
    # All slots in their order before the fence, which is one of them: locks are taken in one order.
    slots = tx.all(_LOCK_SLOTS, task=task_id)
    if isinstance(which, Ticket):
        hold(tx, which)
    task = tx.one(_LOCK_TASK, task=task_id)
    if task is None or task[0] in ENDED:
        return
    for n, _, now in slots:
        return_all(tx, task_id, n, now)
        rest(tx, task_id, n)
    say(tx, task_id, task[0], Status.FAILED, task[1], reason=reason, note=message)
