"""From the app that ``flask --app`` named to its pool."""

from __future__ import annotations

import getpass
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import cast
from uuid import UUID

import sqlalchemy as sa
from flask import Flask, current_app
from sqlalchemy.orm import Session

from flask_spiderpool.errors import InvalidParameter, SetupError, UnknownTask
from flask_spiderpool.models import Task, metadata
from flask_spiderpool.state import EXTENSION_KEY, PoolState

LEAST_PREFIX = 4  #: characters of a task's id that may stand for all of it
SHOWN_MATCHES = 5


def pool_state(app: Flask) -> PoolState:
    """Return the pool of ``app``; raises :class:`~flask_spiderpool.errors.SetupError` if it has none."""
    try:
        return cast(PoolState, app.extensions[EXTENSION_KEY])
    except KeyError:
        raise SetupError(
            f"the app {app.name!r} has no spider pool; call SpiderPool().init_app(app, db=db) where it is made"
        ) from None


def require_tables(state: PoolState) -> None:
    """Ask each of the pool's tables for nothing; the driver's error names what is missing.

    A server that cannot be reached is not told here: workers wait for it.
    """
    engine = sa.create_engine(state.database_url(), poolclass=sa.NullPool)
    try:
        try:
            connection = engine.connect()
        except sa.exc.OperationalError:
            if engine.dialect.name == "sqlite":
                raise
            return
        with connection:
            for table in metadata.sorted_tables:
                connection.execute(sa.select(table).where(sa.false()))
    finally:
        engine.dispose()


def shown_database(state: PoolState) -> str:
    """Return the URL of the pool's database for a person: without its password."""
    return sa.make_url(state.database_url()).render_as_string(hide_password=True)


@contextmanager
def open_pool() -> Iterator[tuple[PoolState, Session]]:
    """Yield the current app's pool and a session; at the end let waiting messages leave."""
    state = pool_state(current_app)
    try:
        with state.session() as session:
            yield state, session
    finally:
        state.close()


@contextmanager
def as_typed(names: Mapping[str, str]) -> Iterator[None]:
    """Name the options of an :class:`~flask_spiderpool.errors.InvalidParameter` as the person typed them."""
    try:
        yield
    except InvalidParameter as error:
        raise InvalidParameter(names.get(error.field, error.field), error.detail) from None


def caller() -> str:
    """Return by whom a change was made, as the history shows it."""
    try:
        return f"cli:{getpass.getuser()}"
    except (KeyError, OSError):
        return "cli"


def find_task_id(session: Session, text: str) -> UUID:
    """Return the id of the one task whose id is ``text`` or begins so, with or without hyphens.

    Raises :class:`~flask_spiderpool.errors.UnknownTask`, or ``InvalidParameter`` when several do.
    """
    digits = text.strip().lower().replace("-", "")
    if not LEAST_PREFIX <= len(digits) <= 32 or not re.fullmatch("[0-9a-f]+", digits):
        raise InvalidParameter(
            "TASK_ID", f"{text!r:.60} is no task id, nor {LEAST_PREFIX} or more digits of one"
        )
    if len(digits) == 32:
        found = session.get(Task, UUID(digits))
        matches = [] if found is None else [found.id]
    else:
        spelled = sa.func.replace(sa.cast(Task.id, sa.String), "-", "")
        query = sa.select(Task.id).where(spelled.like(f"{digits}%")).limit(SHOWN_MATCHES + 1)
        matches = list(session.scalars(query))
    if not matches:
        raise UnknownTask(f"TASK_ID: no task's id begins with {text}; 'flask spiderpool tasks' lists them")
    if len(matches) > 1:
        shown = ", ".join(str(match) for match in matches[:SHOWN_MATCHES])
        raise InvalidParameter("TASK_ID", f"{text} stands for several tasks ({shown}); give more digits")
    return matches[0]
