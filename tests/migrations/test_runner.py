"""The pool's own migrations, on SQLite and PostgreSQL."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping

import pytest
import sqlalchemy as sa

from flask_spiderpool import migrations
from flask_spiderpool.errors import SetupError
from flask_spiderpool.migrations.runner import HOST_VERSION_TABLE, VERSION_TABLE
from flask_spiderpool.models import metadata
from flask_spiderpool.models.base import PREFIX


@pytest.fixture
def engine(db_url: str) -> Iterator[sa.Engine]:
    """A connection to the test's empty database."""
    engine = sa.create_engine(db_url)
    yield engine
    engine.dispose()


def _tables(engine: sa.Engine) -> set[str]:
    return set(sa.inspect(engine).get_table_names())


def _shape(engine: sa.Engine) -> dict[str, object]:
    """What stands in the database of the pool's tables, as far as the database itself tells it."""
    inspector = sa.inspect(engine)
    shape: dict[str, object] = {}
    for table in sorted(_tables(engine) - {VERSION_TABLE}):
        shape[table] = (
            [
                (column["name"], str(column["type"]), column["nullable"])
                for column in inspector.get_columns(table)
            ],
            inspector.get_pk_constraint(table),
            sorted(map(_told, inspector.get_indexes(table))),
            sorted(inspector.get_unique_constraints(table), key=lambda unique: str(unique["name"])),
            sorted(inspector.get_foreign_keys(table), key=lambda key: str(key["name"])),
            _storage(inspector, table),
        )
    return shape


def _storage(inspector: sa.Inspector, table: str) -> dict[str, object]:
    """The storage parameters; SQLAlchemy 2.0 neither sets nor reads them."""
    if sa.__version__.startswith("2.0.") and inspector.dialect.name == "postgresql":
        return {}
    return dict(inspector.get_table_options(table))


def _told(index: Mapping[str, object]) -> str:
    """An index in words; the condition of a partial one comes as an object without equality."""
    options = {name: str(option) for name, option in dict(index["dialect_options"]).items()}  # type: ignore[call-overload]
    return str({**index, "dialect_options": options})


def test_an_upgrade_makes_what_the_models_say(db_url: str) -> None:
    """Alembic finds no difference between the migrated database and the models."""
    outcome = migrations.upgrade(db_url)
    assert (outcome.before, outcome.after) == (None, migrations.head())
    assert outcome.changed
    assert migrations.check(db_url) == []
    assert migrations.current(db_url) == migrations.head()


def test_an_upgrade_makes_what_create_all_makes(db_url: str, engine: sa.Engine) -> None:
    """Columns, keys, names, partial indexes and storage options are the same by either way."""
    migrations.upgrade(db_url)
    migrated = _shape(engine)
    migrations.downgrade(db_url, "base")
    metadata.create_all(engine)
    assert _shape(engine) == migrated


def test_an_upgrade_of_the_newest_changes_nothing(db_url: str) -> None:
    """Every start may run it."""
    migrations.upgrade(db_url)
    assert not migrations.upgrade(db_url).changed


def test_down_and_up_again(db_url: str, engine: sa.Engine) -> None:
    """``base`` drops every table of the pool; up again brings them back."""
    migrations.upgrade(db_url)
    migrations.downgrade(db_url, "base")
    assert {name for name in _tables(engine) if name.startswith(PREFIX)} <= {VERSION_TABLE}
    assert migrations.current(db_url) is None
    migrations.upgrade(db_url)
    assert migrations.check(db_url) == []


def test_an_engine_will_do(engine: sa.Engine) -> None:
    """A database may be given as an engine, which stays the caller's."""
    migrations.upgrade(engine)
    assert migrations.current(engine) == migrations.head()
    with engine.connect() as connection:
        assert connection.scalar(sa.text("SELECT 1")) == 1


def test_tables_of_the_host_are_left_alone(db_url: str, engine: sa.Engine) -> None:
    """Neither the check nor the way down looks at what is not ours."""
    with engine.begin() as connection:
        connection.execute(sa.text("CREATE TABLE task (id INTEGER)"))
    migrations.upgrade(db_url)
    assert migrations.check(db_url) == []
    migrations.downgrade(db_url, "base")
    assert "task" in _tables(engine)


def test_tables_made_by_create_all_are_taken_over(db_url: str, engine: sa.Engine) -> None:
    """A host that began with ``create_all`` can go on with migrations."""
    metadata.create_all(engine)
    outcome = migrations.upgrade(db_url)
    assert outcome.adopted
    assert migrations.current(db_url) == migrations.head()


def test_tables_that_differ_are_not_taken_over(db_url: str, engine: sa.Engine) -> None:
    """Unversioned tables of another shape are a person's to mend; the error says what differs."""
    metadata.create_all(engine)
    with engine.begin() as connection:
        connection.execute(sa.text(f"ALTER TABLE {PREFIX}task ADD COLUMN colour TEXT"))
    with pytest.raises(SetupError, match="colour"):
        migrations.upgrade(db_url)
    assert VERSION_TABLE not in _tables(engine)


def test_tables_of_the_hosts_migrations_stay_the_hosts(db_url: str, engine: sa.Engine) -> None:
    """One owner a database: where Flask-Migrate made the tables, ours say so and do nothing."""
    metadata.create_all(engine)
    with engine.begin() as connection:
        connection.execute(sa.text(f"CREATE TABLE {HOST_VERSION_TABLE} (version_num VARCHAR(32))"))
    with pytest.raises(SetupError, match="flask db upgrade"):
        migrations.upgrade(db_url)
    assert VERSION_TABLE not in _tables(engine)


def test_a_way_down_without_a_way_up_is_refused(db_url: str) -> None:
    """There is nothing to take back where our migrations never ran."""
    with pytest.raises(SetupError, match="never ran"):
        migrations.downgrade(db_url, "base")


def test_a_failing_upgrade_leaves_nothing_behind(db_url: str, engine: sa.Engine) -> None:
    """All of it stands in one transaction, on SQLite too."""
    with engine.begin() as connection:
        # The last table of all that the script makes is in the way.
        connection.execute(sa.text("CREATE VIEW spiderpool_item AS SELECT 1 AS id"))
    with pytest.raises(sa.exc.SQLAlchemyError):
        migrations.upgrade(db_url)
    assert not {name for name in _tables(engine) if name.startswith(PREFIX)}


def test_processes_that_start_together_upgrade_once(db_url: str) -> None:
    """Web and worker may both run it at their start."""
    outcomes: list[object] = []
    together = threading.Barrier(4)

    def start() -> None:
        together.wait()
        try:
            outcomes.append(migrations.upgrade(db_url).changed)
        except Exception as exc:
            outcomes.append(exc)

    threads = [threading.Thread(target=start) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(map(str, outcomes)) == ["False", "False", "False", "True"]
