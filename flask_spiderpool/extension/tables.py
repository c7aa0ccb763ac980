"""Copies of the pool's tables in the host's metadata, for ``create_all`` and ``flask db migrate``."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql

from flask_spiderpool.errors import SetupError
from flask_spiderpool.models import metadata
from flask_spiderpool.models.base import UtcDateTime


def copy_tables(db: Any, bind_key: str | None) -> bool:
    """Copy the tables into the metadata of ``bind_key``; False if the host has not made that one yet.

    What is there already is left alone: two apps of one factory share one ``db``.
    """
    target = db.metadatas.get(bind_key)
    if target is None:
        return False
    for table in metadata.sorted_tables:
        if table.key not in target.tables:
            for column in table.to_metadata(target).columns:
                column.type = _as_written(column.type)
    return True


class _Jsonb(postgresql.JSONB):
    """JSONB that Alembic writes as ``postgresql.JSONB()``: its own spelling names a type without importing it."""

    __module__ = postgresql.JSONB.__module__

    def __repr__(self) -> str:
        return "JSONB()"


def _as_written(kind: sa.types.TypeEngine[Any]) -> sa.types.TypeEngine[Any]:
    """Return a type that makes the same column and that a migration script can spell without our package.

    The copies only make tables: values are converted by the models' own columns.
    """
    if isinstance(kind, UtcDateTime):
        return sa.DateTime(timezone=True)
    if isinstance(kind, sa.JSON):
        return sa.JSON().with_variant(_Jsonb(), "postgresql")
    return kind


def route_models(bind_key: str | None) -> None:
    """Make the host's session take the pool's models to ``bind_key``.

    Flask-SQLAlchemy reads the key from the metadata of the models, which exist once a process: apps of one
    process must agree.
    """
    routed = metadata.info.setdefault("spiderpool_bind_key", bind_key)
    if routed != bind_key:
        raise SetupError(
            f"SPIDERPOOL_BIND_KEY is {bind_key!r} for this app, but another app of this process has {routed!r}:"
            " use one key for both, or two processes"
        )
    if bind_key is not None:
        metadata.info["bind_key"] = bind_key
