"""Spider, setting, token, keeper, and what the database backends of bus and pulse need."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Mapped, mapped_column

from flask_spiderpool.models.base import PREFIX, Base, BigId, Epoch, Json, NullableJson, UtcDateTime


class SpiderRecord(Base):
    """A spider by name: its share of the pool, and, when it is stored rather than code, its definition."""

    __tablename__ = f"{PREFIX}spider"

    name: Mapped[str] = mapped_column(sa.String(200), primary_key=True)
    kind: Mapped[str] = mapped_column(sa.String(20), default="code")  #: ``code`` or ``stored``
    definition: Mapped[dict[str, Any] | None] = mapped_column(NullableJson)
    enabled: Mapped[bool] = mapped_column(sa.Boolean, default=True)
    weight: Mapped[float] = mapped_column(sa.Double, default=1.0)
    served: Mapped[float] = mapped_column(sa.Double, default=0.0)  #: slices sent, divided by weight
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)


class Setting(Base):
    """One version of the live settings of a scope (``""``: the pool; else a spider's name)."""

    __tablename__ = f"{PREFIX}setting"

    version: Mapped[int] = mapped_column(BigId, primary_key=True)
    scope: Mapped[str] = mapped_column(sa.String(200), default="")
    data: Mapped[dict[str, Any]] = mapped_column(Json)
    at: Mapped[datetime] = mapped_column(UtcDateTime)
    by: Mapped[str | None] = mapped_column(sa.String(200))

    __table_args__ = (sa.Index(f"ix_{PREFIX}setting_scope_version", "scope", "version"),)


class Token(Base):
    """A bearer token. Only its SHA-256 is kept."""

    __tablename__ = f"{PREFIX}token"

    id: Mapped[int] = mapped_column(BigId, primary_key=True)
    name: Mapped[str] = mapped_column(sa.String(200))
    hash: Mapped[bytes] = mapped_column(sa.LargeBinary(32))
    hint: Mapped[str] = mapped_column(sa.String(12))  #: first characters, to tell tokens apart
    role: Mapped[str] = mapped_column(sa.String(10))  #: terms.Role
    owner: Mapped[str | None] = mapped_column(sa.String(200))
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
    expires_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    revoked_at: Mapped[datetime | None] = mapped_column(UtcDateTime)

    __table_args__ = (sa.UniqueConstraint("hash"),)


class Keeper(Base):
    """The one row (``id`` 1) of the keeper's election; and the clock offset that only tests set."""

    __tablename__ = f"{PREFIX}keeper"

    id: Mapped[int] = mapped_column(sa.Integer, primary_key=True, autoincrement=False)
    holder: Mapped[str | None] = mapped_column(sa.String(200))
    until: Mapped[float | None] = mapped_column(Epoch)
    passed_at: Mapped[float | None] = mapped_column(Epoch)
    clock_offset_s: Mapped[float] = mapped_column(sa.Double, default=0.0)


class BusMessage(Base):
    """One message of the database bus; old ones are pruned by the keeper."""

    __tablename__ = f"{PREFIX}bus_message"

    id: Mapped[int] = mapped_column(BigId, primary_key=True)
    topic: Mapped[str] = mapped_column(sa.String(10))  #: ``command`` or ``event``
    name: Mapped[str] = mapped_column(sa.String(40))
    data: Mapped[dict[str, Any]] = mapped_column(Json)
    at: Mapped[float] = mapped_column(Epoch)

    __table_args__ = (sa.Index(f"ix_{PREFIX}bus_message_topic_id", "topic", "id"),)


class Worker(Base):
    """The last heartbeat of one worker process."""

    __tablename__ = f"{PREFIX}worker"

    name: Mapped[str] = mapped_column(sa.String(200), primary_key=True)
    seen_at: Mapped[float] = mapped_column(Epoch)
    threads: Mapped[int] = mapped_column(sa.Integer)
    slices: Mapped[int] = mapped_column(sa.Integer)
    info: Mapped[dict[str, Any]] = mapped_column(Json, default=dict)


class Counter(Base):
    """What was done in one minute, by name."""

    __tablename__ = f"{PREFIX}counter"

    minute: Mapped[int] = mapped_column(sa.BigInteger, primary_key=True, autoincrement=False)
    name: Mapped[str] = mapped_column(sa.String(60), primary_key=True)
    value: Mapped[int] = mapped_column(sa.BigInteger, default=0)
