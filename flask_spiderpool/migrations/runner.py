"""Running the scripts in ``versions/``, without an env.py: one connection, one transaction, one at a time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.operations import Operations
from alembic.runtime.environment import EnvironmentContext
from alembic.script import ScriptDirectory

from flask_spiderpool.errors import SetupError
from flask_spiderpool.models import metadata
from flask_spiderpool.models.base import PREFIX

VERSION_TABLE = f"{PREFIX}alembic_version"
HOST_VERSION_TABLE = "alembic_version"  #: Flask-Migrate's default

#: Names the PostgreSQL advisory lock under which processes that start together upgrade one after the other.
_LOCK_KEY = 0x5370696465725F6D


class Ownership(StrEnum):
    """Who looks after the pool's tables in a database."""

    NOBODY = "nobody"  #: there are none yet
    POOL = "pool"  #: these migrations
    HOST = "host"  #: the host's migrations made them
    UNKNOWN = "unknown"  #: they are there without a version: made by ``create_all``


@dataclass(frozen=True, slots=True)
class Outcome:
    """What an upgrade came to: the revisions before and after, and whether it took over unversioned tables."""

    before: str | None
    after: str | None
    adopted: bool = False

    @property
    def changed(self) -> bool:
        """Tell whether anything was done."""
        return self.before != self.after


def head() -> str:
    """Return the newest revision that this version of the package knows."""
    newest = _scripts().get_current_head()
    assert newest is not None
    return newest


def current(database: str | sa.Engine) -> str | None:
    """Return the revision of the pool's tables; None when these migrations never ran there."""
    with _connected(database) as connection:
        return _context(connection).get_current_revision()


def ownership(connection: sa.Connection) -> Ownership:
    """Tell who looks after the pool's tables."""
    there = set(sa.inspect(connection).get_table_names())
    if VERSION_TABLE in there:
        return Ownership.POOL
    if not any(table.name in there for table in metadata.sorted_tables):
        return Ownership.NOBODY
    return Ownership.HOST if HOST_VERSION_TABLE in there else Ownership.UNKNOWN


def upgrade(database: str | sa.Engine, revision: str = "head") -> Outcome:
    """Bring the pool's tables to ``revision``, in one transaction; safe when several processes start at once.

    Tables that ``create_all`` has made are taken over if they are just as the models say. Raises
    :class:`~flask_spiderpool.errors.SetupError` where the host's migrations own them, or where they differ.
    """
    with _connected(database) as connection, _alone(connection):
        owner = ownership(connection)
        if owner is Ownership.HOST:
            raise SetupError(
                "the pool's tables in this database were made by the host's own migrations: go on with"
                " `flask db migrate` and `flask db upgrade`"
            )
        if owner is Ownership.UNKNOWN:
            return _adopt(connection)
        before = _context(connection).get_current_revision()
        _run(connection, revision, up=True)
        return Outcome(before, _context(connection).get_current_revision())


def downgrade(database: str | sa.Engine, revision: str) -> Outcome:
    """Take the pool's tables back to ``revision``; ``base`` drops them with all they hold."""
    with _connected(database) as connection, _alone(connection):
        if ownership(connection) is not Ownership.POOL:
            raise SetupError("the pool's own migrations never ran in this database: nothing to take back")
        before = _context(connection).get_current_revision()
        _run(connection, revision, up=False)
        return Outcome(before, _context(connection).get_current_revision())


def check(database: str | sa.Engine) -> list[str]:
    """Return what differs between the pool's tables and the models, one line each; empty when nothing does."""
    with _connected(database) as connection:
        return _differences(connection)


def _adopt(connection: sa.Connection) -> Outcome:
    differences = _differences(connection)
    if differences:
        raise SetupError(
            "the pool's tables are there without a version, and differ from the models: drop them, or mend"
            " them by hand:\n" + "\n".join(f"  - {line}" for line in differences)
        )
    context = _context(connection)
    context.stamp(_scripts(), "head")
    return Outcome(None, context.get_current_revision(), adopted=True)


def _differences(connection: sa.Connection) -> list[str]:
    context = _context(connection)
    return [_described(difference) for difference in compare_metadata(context, metadata)]


def _described(difference: Any) -> str:
    if isinstance(difference, list):
        return "; ".join(_described(part) for part in difference)
    kind, *rest = difference
    return f"{kind}: {', '.join(_named(part) for part in rest if part is not None)}"


def _named(part: Any) -> str:
    """Return a table, column, index or constraint by name: their own spelling goes on for lines."""
    if isinstance(part, sa.Column):
        return str(part) if part.table is not None else str(part.name)
    if isinstance(part, sa.Table | sa.Index | sa.Constraint):
        return str(part.name)
    return str(part)


def _run(connection: sa.Connection, revision: str, *, up: bool) -> None:
    scripts = _scripts()

    def steps(at: Any, context: MigrationContext) -> Any:
        del context
        if up:
            return scripts._upgrade_revs(revision, at)
        return scripts._downgrade_revs(revision, at)

    with EnvironmentContext(_config(), scripts, fn=steps, destination_rev=revision) as environment:
        environment.configure(connection=connection, **_options(connection))
        with Operations.context(environment.get_context()):
            environment.run_migrations()


def _context(connection: sa.Connection) -> MigrationContext:
    return MigrationContext.configure(connection, opts=_options(connection))


def _options(connection: sa.Connection) -> dict[str, Any]:
    return {
        "target_metadata": metadata,
        "version_table": VERSION_TABLE,
        "include_name": _include_name,
        "compare_type": True,
        "render_as_batch": connection.dialect.name == "sqlite",
        "transaction_per_migration": False,
    }


def _include_name(name: str | None, kind: str, parents: Any) -> bool:
    """Look at the pool's tables only; the database is the host's."""
    del parents
    return kind != "table" or (name or "").startswith(PREFIX)


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    return config


def _scripts() -> ScriptDirectory:
    return ScriptDirectory.from_config(_config())


@contextmanager
def _connected(database: str | sa.Engine) -> Iterator[sa.Connection]:
    if isinstance(database, sa.Engine):
        with database.connect() as connection:
            yield connection
        return
    engine = sa.create_engine(database, poolclass=sa.NullPool)
    try:
        with engine.connect() as connection:
            yield connection
    finally:
        engine.dispose()


@contextmanager
def _alone(connection: sa.Connection) -> Iterator[None]:
    """Hold one transaction, and keep other upgraders out of it until it ends."""
    if connection.dialect.name == "sqlite":
        # The driver begins a transaction before writes only, and not before CREATE TABLE: begin by hand.
        raw: Any = connection.connection.dbapi_connection
        isolation, raw.isolation_level = raw.isolation_level, None
        try:
            connection.exec_driver_sql("PRAGMA busy_timeout = 30000")
            connection.exec_driver_sql("BEGIN IMMEDIATE")
            try:
                yield
            except BaseException:
                connection.exec_driver_sql("ROLLBACK")
                raise
            connection.exec_driver_sql("COMMIT")
            connection.commit()
        finally:
            raw.isolation_level = isolation
        return
    with connection.begin():
        if connection.dialect.name == "postgresql":
            connection.execute(sa.text("SELECT pg_advisory_xact_lock(:key)"), {"key": _LOCK_KEY})
        yield
