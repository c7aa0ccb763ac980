"""The declarative base, the column types and the naming convention of the pool's tables."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql
from sqlalchemy.engine import Dialect
from sqlalchemy.orm import DeclarativeBase
from sqlalchemy.types import TypeDecorator

PREFIX = "spiderpool_"  #: every table of ours, so that a host's own ``task`` or ``user`` never clashes

metadata = sa.MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)

#: SQLite counts rows automatically in INTEGER keys only; PostgreSQL needs 64 bits, since
#: ``ON CONFLICT DO NOTHING`` burns a sequence value for each duplicate.
BigId = sa.BigInteger().with_variant(sa.Integer(), "sqlite")

#: Seconds since 1970 by the database's clock. For the times that the frontier compares in SQL.
Epoch = sa.Double

#: JSON that can be indexed where the database can.
Json = sa.JSON().with_variant(postgresql.JSONB(), "postgresql")

#: The same, where no value is SQL NULL rather than JSON ``null``.
NullableJson = sa.JSON(none_as_null=True).with_variant(postgresql.JSONB(none_as_null=True), "postgresql")


_TELLS_STORAGE = tuple(int(part) for part in sa.__version__.split(".")[:2]) >= (2, 1)


def storage(options: dict[str, str]) -> dict[str, Any]:
    """Return a table's storage parameters for PostgreSQL.

    SQLAlchemy 2.0 has no word for them: tables that it makes do without (vacuum comes later, counters are
    written a little slower). The pool's own migrations set them with either version.
    """
    return {"postgresql_with": options} if _TELLS_STORAGE else {}


class UtcDateTime(TypeDecorator[datetime]):
    """An aware UTC datetime on every database; naive values are refused rather than guessed."""

    impl = sa.DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> Any:
        """Check and convert to UTC; SQLite stores it without zone."""
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError("a naive datetime was given; use datetime.now(UTC)")
        value = value.astimezone(UTC)
        return value.replace(tzinfo=None) if dialect.name == "sqlite" else value

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """Give the zone back that SQLite does not keep."""
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


class Base(DeclarativeBase):
    """Base of the pool's models; plain SQLAlchemy 2, usable with any session, the host's ``db.session`` too."""

    metadata = metadata
