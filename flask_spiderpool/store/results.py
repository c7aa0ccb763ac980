"""Readers for people and exports, on the session that is given. Lists go by key, never by offset."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.orm import Session

from flask_spiderpool.errors import UnknownTask
from flask_spiderpool.models import Document, History, Page, Request, Slot, Task
from flask_spiderpool.terms import RequestState

AnySession = Session | Any


@dataclass(frozen=True, slots=True)
class DocumentRow:
    """One document that a task found, as exports write it."""

    request_id: int
    document_id: int
    url: str  #: final URL, after redirects
    status_code: int
    title: str | None
    text: str | None
    markdown: str | None
    metadata: dict[str, Any]
    content_type: str | None
    body_bytes: int
    depth: int
    fetched_at: datetime
    requested_url: str
    found_on: int | None  #: request whose page named it first


@dataclass(frozen=True, slots=True)
class TaskDetail:
    """A task with its queue."""

    task: Task
    queued: int
    leased: int


def list_tasks(
    session: AnySession,
    *,
    status: str | None = None,
    spider: str | None = None,
    owner: str | None = None,
    before: tuple[datetime, UUID] | None = None,
    limit: int = 50,
) -> Sequence[Task]:
    """Return tasks, newest first; ``before`` is ``(created_at, id)`` of the last one seen."""
    query = sa.select(Task).order_by(Task.created_at.desc(), Task.id.desc()).limit(limit)
    if status is not None:
        query = query.where(Task.status == status)
    if spider is not None:
        query = query.where(Task.spider == spider)
    if owner is not None:
        query = query.where(Task.owner == owner)
    if before is not None:
        created_at, task_id = before
        query = query.where(
            sa.or_(Task.created_at < created_at, sa.and_(Task.created_at == created_at, Task.id < task_id))
        )
    found: Sequence[Task] = session.scalars(query).all()
    return found


def task_detail(session: AnySession, task_id: UUID) -> TaskDetail:
    """Return a task and its queue, in one snapshot. Raises :class:`~flask_spiderpool.errors.UnknownTask`."""
    leased = (
        sa.select(sa.func.coalesce(sa.func.sum(Slot.leased), 0))
        .where(Slot.task_id == Task.id)
        .scalar_subquery()
    )
    row = session.execute(
        sa.select(Task, leased).where(Task.id == task_id), execution_options={"populate_existing": True}
    ).one_or_none()
    if row is None:
        raise UnknownTask(f"no task has the id {task_id}")
    task, held = row[0], int(row[1])
    return TaskDetail(task, task.discovered - task.done - task.failed - task.skipped - held, held)


def history(session: AnySession, task_id: UUID) -> Sequence[History]:
    """Return a task's changes of status, oldest first."""
    found: Sequence[History] = session.scalars(
        sa.select(History).where(History.task_id == task_id).order_by(History.id)
    ).all()
    return found


def iter_documents(
    session: AnySession, task_id: UUID, *, after: int = 0, at_once: int = 200
) -> Iterator[DocumentRow]:
    """Yield each document that the task found once, in the order of its requests; memory stays flat.

    ``after`` is the ``request_id`` of the last row seen. The version is the one that this task stored; for a
    document that it found unchanged, the current one. Between two reads no transaction needs to stay open.
    """
    seen: set[int] = set()
    own = (
        sa.select(sa.func.max(Page.id))
        .where(Page.document_id == Document.id, Page.task_id == task_id)
        .correlate(Document)
        .scalar_subquery()
    )
    query = (
        sa.select(
            Request.id,
            Document.id,
            Page.url,
            Page.status_code,
            Page.title,
            Page.text,
            Page.markdown,
            Page.meta,
            Page.content_type,
            Page.body_bytes,
            Request.depth,
            Page.fetched_at,
            Request.url,
            Request.found_on,
        )
        .join(Document, Document.id == Request.document_id)
        .join(Page, Page.id == sa.func.coalesce(own, Document.page_id))
        .where(Request.task_id == task_id, Request.state == int(RequestState.DONE))
        .order_by(Request.id)
        .limit(at_once)
    )
    while True:
        rows = session.execute(query.where(Request.id > after)).all()
        for row in rows:
            if row[1] not in seen:
                seen.add(row[1])
                yield DocumentRow(*row)
        if len(rows) < at_once:
            return
        after = rows[-1][0]
