"""A transaction that SQLite knows of too, before anything is written in it.

Python's SQLite driver sends ``BEGIN`` before the first statement that writes, and none before ``SAVEPOINT``
(SQLAlchemy, pysqlite dialect, "Serializable isolation / Savepoints / Transactional DDL"). A savepoint that
was opened first is then the whole transaction for SQLite, its end is the commit, and a later rollback takes
nothing back. SQLAlchemy opens a savepoint only when the session is first used in it, so mostly there is
time to send the ``BEGIN`` that belongs before it; if not, a verb would break its promise and is refused.
"""

from __future__ import annotations

import weakref
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from flask_spiderpool.errors import SetupError
from flask_spiderpool.models import Task

_KEY = "spiderpool_begun"

REMEDY = (
    "SQLite was given a savepoint (begin_nested) perhaps without a BEGIN before it: its end would commit for good,"
    " and a rollback would not take the task back. Call the verb before the savepoint, or first thing in it, or"
    " let the engine say BEGIN aloud, as SQLAlchemy documents it for pysqlite: isolation_level = None at"
    ' "connect", BEGIN at "begin" (docs/quickstart.md, "Savepoints on SQLite")'
)


def begin_for_real(session: Session) -> None:
    """Make sure that what ``session`` writes next can be rolled back as a whole; on PostgreSQL it always can.

    Raises :class:`~flask_spiderpool.errors.SetupError` where that cannot be known any more. Writes nothing.
    """
    mapper = sa.inspect(Task)
    bind = session.get_bind(mapper)
    if bind.dialect.name != "sqlite":
        return
    root = session.get_transaction() or session.begin()
    # A session in somebody else's transaction (a test's, mostly) may open its savepoint at the first look.
    joins = isinstance(bind, sa.Connection) and bind.in_transaction()
    connection: sa.Connection = bind if joins else root.connection(mapper)  # type: ignore[assignment]
    driver: Any = connection.connection.dbapi_connection
    begun: weakref.WeakSet[sa.RootTransaction] = session.info.setdefault(_KEY, weakref.WeakSet())
    outermost = connection.get_transaction()
    if not getattr(driver, "in_transaction", True):
        if getattr(driver, "autocommit", None) is not True:  # since Python 3.12; commit() then does nothing
            # As the driver itself would before a write: its isolation level is the kind of BEGIN.
            connection.exec_driver_sql(f"BEGIN {driver.isolation_level or ''}".strip())
    elif connection.in_nested_transaction() and outermost not in begun and _begins_late(driver):
        raise SetupError(REMEDY)
    if outermost is not None:
        begun.add(outermost)


def _begins_late(driver: Any) -> bool:
    """Tell whether the driver itself begins transactions, and only before a write: its default."""
    is_standard = getattr(driver, "autocommit", None) is False  # since Python 3.12: always in a transaction
    return getattr(driver, "isolation_level", None) is not None and not is_standard
