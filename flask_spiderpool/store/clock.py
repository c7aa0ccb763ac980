"""The one clock of everything that is compared in SQL: the database's, plus an offset that only tests set.

Written as a scalar sub-select, so that the planner evaluates it once a statement and may use it as a bound
of an index. PostgreSQL's ``now()`` would stand still while a transaction waits for a lock.
"""

from __future__ import annotations

_OFFSET = "COALESCE((SELECT clock_offset_s FROM spiderpool_keeper WHERE id = 1), 0)"

POSTGRES_NOW = f"(SELECT extract(epoch FROM clock_timestamp())::float8 + {_OFFSET})"
SQLITE_NOW = f"(SELECT (julianday('now') - 2440587.5) * 86400.0 + {_OFFSET})"
