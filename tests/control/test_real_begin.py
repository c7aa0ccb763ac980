"""A verb in a savepoint, on engines that are as ``create_engine`` makes them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session

from flask_spiderpool import control
from flask_spiderpool.errors import SetupError
from flask_spiderpool.models import Task, metadata
from flask_spiderpool.terms import Verb
from tests.control.test_verbs import Parts

_OTHER = sa.Table("hosts_own", sa.MetaData(), sa.Column("id", sa.Integer, primary_key=True))


@pytest.fixture
def parts() -> Parts:
    """A pool with one spider."""
    made = Parts()
    made.registry.spider("quotes", start_urls=["https://quotes.example/"])(lambda page: None)
    return made


@pytest.fixture
def engine(db_url: str) -> Iterator[sa.Engine]:
    """The host's engine, without any listener."""
    engine = sa.create_engine(db_url)
    metadata.create_all(engine)
    _OTHER.create(engine)
    yield engine
    _OTHER.drop(engine)
    engine.dispose()


@pytest.fixture
def session(engine: sa.Engine) -> Iterator[Session]:
    """The host's session."""
    with Session(engine) as session:
        yield session


def _tasks(engine: sa.Engine) -> int:
    with Session(engine) as other:
        return other.scalar(sa.select(sa.func.count()).select_from(Task)) or 0


def _read(session: Session) -> None:
    session.execute(sa.select(_OTHER)).all()


def _write(session: Session) -> None:
    session.execute(sa.insert(_OTHER))


@pytest.mark.parametrize("before", [None, _read, _write], ids=["nothing", "read", "written"])
@pytest.mark.parametrize("depth", [1, 2])
def test_a_start_in_a_savepoint_is_taken_back(
    session: Session, engine: sa.Engine, parts: Parts, before: object, depth: int
) -> None:
    """The savepoint is released, the transaction is rolled back: there was no task, whatever went before."""
    if callable(before):
        before(session)
    savepoints = [session.begin_nested() for _ in range(depth)]
    control.start(session, parts, "quotes")
    for savepoint in reversed(savepoints):
        savepoint.commit()
    session.rollback()
    session.commit()
    assert _tasks(engine) == 0
    assert parts.messages == []


def test_a_change_in_a_savepoint_is_taken_back(session: Session, engine: sa.Engine, parts: Parts) -> None:
    """The other verbs keep the promise too."""
    task_id = control.start(session, parts, "quotes").id
    session.commit()
    with session.begin_nested():
        control.change(session, parts, Verb.STOP, task_id)
    session.rollback()
    with Session(engine) as other:
        assert other.scalar(sa.select(Task.desired)) == "run"


def test_savepoints_end_as_they_should(session: Session, engine: sa.Engine, parts: Parts) -> None:
    """One is rolled back, one released, and the commit stands."""
    with session.begin_nested():
        kept = control.start(session, parts, "quotes")
    savepoint = session.begin_nested()
    control.start(session, parts, "quotes")
    savepoint.rollback()
    session.commit()
    assert _tasks(engine) == 1
    assert [message.ticket.task_id for message in parts.messages] == [kept.id]


def test_a_savepoint_that_was_used_before_the_verb(session: Session, engine: sa.Engine, parts: Parts) -> None:
    """SQLite may not have been told BEGIN, and nobody can know: refused with the remedy, nothing written."""
    savepoint = session.begin_nested()
    _write(session)
    if engine.dialect.name == "sqlite":
        with pytest.raises(SetupError, match="isolation_level = None"):
            control.start(session, parts, "quotes")
    else:
        control.start(session, parts, "quotes")
    savepoint.commit()
    session.rollback()
    assert _tasks(engine) == 0


def test_a_second_verb_in_a_savepoint_that_was_used(
    session: Session, engine: sa.Engine, parts: Parts
) -> None:
    """What one verb has begun for real, another in the same transaction need not doubt."""
    control.start(session, parts, "quotes")
    with session.begin_nested():
        _write(session)
        control.start(session, parts, "quotes")
    session.rollback()
    assert _tasks(engine) == 0


def test_a_session_in_another_transaction(engine: sa.Engine, parts: Parts) -> None:
    """As tests of a host do it: each commit of the session is a savepoint's end, the rollback takes all back."""
    with engine.connect() as connection:
        outer = connection.begin()
        with Session(bind=connection, join_transaction_mode="create_savepoint") as session:
            control.start(session, parts, "quotes")
            session.commit()
            _read(session)
            control.start(session, parts, "quotes")
            session.commit()
        outer.rollback()
    assert _tasks(engine) == 0


def test_an_engine_that_says_begin_aloud(sqlite_url: str, parts: Parts) -> None:
    """The remedy works: then a savepoint may have been used before."""
    engine = sa.create_engine(sqlite_url)
    sa.event.listen(engine, "connect", lambda raw, _: setattr(raw, "isolation_level", None))
    sa.event.listen(engine, "begin", lambda connection: connection.exec_driver_sql("BEGIN"))
    metadata.create_all(engine)
    _OTHER.create(engine)
    with Session(engine) as session:
        with session.begin_nested():
            _write(session)
            control.start(session, parts, "quotes")
        session.rollback()
        assert _tasks(engine) == 0
        with session.begin_nested():
            _write(session)
            control.start(session, parts, "quotes")
        session.commit()
        assert _tasks(engine) == 1
    engine.dispose()


def test_the_drivers_kind_of_begin_is_kept(tmp_path: Path, parts: Parts) -> None:
    """A host whose connections begin IMMEDIATE gets that."""
    engine = sa.create_engine(
        f"sqlite:///{tmp_path / 'pool.db'}", connect_args={"isolation_level": "IMMEDIATE"}
    )
    said: list[str] = []
    sa.event.listen(engine, "before_cursor_execute", lambda *words: said.append(words[2]))
    metadata.create_all(engine)
    with Session(engine) as session:
        control.start(session, parts, "quotes")
        session.commit()
    assert "BEGIN IMMEDIATE" in said
    assert _tasks(engine) == 1
    engine.dispose()
