"""The keeper's pass: what nobody else will do. Every act is a compare-and-set on the row that it changes, so
two keepers at once do no harm; the election only saves work.
"""

from __future__ import annotations

import logging
from typing import Any
from uuid import UUID

from flask_spiderpool.config import Settings
from flask_spiderpool.crawl.request import Ticket
from flask_spiderpool.store import ripe
from flask_spiderpool.store.context import Context
from flask_spiderpool.store.dispatch import ALIVE_S
from flask_spiderpool.store.leases import return_all
from flask_spiderpool.store.slots import Message, rest
from flask_spiderpool.store.sql import Statement, Tx, task_uuid
from flask_spiderpool.terms import ENDED, Desired

log = logging.getLogger("spiderpool.keeper")

MOST = 500  #: acts of one kind in one pass
PRUNE_S = 60.0

_NOW = Statement("SELECT @now")
_ELECT = Statement(
    """
    INSERT INTO spiderpool_keeper AS k (id, holder, until, passed_at, clock_offset_s)
    VALUES (1, :holder, @now + :for_s, @now, 0)
    ON CONFLICT (id) DO UPDATE SET holder = excluded.holder, until = excluded.until, passed_at = excluded.passed_at
    WHERE k.holder IS NULL OR k.holder = excluded.holder OR k.until IS NULL OR k.until < @now
    RETURNING id
    """
)
_UNANSWERED = Statement(
    "SELECT task_id, n, epoch FROM spiderpool_slot WHERE state = 'sent' AND until < @now ORDER BY until LIMIT :limit"
)
_LONG = Statement(
    """
    SELECT (SELECT count(*) FROM spiderpool_slot WHERE state = 'sent')
         > GREATEST(:threads, (SELECT COALESCE(sum(threads), 0) FROM spiderpool_worker
                               WHERE seen_at > @now - :alive_s))
    """
)
_LOCK_SENT = Statement(
    """
    SELECT sends, @now FROM spiderpool_slot
    WHERE task_id = :task AND n = :n AND epoch = :epoch AND state = 'sent' AND until < @now
    FOR UPDATE SKIP LOCKED
    """
)
_TASK = Statement(
    "SELECT desired, status, queue, priority FROM spiderpool_task WHERE id = :task FOR KEY SHARE"
)
_RESEND = Statement(
    """
    UPDATE spiderpool_slot SET epoch = epoch + 1, sends = sends + 1, until = :until
    WHERE task_id = :task AND n = :n RETURNING epoch
    """
)
_RIPE = Statement(
    """
    SELECT DISTINCT w.task_id FROM (
        SELECT task_id FROM spiderpool_request WHERE state = 2 AND ready_at <= @now ORDER BY ready_at LIMIT 2000
    ) AS w JOIN spiderpool_task t ON t.id = w.task_id
    WHERE t.desired = 'run' AND t.status IN ('pending', 'running')
    ORDER BY w.task_id
    """
)
# The keeper stands in no line: what another transaction holds is looked at in the next pass. A host's open
# transaction with one task's verb in it would hold up all tasks.
_LOCK_SLOTS = Statement(
    """
    SELECT n, state, due_at, @now, (SELECT count(*) FROM spiderpool_slot WHERE task_id = :task)
    FROM spiderpool_slot WHERE task_id = :task ORDER BY n FOR UPDATE SKIP LOCKED
    """
)
_DUE = Statement("UPDATE spiderpool_slot SET state = 'due', due_at = :now WHERE task_id = :task AND n = :n")
_TO_JUDGE = Statement(
    """
    SELECT id FROM spiderpool_task
    WHERE status IN ('pausing', 'stopping')
       OR (status IN ('pending', 'running') AND (
              discovered = done + failed + skipped OR done >= max_pages OR deadline_at <= @now))
    ORDER BY created_at LIMIT :limit
    """
)
_UNWANTED = Statement(
    """
    SELECT s.task_id, s.n FROM spiderpool_slot s JOIN spiderpool_task t ON t.id = s.task_id
    WHERE s.state = 'due' AND NOT (t.desired = 'run' AND t.status IN ('pending', 'running'))
    LIMIT :limit
    """
)
_LOCK_DUE = Statement(
    "SELECT 1 FROM spiderpool_slot WHERE task_id = :task AND n = :n AND state = 'due' FOR UPDATE SKIP LOCKED"
)
_STRANDED = Statement(
    """
    SELECT t.id FROM spiderpool_task t
    WHERE t.desired = 'run' AND t.status IN ('pending', 'running')
      AND t.discovered > t.done + t.failed + t.skipped
      AND NOT EXISTS (SELECT 1 FROM spiderpool_slot s WHERE s.task_id = t.id AND s.state <> 'idle')
    LIMIT :limit
    """
)
_PRUNE = (
    Statement(
        "DELETE FROM spiderpool_bus_message WHERE at < @now - 300 AND id < (SELECT max(id) FROM spiderpool_bus_message)"
    ),
    Statement("DELETE FROM spiderpool_worker WHERE seen_at < @now - 3600"),
    Statement("DELETE FROM spiderpool_counter WHERE minute < CAST(@now AS BIGINT) / 60 - 43200"),
)


def elect(tx: Tx, holder: str, settings: Settings) -> bool:
    """Take or keep the keeper's office for three passes; False: another keeps house."""
    for_s = max(3 * settings.keeper_s, 1.0)
    return tx.one(_ELECT, holder=holder[:200], for_s=for_s) is not None


def unanswered(tx: Tx) -> list[tuple[UUID, int, int]]:
    """Return the sent slots whose message nobody has claimed in time."""
    return [(task_uuid(task), n, epoch) for task, n, epoch in tx.all(_UNANSWERED, limit=MOST)]


def queue_is_long(tx: Tx, settings: Settings) -> bool:
    """More is sent than can be running: a message waits for its turn, it is not lost."""
    row = tx.one(_LONG, threads=settings.worker_threads, alive_s=ALIVE_S)
    return bool(row and row[0])


def resend(tx: Tx, settings: Settings, slot: tuple[UUID, int, int], *, long: bool) -> Message | None:
    """Send a slot's message again with a new epoch, or lay the slot to rest when its task is not wanted.

    The pause doubles up to ``resend_max_s`` while the queue is long; else a backlog would feed itself.
    """
    task_id, n, epoch = slot
    held = tx.one(_LOCK_SENT, task=task_id, n=n, epoch=epoch)
    if held is None:
        return None
    sends, now = held
    task = tx.one(_TASK, task=task_id)
    return_all(tx, task_id, n, now)
    if task is None or task[0] != Desired.RUN or task[1] in ENDED:
        rest(tx, task_id, n)
        return None
    pause_s = settings.resend_s
    if long:
        pause_s = min(settings.resend_max_s, settings.resend_s * 2.0 ** min(sends + 1, 30))
    row: Any = tx.one(_RESEND, task=task_id, n=n, until=now + pause_s)
    return Message(Ticket(task_id, n, row[0]), task[2], task[3])


def ripe_tasks(tx: Tx) -> list[UUID]:
    """Return the wanted tasks that have a ripe retry."""
    return [task_uuid(row[0]) for row in tx.all(_RIPE)]


def promote(tx: Tx, task_id: UUID) -> None:
    """Queue a task's ripe retries, with a slot to take them in the same transaction."""
    if wake(tx, task_id):
        ripe.promote(tx, task_id, float(tx.all(_NOW)[0][0]))


def wake(tx: Tx, task_id: UUID) -> bool:
    """See to it that one of a wanted task's slots is running, sent, or due now.

    False: the task is not wanted, or another transaction is at one of its slots.
    """
    slots = tx.all(_LOCK_SLOTS, task=task_id)
    if not slots or len(slots) < slots[0][4]:
        return False
    task = tx.one(_TASK, task=task_id)
    if task is None or task[0] != Desired.RUN or task[1] in ENDED:
        return False
    now = slots[0][3]
    if any(
        state in ("running", "sent") or (state == "due" and due_at <= now) for _, state, due_at, *_ in slots
    ):
        return True
    n = next((n for n, state, *_ in slots if state == "due"), slots[0][0])
    tx.run(_DUE, task=task_id, n=n, now=now)
    return True


def to_judge(tx: Tx) -> list[UUID]:
    """Return the tasks whose verdict may be due."""
    return [task_uuid(row[0]) for row in tx.all(_TO_JUDGE, limit=MOST)]


def rest_unwanted(tx: Tx) -> None:
    """Lay the due slots of tasks that are not wanted to rest, each after a second look under its lock."""
    for task, n in tx.all(_UNWANTED, limit=MOST):
        task_id = task_uuid(task)
        if tx.one(_LOCK_DUE, task=task_id, n=n) is None:
            continue
        row = tx.one(_TASK, task=task_id)
        if row is None or row[0] != Desired.RUN or row[1] in ENDED:
            rest(tx, task_id, n)


def stranded(tx: Tx) -> list[UUID]:
    """Return wanted tasks with work and no slot awake: the protocol allows none, a damaged database may."""
    return [task_uuid(row[0]) for row in tx.all(_STRANDED, limit=MOST)]


def prune(tx: Tx, context: Context) -> None:
    """Delete old bus messages, beats and counters, once a minute."""
    now = float(tx.all(_NOW)[0][0])
    if now - context.pruned_at < PRUNE_S:
        return
    for statement in _PRUNE:
        tx.run(statement)
    context.pruned_at = now
