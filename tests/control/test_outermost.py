"""Acts that wait for the outermost commit."""

from __future__ import annotations

import gc
import logging
import weakref
from collections.abc import Iterator

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, scoped_session, sessionmaker

from flask_spiderpool.control.outermost import after_outermost_commit


@pytest.fixture
def engine() -> Iterator[sa.Engine]:
    """A database with one table; savepoints of SQLite need BEGIN said aloud (SQLAlchemy, pysqlite docs)."""
    engine = sa.create_engine("sqlite://", poolclass=sa.StaticPool)
    sa.event.listen(engine, "connect", lambda raw, _: setattr(raw, "isolation_level", None))
    sa.event.listen(engine, "begin", lambda connection: connection.exec_driver_sql("BEGIN"))
    with engine.begin() as connection:
        connection.execute(sa.text("CREATE TABLE row (id INTEGER)"))
    yield engine
    engine.dispose()


@pytest.fixture
def session(engine: sa.Engine) -> Iterator[Session]:
    """A session on it."""
    with Session(engine) as session:
        yield session


def _write(session: Session) -> None:
    session.execute(sa.text("INSERT INTO row VALUES (1)"))


def test_an_act_waits_for_the_commit(session: Session) -> None:
    """Nothing happens before the commit; it happens once, at it."""
    done: list[str] = []
    _write(session)
    after_outermost_commit(session, lambda: done.append("a"))
    session.flush()
    assert done == []
    session.commit()
    assert done == ["a"]
    _write(session)
    session.commit()
    assert done == ["a"]


def test_a_rollback_means_it_never_was(session: Session) -> None:
    """An act of a transaction that is rolled back is not done by a later commit."""
    done: list[str] = []
    _write(session)
    after_outermost_commit(session, lambda: done.append("a"))
    session.rollback()
    _write(session)
    session.commit()
    assert done == []


def test_what_is_dropped_is_freed(session: Session) -> None:
    """A long-lived session does not hold on to the acts of its rollbacks."""

    class Act:
        def __call__(self) -> None:
            raise AssertionError("dropped")

    act = Act()
    freed = weakref.ref(act)
    _write(session)
    after_outermost_commit(session, act)
    del act
    session.rollback()
    gc.collect()
    assert freed() is None


def test_closing_without_commit_drops_it(session: Session) -> None:
    """A session that is closed rolls back."""
    done: list[str] = []
    _write(session)
    after_outermost_commit(session, lambda: done.append("a"))
    session.close()
    _write(session)
    session.commit()
    assert done == []


def test_a_released_savepoint_is_no_commit(session: Session) -> None:
    """What was asked for in a savepoint waits for the transaction around it."""
    done: list[str] = []
    with session.begin_nested():
        _write(session)
        after_outermost_commit(session, lambda: done.append("a"))
    assert done == []
    session.commit()
    assert done == ["a"]


def test_a_released_savepoint_in_a_rolled_back_transaction_does_nothing(session: Session) -> None:
    """The outermost transaction decides."""
    done: list[str] = []
    with session.begin_nested():
        _write(session)
        after_outermost_commit(session, lambda: done.append("a"))
    session.rollback()
    session.commit()
    assert done == []


def test_a_rolled_back_savepoint_drops_only_its_own_acts(session: Session) -> None:
    """What was asked for before the savepoint stays."""
    done: list[str] = []
    _write(session)
    after_outermost_commit(session, lambda: done.append("outer"))
    savepoint = session.begin_nested()
    after_outermost_commit(session, lambda: done.append("inner"))
    savepoint.rollback()
    session.commit()
    assert done == ["outer"]


def test_savepoints_in_savepoints(session: Session) -> None:
    """An inner savepoint that was released is dropped with the outer one that is rolled back."""
    done: list[str] = []
    _write(session)
    outer = session.begin_nested()
    with session.begin_nested():
        after_outermost_commit(session, lambda: done.append("inner"))
    outer.rollback()
    with session.begin_nested(), session.begin_nested():
        after_outermost_commit(session, lambda: done.append("kept"))
    session.commit()
    assert done == ["kept"]


def test_an_empty_savepoint_changes_nothing(session: Session) -> None:
    """A savepoint without acts passes nothing on and drops nothing."""
    done: list[str] = []
    _write(session)
    after_outermost_commit(session, lambda: done.append("a"))
    with session.begin_nested():
        _write(session)
    assert done == []
    session.commit()
    assert done == ["a"]


def test_a_savepoint_inside_a_flush(engine: sa.Engine) -> None:
    """A host's ``after_flush`` may start a task in a savepoint: the act outlives the flush around it."""
    done: list[str] = []

    class Base(DeclarativeBase):
        pass

    class Thing(Base):
        __tablename__ = "thing"
        id: Mapped[int] = mapped_column(primary_key=True)

    Base.metadata.create_all(engine)
    with Session(engine) as session:

        def start(flushed: Session, _: object) -> None:
            with flushed.begin_nested():
                after_outermost_commit(flushed, lambda: done.append("a"))

        sa.event.listen(session, "after_flush", start, once=True)
        session.add(Thing())
        session.flush()
        assert done == []
        session.commit()
    assert done == ["a"]


def test_a_commit_with_open_savepoints(session: Session) -> None:
    """``session.commit()`` releases what is open and commits all of it."""
    done: list[str] = []
    _write(session)
    session.begin_nested()
    after_outermost_commit(session, lambda: done.append("a"))
    session.commit()
    assert done == ["a"]


def test_a_failed_commit_does_nothing(engine: sa.Engine) -> None:
    """If the database refuses the commit the acts are dropped."""

    def refuse(connection: sa.Connection) -> None:
        raise sa.exc.OperationalError("COMMIT", {}, Exception("disk full"))

    done: list[str] = []
    with Session(engine) as session:
        _write(session)
        after_outermost_commit(session, lambda: done.append("a"))
        sa.event.listen(engine, "commit", refuse)
        with pytest.raises(sa.exc.OperationalError):
            session.commit()
        sa.event.remove(engine, "commit", refuse)
        session.rollback()
        session.commit()
    assert done == []


def test_the_connection_is_free_when_the_act_is_done(engine: sa.Engine) -> None:
    """In eager mode the act works with the database itself: the transaction must be over by then."""
    seen: list[object] = []

    def act() -> None:
        with engine.begin() as connection:
            seen.append(connection.scalar(sa.text("SELECT count(*) FROM row")))

    with Session(engine) as session:
        _write(session)
        after_outermost_commit(session, act)
        session.commit()
    assert seen == [1]


def test_what_an_act_raises_reaches_nobody(session: Session, caplog: pytest.LogCaptureFixture) -> None:
    """The host's commit has happened; a failing act is logged, and the next one is done all the same."""
    done: list[str] = []
    _write(session)
    after_outermost_commit(session, lambda: [][1])  # type: ignore[func-returns-value]
    after_outermost_commit(session, lambda: done.append("b"))
    with caplog.at_level(logging.ERROR):
        session.commit()
    assert done == ["b"]
    assert "act after a commit failed" in caplog.text


def test_an_act_without_a_transaction_begins_one(session: Session) -> None:
    """Asked before the session has begun anything, the act belongs to the transaction that follows."""
    done: list[str] = []
    after_outermost_commit(session, lambda: done.append("a"))
    _write(session)
    session.commit()
    assert done == ["a"]


def test_a_scoped_session_is_unwrapped(engine: sa.Engine) -> None:
    """Hosts hand over ``db.session``, which is a registry of sessions."""
    done: list[str] = []
    registry = scoped_session(sessionmaker(engine))
    _write(registry())
    after_outermost_commit(registry, lambda: done.append("a"))
    registry.commit()
    registry.remove()
    assert done == ["a"]
