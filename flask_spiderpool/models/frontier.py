"""Task, slot, lane, request: the frontier (PROTOCOL, Tables)."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID, uuid4

import sqlalchemy as sa
from sqlalchemy.orm import Mapped, mapped_column

from flask_spiderpool.models.base import PREFIX, Base, BigId, Epoch, Json, NullableJson, UtcDateTime, storage
from flask_spiderpool.terms import Desired, RequestState, SlotState, Status


class Task(Base):
    """One run of a spider. ``discovered = queued + leased + done + failed + skipped`` at every moment."""

    __tablename__ = f"{PREFIX}task"

    id: Mapped[UUID] = mapped_column(sa.Uuid, primary_key=True, default=uuid4)
    spider: Mapped[str] = mapped_column(sa.String(200))
    options: Mapped[dict[str, Any]] = mapped_column(
        Json, default=dict
    )  #: SpiderOptions as JSON, start parameters in
    status: Mapped[str] = mapped_column(
        sa.String(10), default=Status.PENDING.value
    )  #: terms.Status; store assigns it
    desired: Mapped[str] = mapped_column(sa.String(5), default=Desired.RUN.value)  #: terms.Desired
    priority: Mapped[int] = mapped_column(sa.Integer, default=0)  #: smaller is sent first
    queue: Mapped[str] = mapped_column(sa.String(100))  #: Celery queue of its slices
    max_parallel: Mapped[int] = mapped_column(sa.Integer, default=1)  #: number of its slots
    max_pages: Mapped[int | None] = mapped_column(sa.BigInteger)  #: counts ``done``
    max_time_s: Mapped[float | None] = mapped_column(sa.Double)  #: longest run, counted from the first claim
    deadline_at: Mapped[float | None] = mapped_column(Epoch)  #: max_time_s after the first claim
    discovered: Mapped[int] = mapped_column(sa.BigInteger, default=0)
    done: Mapped[int] = mapped_column(sa.BigInteger, default=0)
    failed: Mapped[int] = mapped_column(sa.BigInteger, default=0)
    skipped: Mapped[int] = mapped_column(sa.BigInteger, default=0)
    pages: Mapped[int] = mapped_column(sa.BigInteger, default=0)  #: new page versions stored
    unchanged: Mapped[int] = mapped_column(sa.BigInteger, default=0)  #: documents found as they were
    items: Mapped[int] = mapped_column(sa.BigInteger, default=0)
    retries: Mapped[int] = mapped_column(sa.BigInteger, default=0)
    wire_bytes: Mapped[int] = mapped_column(sa.BigInteger, default=0)
    seeds: Mapped[int] = mapped_column(sa.BigInteger, default=0)
    seeds_failed: Mapped[int] = mapped_column(sa.BigInteger, default=0)
    owner: Mapped[str | None] = mapped_column(sa.String(200))
    created_by: Mapped[str | None] = mapped_column(sa.String(200))
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
    started_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    ended_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    end_reason: Mapped[str | None] = mapped_column(sa.String(40))

    __table_args__ = (
        sa.Index(f"ix_{PREFIX}task_status_created_at", "status", "created_at"),
        sa.Index(f"ix_{PREFIX}task_spider_created_at", "spider", "created_at"),
        # Counters change with every settle: room on the page makes those updates HOT.
        storage({"fillfactor": "50"}),
    )


class History(Base):
    """One change of a task's status: when, from, to, why, by whom."""

    __tablename__ = f"{PREFIX}history"

    id: Mapped[int] = mapped_column(BigId, primary_key=True)
    task_id: Mapped[UUID] = mapped_column(sa.ForeignKey(f"{PREFIX}task.id", ondelete="CASCADE"))
    at: Mapped[datetime] = mapped_column(UtcDateTime)
    from_status: Mapped[str | None] = mapped_column(sa.String(10))
    to_status: Mapped[str] = mapped_column(sa.String(10))
    reason: Mapped[str | None] = mapped_column(sa.String(40))
    by: Mapped[str | None] = mapped_column(sa.String(200))
    note: Mapped[str | None] = mapped_column(sa.Text)

    __table_args__ = (sa.Index(f"ix_{PREFIX}history_task_id_id", "task_id", "id"),)


class Slot(Base):
    """A task's ticket to run one slice: outbox, ticket, lease and fence in one row."""

    __tablename__ = f"{PREFIX}slot"

    task_id: Mapped[UUID] = mapped_column(
        sa.ForeignKey(f"{PREFIX}task.id", ondelete="CASCADE"), primary_key=True
    )
    n: Mapped[int] = mapped_column(sa.Integer, primary_key=True, autoincrement=False)
    epoch: Mapped[int] = mapped_column(sa.BigInteger, default=0)
    state: Mapped[str] = mapped_column(sa.String(7), default=SlotState.IDLE.value)
    due_at: Mapped[float | None] = mapped_column(Epoch)
    until: Mapped[float | None] = mapped_column(Epoch)
    sends: Mapped[int] = mapped_column(sa.Integer, default=0)  #: re-sends since it last ran
    leased: Mapped[int] = mapped_column(sa.Integer, default=0)
    worker: Mapped[str | None] = mapped_column(sa.String(200))
    spared: Mapped[bool] = mapped_column(
        sa.Boolean, default=False
    )  #: its worker's death has been laid on a suspect of another slot: expiring, it counts none

    __table_args__ = (
        sa.Index(
            f"ix_{PREFIX}slot_due_at",
            "due_at",
            postgresql_where=sa.text("state = 'due'"),
            sqlite_where=sa.text("state = 'due'"),
        ),
        sa.Index(
            f"ix_{PREFIX}slot_until",
            "until",
            postgresql_where=sa.text("state IN ('sent', 'running')"),
            sqlite_where=sa.text("state IN ('sent', 'running')"),
        ),
        storage({"fillfactor": "50", "autovacuum_vacuum_scale_factor": "0.01"}),
    )


class Lane(Base):
    """A task's queue for one host."""

    __tablename__ = f"{PREFIX}lane"

    task_id: Mapped[UUID] = mapped_column(
        sa.ForeignKey(f"{PREFIX}task.id", ondelete="CASCADE"), primary_key=True
    )
    host_id: Mapped[int] = mapped_column(
        sa.BigInteger, primary_key=True, autoincrement=False
    )  #: of ``host`` or ``host:port``: 63 bits of its BLAKE2b
    ready_at: Mapped[float] = mapped_column(Epoch, default=0.0)
    queued: Mapped[int] = mapped_column(sa.BigInteger, default=0)  #: rows in state QUEUED (not WAITING)
    has_work: Mapped[bool] = mapped_column(sa.Boolean, default=False)  #: queued > 0, kept by arithmetic

    __table_args__ = (
        sa.Index(
            f"ix_{PREFIX}lane_ready",
            "task_id",
            "ready_at",
            postgresql_where=sa.text("has_work"),
            sqlite_where=sa.text("has_work"),
        ),
        storage({"fillfactor": "70", "autovacuum_vacuum_scale_factor": "0.01"}),
    )


class Request(Base):
    """One URL of a task in its frontier, with its outcome."""

    __tablename__ = f"{PREFIX}request"

    id: Mapped[int] = mapped_column(BigId, primary_key=True)
    task_id: Mapped[UUID] = mapped_column(sa.ForeignKey(f"{PREFIX}task.id", ondelete="CASCADE"))
    host_id: Mapped[int] = mapped_column(sa.BigInteger)  #: as in :class:`Lane`
    fingerprint: Mapped[bytes] = mapped_column(sa.LargeBinary(16))
    url: Mapped[str] = mapped_column(sa.Text)
    depth: Mapped[int] = mapped_column(sa.Integer, default=0)
    priority: Mapped[int] = mapped_column(sa.Integer, default=0)
    state: Mapped[int] = mapped_column(sa.SmallInteger, default=RequestState.QUEUED.value)
    slot: Mapped[int | None] = mapped_column(sa.Integer)
    epoch: Mapped[int | None] = mapped_column(sa.BigInteger)
    attempts: Mapped[int] = mapped_column(sa.SmallInteger, default=0)
    deaths: Mapped[int] = mapped_column(sa.SmallInteger, default=0)
    ready_at: Mapped[float | None] = mapped_column(Epoch)
    is_seed: Mapped[bool] = mapped_column(sa.Boolean, default=False)
    payload: Mapped[dict[str, Any] | None] = mapped_column(NullableJson)
    found_on: Mapped[int | None] = mapped_column(
        sa.BigInteger
    )  #: id of the request whose page named it first
    document_id: Mapped[int | None] = mapped_column(sa.BigInteger)
    status_code: Mapped[int | None] = mapped_column(sa.SmallInteger)
    reason: Mapped[str | None] = mapped_column(sa.String(40))
    message: Mapped[str | None] = mapped_column(sa.Text)
    wire_bytes: Mapped[int | None] = mapped_column(sa.BigInteger)
    elapsed_ms: Mapped[int | None] = mapped_column(sa.Integer)
    settled_at: Mapped[float | None] = mapped_column(Epoch)

    __table_args__ = (
        sa.UniqueConstraint("task_id", "fingerprint"),
        sa.Index(
            f"ix_{PREFIX}request_queued",
            "task_id",
            "host_id",
            "priority",
            "id",
            postgresql_where=sa.text("state = 0"),
            sqlite_where=sa.text("state = 0"),
        ),
        sa.Index(
            f"ix_{PREFIX}request_leased",
            "task_id",
            "slot",
            "epoch",
            postgresql_where=sa.text("state = 1"),
            sqlite_where=sa.text("state = 1"),
        ),
        sa.Index(
            f"ix_{PREFIX}request_waiting",
            "ready_at",
            postgresql_where=sa.text("state = 2"),
            sqlite_where=sa.text("state = 2"),
        ),
        # A lease asks for its own task's ripe ones and for the least ``ready_at`` of the task.
        sa.Index(
            f"ix_{PREFIX}request_task_waiting",
            "task_id",
            "ready_at",
            postgresql_where=sa.text("state = 2"),
            sqlite_where=sa.text("state = 2"),
        ),
        sa.Index(
            f"ix_{PREFIX}request_suspect",
            "task_id",
            "deaths",
            "id",
            postgresql_where=sa.text("state = 0 AND deaths > 0"),
            sqlite_where=sa.text("state = 0 AND deaths > 0"),
        ),
        # The queue's head is where rows die: vacuum early (PROTOCOL, Lease).
        storage({"autovacuum_vacuum_scale_factor": "0.02"}),
    )
