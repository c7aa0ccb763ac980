"""The verbs, as rows: on the session that is given (the host's) and nothing else.

They lock slots before the task, write rows, ``desired`` and history, and never say ``paused`` or ``stopped``:
that is :meth:`Store.verdict <flask_spiderpool.store.Store.verdict>`, after the commit. They flush and do not
commit; the messages they return are published after the outermost commit, and not at all after a rollback.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

import sqlalchemy as sa
from sqlalchemy.orm import Session

from flask_spiderpool.config import Settings
from flask_spiderpool.crawl.request import NewRequest, Ticket
from flask_spiderpool.errors import UnknownTask, VerbConflict
from flask_spiderpool.models import Task
from flask_spiderpool.store import dispatch, lanes, requests
from flask_spiderpool.store.history import write_history
from flask_spiderpool.store.slots import Message, rest
from flask_spiderpool.store.sql import Statement, Tx, epoch_s
from flask_spiderpool.terms import VERB_TABLE, Desired, Effect, Status, Verb

AnySession = Session | Any  #: a Session, or a scoped_session such as the host's ``db.session``

_NOW = Statement("SELECT @now")
_INSERT_SLOT = Statement(
    """
    INSERT INTO spiderpool_slot (task_id, n, epoch, state, sends, leased, spared)
    VALUES (:task, :n, 0, 'idle', 0, 0, FALSE)
    """
)
# On SQLite a write takes the lock that FOR UPDATE stands for; a read first would make the transaction
# fail at its first write when another process has written in between.
_TOUCH_SLOTS = Statement("", sqlite="UPDATE spiderpool_slot SET n = n WHERE task_id = :task")
_LOCK_SLOTS = Statement("SELECT n, state FROM spiderpool_slot WHERE task_id = :task ORDER BY n FOR UPDATE")
_SEND = Statement(
    """
    UPDATE spiderpool_slot
    SET state = 'sent', epoch = epoch + 1, until = @now + :resend_s, due_at = NULL, sends = 0
    WHERE task_id = :task AND n = :n RETURNING epoch
    """
)
_DUE = Statement(
    "UPDATE spiderpool_slot SET state = 'due', due_at = @now, until = NULL WHERE task_id = :task AND n = :n"
)
# What the task was before the pause that is taken back, and when it was asked.
_BEFORE_PAUSE = Statement(
    """
    SELECT from_status, at FROM spiderpool_history WHERE task_id = :task AND to_status = 'pausing'
    ORDER BY id DESC LIMIT 1
    """
)
_REQUEUE_FAILED = Statement(
    """
    UPDATE spiderpool_request
    SET state = 0, attempts = 0, deaths = 0, ready_at = NULL, reason = NULL, message = NULL,
        status_code = NULL, settled_at = NULL, slot = NULL, epoch = NULL
    WHERE id IN (
        SELECT id FROM spiderpool_request WHERE task_id = :task AND state = 4 ORDER BY id FOR UPDATE
    )
    RETURNING host_id, is_seed
    """
)


def create_task(
    session: AnySession,
    *,
    spider: str,
    options: dict[str, Any],
    seeds: Sequence[NewRequest],
    queue: str,
    priority: int = 0,
    max_parallel: int = 1,
    max_pages: int | None = None,
    max_time_s: float | None = None,
    owner: str | None = None,
    by: str | None = None,
    note: str | None = None,
    settings: Settings | None = None,
) -> tuple[Task, list[Message]]:
    """Write a task with its slots and seeds; return it and the message to publish after the commit.

    ``max_time_s`` counts from the first claim. Seeds with the same fingerprint are one.
    """
    settings = settings or Settings()
    session.flush()
    tx, task_id = _tx(session), uuid4()
    if not tx.postgres:
        tx.run(_TOUCH_SLOTS, task=task_id)
    now = _now(tx)
    task = Task(
        id=task_id,
        spider=spider,
        options=options,
        status=Status.PENDING.value,
        desired=Desired.RUN.value,
        priority=priority,
        queue=queue,
        max_parallel=max_parallel,
        max_pages=max_pages,
        max_time_s=max_time_s,
        owner=owner,
        created_by=by,
        created_at=datetime.fromtimestamp(now, UTC),
    )
    session.add(task)
    session.flush()
    tx = _tx(session)
    for n in range(max_parallel):
        tx.run(_INSERT_SLOT, task=task_id, n=n)
    counts = requests.insert(tx, task_id, [requests.Found(seed, None) for seed in seeds], seed=True)
    lanes.add(tx, task_id, counts, now)
    task.discovered = task.seeds = sum(counts.values())
    write_history(tx, task_id, None, Status.PENDING, now, by=by, note=note)
    messages = _send(tx, settings, task, 0)
    session.flush()
    return task, messages


def change(
    session: AnySession,
    task_id: UUID,
    verb: Verb,
    *,
    by: str | None = None,
    reason: str | None = None,
    settings: Settings | None = None,
) -> tuple[Task, Effect, list[Message]]:
    """Pause, resume or stop a task by :data:`~flask_spiderpool.terms.VERB_TABLE`.

    ``reason`` is a person's own words, kept in the history. Raises
    :class:`~flask_spiderpool.errors.UnknownTask` and :class:`~flask_spiderpool.errors.VerbConflict`.
    """
    if verb not in (Verb.PAUSE, Verb.RESUME, Verb.STOP):
        raise ValueError(f"{verb} is not changed by this function; use create_task or retry")
    tx, slots, task, effect = _lock(session, task_id, verb)
    if effect is Effect.UNCHANGED:
        return task, effect, []
    before = task.status
    messages: list[Message] = []
    if verb is Verb.RESUME:
        task.desired = Desired.RUN.value
        _take_back_pause(tx, task)
        messages = _wake(tx, settings or Settings(), task, slots)
    else:
        pause = verb is Verb.PAUSE
        task.desired = (Desired.PAUSE if pause else Desired.STOP).value
        task.status = (Status.PAUSING if pause else Status.STOPPING).value
        for n, state in slots:
            if state in ("due", "sent"):
                rest(tx, task_id, n)
    write_history(tx, task_id, before, task.status, _now(tx), reason=verb, by=by, note=reason)
    session.flush()
    return task, effect, messages


def retry(
    session: AnySession,
    task_id: UUID,
    *,
    by: str | None = None,
    max_pages: int | None = None,
    reason: str | None = None,
    settings: Settings | None = None,
) -> tuple[Task, Effect, list[Message]]:
    """Let an ended task go on: failed requests are queued again with no attempts and no deaths, what was still
    queued goes on, skipped ones stay. ``max_pages`` sets a new limit; a time limit begins anew. Raises
    :class:`~flask_spiderpool.errors.VerbConflict` where the limit that would hold is reached already.
    """
    tx, slots, task, effect = _lock(session, task_id, Verb.RETRY)
    limit = task.max_pages if max_pages is None else max_pages
    if limit is not None and task.done >= limit:
        # It would end again at once, with nothing done.
        raise VerbConflict(
            f"the limit of {limit} page{'s' * (limit != 1)} is reached (done: {task.done}); name a larger one (max_pages)",
            verb=str(Verb.RETRY),
            status=task.status,
        )
    before, now = task.status, _now(tx)
    rows = tx.all(_REQUEUE_FAILED, task=task_id)
    counts: dict[int, int] = {}
    for host, _ in rows:
        counts[host] = counts.get(host, 0) + 1
    lanes.add(tx, task_id, counts, now)
    task.failed -= len(rows)
    task.seeds_failed -= sum(bool(is_seed) for _, is_seed in rows)
    task.status, task.desired = Status.PENDING.value, Desired.RUN.value
    task.ended_at = task.end_reason = task.deadline_at = None
    if max_pages is not None:
        task.max_pages = max_pages
    write_history(tx, task_id, before, Status.PENDING, now, reason=Verb.RETRY, by=by, note=reason)
    messages = _wake(tx, settings or Settings(), task, slots)
    session.flush()
    return task, effect, messages


def _lock(session: AnySession, task_id: UUID, verb: Verb) -> tuple[Tx, list[tuple[Any, ...]], Task, Effect]:
    """Lock the slots, then the task, and look the verb up. Raises for an unknown task and for a conflict."""
    session.flush()
    tx = _tx(session)
    if not tx.postgres:
        tx.run(_TOUCH_SLOTS, task=task_id)
    slots = tx.all(_LOCK_SLOTS, task=task_id)
    found = session.execute(
        sa.select(Task).where(Task.id == task_id).with_for_update(),
        execution_options={"populate_existing": True},
    ).scalar_one_or_none()
    if found is None:
        raise UnknownTask(f"no task has the id {task_id}")
    task: Task = found
    effect = VERB_TABLE[verb][Status(task.status)]
    if effect is Effect.CONFLICT:
        raise VerbConflict(
            f"a task that is {task.status} cannot be {_DONE_TO[verb]}", verb=str(verb), status=task.status
        )
    return tx, slots, task, effect


_DONE_TO = {Verb.PAUSE: "paused", Verb.RESUME: "resumed", Verb.STOP: "stopped", Verb.RETRY: "retried"}


def _take_back_pause(tx: Tx, task: Task) -> None:
    """Make a task what it was before its pause; the time that it stood still is not of its time limit."""
    row = tx.one(_BEFORE_PAUSE, task=task.id)
    before, asked_at = row if row is not None else (Status.RUNNING, None)
    # One that was paused before it was claimed has its time limit set by its claim.
    task.status = Status(before).value
    if task.deadline_at is not None and asked_at is not None:
        task.deadline_at += max(0.0, _now(tx) - epoch_s(asked_at))


def _wake(tx: Tx, settings: Settings, task: Task, slots: list[tuple[Any, ...]]) -> list[Message]:
    """Send a slot of the task; one that is running goes on by itself, one that is sent will be claimed."""
    if any(state in ("running", "sent") for _, state in slots):
        return []
    return _send(tx, settings, task, min(n for n, _ in slots)) if slots else []


def _send(tx: Tx, settings: Settings, task: Task, n: int) -> list[Message]:
    """Make a slot ``sent``, or ``due`` when the cluster has no room: then the keeper sends it in its turn."""
    if dispatch.room(tx, settings) <= 0:
        tx.run(_DUE, task=task.id, n=n)
        return []
    row = tx.one(_SEND, task=task.id, n=n, resend_s=settings.resend_s)
    return [Message(Ticket(task.id, n, row[0] if row else 0), task.queue, task.priority)]


def _tx(session: AnySession) -> Tx:
    return Tx(session.connection(bind_arguments={"mapper": sa.inspect(Task)}))


def _now(tx: Tx) -> float:
    return float(tx.all(_NOW)[0][0])
