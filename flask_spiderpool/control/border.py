"""Where the database's errors become the pool's own.

The verbs speak to the driver directly, so without this a host would meet errors of its driver that SQLAlchemy
has not wrapped.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from flask_spiderpool.errors import SetupError, SpiderPoolError, Unavailable
from flask_spiderpool.store.engine import driver_error, first_line, is_again, is_away

_NO_TABLE = "42P01"  #: PostgreSQL's undefined_table


def translate(error: BaseException) -> SpiderPoolError | None:
    """Return what a database's error means to the pool; None for one that is nobody's but ours."""
    if _lacks_tables(error):
        return SetupError(
            "the pool's tables are missing: run `flask spiderpool db upgrade`, or the host's own migrations"
        )
    if is_away(error) or is_again(error) or _cannot_open(error):
        return Unavailable(f"the pool's database cannot be used just now: {first_line(error)}")
    return None


@contextmanager
def translated() -> Iterator[None]:
    """Raise the pool's own error for a database that is away, busy or without tables."""
    try:
        yield
    except SpiderPoolError:
        raise
    except Exception as error:
        known = translate(error)
        if known is None:
            raise
        raise known from error


def _lacks_tables(error: BaseException) -> bool:
    original = driver_error(error)
    return getattr(original, "sqlstate", None) == _NO_TABLE or "no such table" in str(original)


def _cannot_open(error: BaseException) -> bool:
    """SQLite's way to be away: the file or its folder is not there, or cannot be read."""
    original = driver_error(error)
    return type(original).__module__ == "sqlite3" and (
        "unable to open" in str(original) or "disk I/O" in str(original)
    )
