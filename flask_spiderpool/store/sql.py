"""One way to say a statement on both databases, and the thin connection on which the store says it.

The frontier's statements are written once, at import, as plain SQL with ``:name`` parameters, ``@now`` for
the store's clock and PostgreSQL's casts and locking clauses. SQLite gets the same text without those: it
has one writer at a time and needs no row locks. The statements run on the driver's own cursor, because
at a page in half a millisecond the expression compiler of SQLAlchemy would be most of the price.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import sqlalchemy as sa

from flask_spiderpool.store.clock import POSTGRES_NOW, SQLITE_NOW

_PARAMETER = re.compile(r"(?<![:\w]):([a-z_]\w*)")
_CAST = re.compile(r"::[a-z]\w*(\[\])?")
_LOCK = re.compile(r"\bFOR (?:NO KEY UPDATE|UPDATE|KEY SHARE)(?: OF \w+)?(?: SKIP LOCKED)?")


class Statement:
    """SQL for both databases. ``sqlite`` replaces the text where the dialects part."""

    __slots__ = ("postgres", "sqlite")

    def __init__(self, text: str, *, sqlite: str | None = None) -> None:
        self.postgres = _PARAMETER.sub(r"%(\1)s", text.replace("%", "%%").replace("@now", POSTGRES_NOW))
        plain = (text if sqlite is None else sqlite).replace("@now", SQLITE_NOW)
        plain = _LOCK.sub("", _CAST.sub("", plain))
        self.sqlite = plain.replace("GREATEST(", "max(").replace("LEAST(", "min(")


class Tx:
    """A transaction under way: the driver's connection, and which database it is."""

    __slots__ = ("_cursor", "postgres")

    def __init__(self, connection: sa.Connection) -> None:
        self.postgres = connection.dialect.name == "postgresql"
        driver: Any = connection.connection
        self._cursor = driver.cursor()

    def all(self, statement: Statement, **values: Any) -> list[tuple[Any, ...]]:
        """Run it and return all rows."""
        rows: list[tuple[Any, ...]] = self._execute(statement, values).fetchall()
        return rows

    def one(self, statement: Statement, **values: Any) -> tuple[Any, ...] | None:
        """Run it and return the first row, or None. (On SQLite a statement ends only when it is read up.)"""
        rows = self._execute(statement, values).fetchall()
        return rows[0] if rows else None

    def run(self, statement: Statement, **values: Any) -> int:
        """Run it and return how many rows it changed."""
        count: int = self._execute(statement, values).rowcount
        return count

    def many(self, statement: Statement, rows: Iterable[Mapping[str, Any]]) -> None:
        """Run it once for each of ``rows``, in their order."""
        rows = list(rows)
        if not rows:
            return
        if self.postgres:
            self._cursor.executemany(statement.postgres, rows)
        else:
            self._cursor.executemany(statement.sqlite, rows)

    def many_tuples(self, statement: Statement, rows: list[tuple[Any, ...]]) -> int:
        """Run a statement with ``?`` parameters (SQLite only) for each row; return how many rows it changed."""
        count: int = self._cursor.executemany(statement.sqlite, rows).rowcount
        return max(0, count)

    def key(self, task_id: UUID) -> Any:
        """Return a task id as this database's driver takes it (for rows given to :meth:`many`)."""
        return task_id if self.postgres else task_id.hex

    def moment(self, at_s: float) -> Any:
        """Return epoch seconds as a value for a UtcDateTime column."""
        when = datetime.fromtimestamp(at_s, UTC)
        return when if self.postgres else when.strftime("%Y-%m-%d %H:%M:%S.%f")

    @contextmanager
    def savepoint(self) -> Iterator[None]:
        """Undo what was done inside when it raises, and only that."""
        self._cursor.execute("SAVEPOINT spiderpool_inner")
        try:
            yield
        except BaseException:
            self._cursor.execute("ROLLBACK TO SAVEPOINT spiderpool_inner")
            self._cursor.execute("RELEASE SAVEPOINT spiderpool_inner")
            raise
        self._cursor.execute("RELEASE SAVEPOINT spiderpool_inner")

    def _execute(self, statement: Statement, values: dict[str, Any]) -> Any:
        if self.postgres:
            return self._cursor.execute(statement.postgres, values)
        for name, value in values.items():
            if type(value) is UUID:
                values[name] = value.hex
        return self._cursor.execute(statement.sqlite, values)


def task_uuid(value: Any) -> UUID:
    """Return the UUID that a driver gave for a ``Uuid`` column."""
    return value if isinstance(value, UUID) else UUID(value)


def epoch_s(value: Any) -> float:
    """Return what a driver gave for a UtcDateTime column as epoch seconds."""
    when = datetime.fromisoformat(value) if isinstance(value, str) else value
    return float((when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp())


def json_value(value: Any) -> Any:
    """Return what a JSON column holds: PostgreSQL's driver gives objects, SQLite's gives text."""
    return json.loads(value) if isinstance(value, str | bytes) else value


def json_text(value: Any) -> str | None:
    """Return JSON for a column, None for None. Raises ``TypeError`` or ``ValueError`` for what JSON cannot hold."""
    if value is None:
        return None
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
