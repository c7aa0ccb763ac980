"""Copies of the pool's tables in the host's metadata, for ``create_all`` and ``flask db migrate``."""

from __future__ import annotations

from typing import Any

from flask_spiderpool.errors import SetupError
from flask_spiderpool.models import metadata


def copy_tables(db: Any, bind_key: str | None) -> bool:
    """Copy the tables into the metadata of ``bind_key``; False if the host has not made that one yet.

    What is there already is left alone: two apps of one factory share one ``db``.
    """
    target = db.metadatas.get(bind_key)
    if target is None:
        return False
    for table in metadata.sorted_tables:
        if table.key not in target.tables:
            table.to_metadata(target)
    return True


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
