"""Document, page, item, log: what a crawl leaves behind."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.orm import Mapped, mapped_column

from flask_spiderpool.models.base import PREFIX, Base, BigId, Json, UtcDateTime


class Document(Base):
    """What stands at a URL for a spider, over all its tasks. One row a final canonical URL."""

    __tablename__ = f"{PREFIX}document"

    id: Mapped[int] = mapped_column(BigId, primary_key=True)
    spider: Mapped[str] = mapped_column(sa.String(200))
    fingerprint: Mapped[bytes] = mapped_column(sa.LargeBinary(16))
    url: Mapped[str] = mapped_column(sa.Text)
    page_id: Mapped[int | None] = mapped_column(sa.BigInteger)  #: current version
    content_hash: Mapped[bytes | None] = mapped_column(sa.LargeBinary(16))  #: of the current version
    first_seen: Mapped[datetime] = mapped_column(UtcDateTime)
    last_seen: Mapped[datetime] = mapped_column(UtcDateTime)
    last_changed: Mapped[datetime] = mapped_column(UtcDateTime)
    times_seen: Mapped[int] = mapped_column(sa.Integer, default=1)
    times_changed: Mapped[int] = mapped_column(sa.Integer, default=0)

    __table_args__ = (
        sa.UniqueConstraint("spider", "fingerprint"),
        sa.Index(f"ix_{PREFIX}document_last_seen", "last_seen"),
    )


class Page(Base):
    """One stored version of a document."""

    __tablename__ = f"{PREFIX}page"

    id: Mapped[int] = mapped_column(BigId, primary_key=True)
    document_id: Mapped[int] = mapped_column(sa.ForeignKey(f"{PREFIX}document.id", ondelete="CASCADE"))
    task_id: Mapped[UUID] = mapped_column(sa.ForeignKey(f"{PREFIX}task.id", ondelete="CASCADE"))
    request_id: Mapped[int] = mapped_column(sa.BigInteger)
    url: Mapped[str] = mapped_column(sa.Text)
    status_code: Mapped[int] = mapped_column(sa.SmallInteger)
    content_type: Mapped[str | None] = mapped_column(sa.String(200))
    title: Mapped[str | None] = mapped_column(sa.Text)
    text: Mapped[str | None] = mapped_column(sa.Text)
    markdown: Mapped[str | None] = mapped_column(sa.Text)
    meta: Mapped[dict[str, Any]] = mapped_column(Json, default=dict)
    content_hash: Mapped[bytes] = mapped_column(sa.LargeBinary(16))
    body_bytes: Mapped[int] = mapped_column(sa.BigInteger, default=0)
    etag: Mapped[str | None] = mapped_column(sa.Text)
    last_modified: Mapped[str | None] = mapped_column(sa.Text)
    fetched_at: Mapped[datetime] = mapped_column(UtcDateTime)

    __table_args__ = (
        sa.Index(f"ix_{PREFIX}page_document_id_id", "document_id", "id"),
        sa.Index(f"ix_{PREFIX}page_task_id_id", "task_id", "id"),
        # A settle asks whether its task has a version of a document already.
        sa.Index(f"ix_{PREFIX}page_task_id_document_id", "task_id", "document_id"),
    )


class Item(Base):
    """One structured record that a spider's ``parse`` yielded."""

    __tablename__ = f"{PREFIX}item"

    id: Mapped[int] = mapped_column(BigId, primary_key=True)
    task_id: Mapped[UUID] = mapped_column(sa.ForeignKey(f"{PREFIX}task.id", ondelete="CASCADE"))
    request_id: Mapped[int] = mapped_column(sa.BigInteger)
    document_id: Mapped[int | None] = mapped_column(sa.BigInteger)
    data: Mapped[dict[str, Any]] = mapped_column(Json)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)

    __table_args__ = (
        sa.Index(f"ix_{PREFIX}item_task_id_id", "task_id", "id"),
        sa.Index(f"ix_{PREFIX}item_document_id", "document_id"),
    )


class Log(Base):
    """One line that a spider or the engine said about a task."""

    __tablename__ = f"{PREFIX}log"

    id: Mapped[int] = mapped_column(BigId, primary_key=True)
    task_id: Mapped[UUID] = mapped_column(sa.ForeignKey(f"{PREFIX}task.id", ondelete="CASCADE"))
    request_id: Mapped[int | None] = mapped_column(sa.BigInteger)
    at: Mapped[datetime] = mapped_column(UtcDateTime)
    level: Mapped[int] = mapped_column(sa.SmallInteger)  #: as in :mod:`logging`
    message: Mapped[str] = mapped_column(sa.Text)

    __table_args__ = (sa.Index(f"ix_{PREFIX}log_task_id_id", "task_id", "id"),)
