"""The store's own engines, and which of a database's errors mean: again, away, or bad data.

The host's engine is never touched: not its isolation level, not its PRAGMAs.
"""

from __future__ import annotations

import contextlib
import sqlite3
from typing import Any

import sqlalchemy as sa

from flask_spiderpool.errors import SetupError

BUSY_S = 15.0  #: how long SQLite waits for another process's writer
#: A transaction of ours takes milliseconds: one that its process left open so long is ended by PostgreSQL.
OPEN_S = 5.0
#: Less than that: when a whole process is frozen, those of its transactions that stand in line for a lock
#: leave the line before the lock is free. Else each would get it in turn, and hold it as long.
LOCK_S = 2.5
#: For a process that froze while it sent a statement: PostgreSQL then waits for the rest of it, not idle.
WHOLE_S = 15.0

#: deadlock, serialization, lock timeout: the transaction is repeated.
_AGAIN = frozenset({"40P01", "40001", "55P03"})
#: the server has ended the session: its transaction was left open, or lasted too long.
_ENDED = frozenset({"25P03", "25P04"})
#: classes of SQLSTATE that say: the server is away, starting, stopping, or out of connections.
_AWAY = ("08", "57P", "53")
#: classes that lie in the data: bad values, broken constraints, program limits (a row too large).
_DATA = ("22", "23", "54")


def make_engine(url: str | sa.URL, *, connections: int) -> sa.Engine:
    """Make an engine for the store. No connection is opened yet.

    PostgreSQL: READ COMMITTED whatever the host chose; transactions that a frozen process or a dead machine
    left open are ended, because their row locks would hold up everyone else, the verbs too.
    """
    url = sa.make_url(url)
    if url.get_backend_name() == "postgresql":
        engine = sa.create_engine(
            url,
            isolation_level="READ COMMITTED",
            pool_size=connections,
            max_overflow=0,
            pool_pre_ping=True,
            pool_timeout=30,
            connect_args={"connect_timeout": 5, "application_name": "spiderpool"},
        )
        sa.event.listen(engine, "connect", _prepare_postgres)
        return engine
    if url.get_backend_name() != "sqlite":
        raise SetupError(
            f"the pool's tables live in SQLite or PostgreSQL, not in {url.get_backend_name()}; "
            "set SPIDERPOOL_DATABASE_URL to sqlite:///file or postgresql+psycopg://..."
        )
    engine = sa.create_engine(
        url,
        pool_size=connections,
        max_overflow=32,
        connect_args={"timeout": BUSY_S, "check_same_thread": False},
    )
    sa.event.listen(engine, "connect", _prepare_sqlite)
    return engine


def begin_immediately(engine: sa.Engine) -> None:
    """Take SQLite's write lock at BEGIN: a deferred transaction that writes later fails at once when another
    process has written in between."""
    sa.event.listen(engine, "begin", lambda connection: connection.exec_driver_sql("BEGIN IMMEDIATE"))


def begin_reading(engine: sa.Engine) -> None:
    """One snapshot for all statements of a reading transaction."""
    sa.event.listen(engine, "begin", lambda connection: connection.exec_driver_sql("BEGIN"))


def _prepare_sqlite(connection: Any, record: Any) -> None:
    # The driver's own habit of beginning transactions is turned off: the listeners above begin them.
    connection.isolation_level = None
    cursor = connection.cursor()
    cursor.execute("PRAGMA journal_mode=WAL")
    cursor.execute("PRAGMA synchronous=NORMAL")
    cursor.execute("PRAGMA foreign_keys=ON")
    # 8 MB a connection, so that a worker's memory is flat after some thousand pages. What does not fit is
    # in the system's own cache: pages per CPU-second were the same with 32 MB (20,000 pages).
    cursor.execute("PRAGMA cache_size=-8000")
    cursor.execute("PRAGMA temp_store=MEMORY")
    cursor.close()


def _prepare_postgres(connection: Any, record: Any) -> None:
    automatic = connection.autocommit
    connection.autocommit = True
    try:
        connection.execute(f"SET idle_in_transaction_session_timeout = {OPEN_S * 1000:.0f}")
        connection.execute(f"SET lock_timeout = {LOCK_S * 1000:.0f}")
        # Servers before 17 do not know the first, those built without lz4 not the second: pages then take
        # twice the room.
        for setting in (f"transaction_timeout = {WHOLE_S * 1000:.0f}", "default_toast_compression = 'lz4'"):
            with contextlib.suppress(Exception):
                connection.execute(f"SET {setting}")
    finally:
        connection.autocommit = automatic


def first_line(error: BaseException) -> str:
    """Return what an error says in one line; the rest, such as SQLAlchemy's statement, is for tracebacks."""
    return (str(driver_error(error)).strip().splitlines() or [type(error).__name__])[0][:200]


def driver_error(error: BaseException) -> BaseException:
    """Return the driver's own error, which SQLAlchemy may have wrapped."""
    original = error.orig if isinstance(error, sa.exc.DBAPIError) else None
    return original if original is not None else error


def is_away(error: BaseException) -> bool:
    """The database could not be reached, or the connection broke: the connection is of no more use."""
    if isinstance(error, sa.exc.TimeoutError):
        return True
    error = driver_error(error)
    state = getattr(error, "sqlstate", None)
    if state is not None:
        return str(state).startswith(_AWAY) or state in _ENDED
    name = type(error).__name__
    return type(error).__module__.startswith("psycopg") and name in ("OperationalError", "InterfaceError")


def is_again(error: BaseException) -> bool:
    """The transaction lost a race (deadlock, serialization, lock) and may be repeated as it is."""
    error = driver_error(error)
    if isinstance(error, sqlite3.OperationalError):
        return "locked" in str(error) or "busy" in str(error)
    return getattr(error, "sqlstate", None) in _AGAIN


def is_data_fault(error: BaseException) -> bool:
    """The values cannot be stored; another try with the same values would fail the same way."""
    error = driver_error(error)
    if isinstance(error, UnicodeError | TypeError | ValueError | OverflowError | RecursionError):
        return True
    if isinstance(error, sqlite3.DataError | sqlite3.IntegrityError | sqlite3.InterfaceError):
        return True
    if isinstance(error, sqlite3.ProgrammingError):
        return "binding" in str(error)  # since Python 3.12; InterfaceError before
    state = getattr(error, "sqlstate", None)
    if state is not None:
        return str(state).startswith(_DATA)
    return type(error).__module__.startswith("psycopg") and type(error).__name__ in (
        "DataError",
        "ProgrammingError",
    )
