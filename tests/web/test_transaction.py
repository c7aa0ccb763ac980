"""A view's transaction."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa
from flask import Flask
from sqlalchemy.orm import Session

from flask_spiderpool.errors import Unavailable, UnknownTask
from flask_spiderpool.models import Counter
from flask_spiderpool.state import PoolState
from flask_spiderpool.web.transaction import TRIES, look, transact


@pytest.fixture
def lock(app: Flask) -> Iterator[sqlite3.Connection]:
    """Another process's writer on the same database; the host does not wait for it."""
    engine = app.extensions["sqlalchemy"].engine
    sa.event.listen(engine, "connect", lambda raw, _: raw.execute("PRAGMA busy_timeout = 0"))
    engine.dispose()
    other = sqlite3.connect(Path(engine.url.database), isolation_level=None)
    yield other
    other.close()


def _write(session: Session) -> str:
    session.execute(sa.text("INSERT INTO spiderpool_counter (minute, name, value) VALUES (1, 'n', 1)"))
    return "written"


def _written(session: Session) -> int:
    return int(session.scalar(sa.select(sa.func.count()).select_from(Counter)) or 0)


def test_it_commits(state: PoolState) -> None:
    """What was written is there for others, and the result is returned."""
    assert transact(state, _write) == "written"
    with state.session() as session:
        session.rollback()
        assert _written(session) == 1


def test_a_lost_race_is_run_again(state: PoolState, lock: sqlite3.Connection) -> None:
    """It begins anew, from the beginning, after a pause; nothing is written twice."""
    lock.execute("BEGIN IMMEDIATE")
    pauses: list[float] = []

    def pause(pause_s: float) -> None:
        pauses.append(pause_s)
        if len(pauses) == 2:
            lock.execute("ROLLBACK")

    assert transact(state, _write, pause=pause) == "written"
    assert len(pauses) == 2
    assert 0 < pauses[0] < pauses[1] * 3
    assert look(state, _written) == 1


def test_it_gives_up(state: PoolState, lock: sqlite3.Connection) -> None:
    """A lock that stays is ``Unavailable`` after a few tries."""
    lock.execute("BEGIN IMMEDIATE")
    pauses: list[float] = []
    with pytest.raises(Unavailable, match="locked"):
        transact(state, _write, pause=pauses.append)
    assert len(pauses) == TRIES - 1


def test_other_errors_are_not_run_again(state: PoolState) -> None:
    """What a caller got wrong stays wrong; the session is rolled back."""
    tries: list[int] = []

    def refuse(session: Session) -> None:
        _write(session)
        tries.append(1)
        raise UnknownTask

    with pytest.raises(UnknownTask):
        transact(state, refuse, pause=lambda pause_s: None)
    assert tries == [1]
    assert look(state, _written) == 0


def test_a_database_that_is_away_is_not_tried_again(state: PoolState) -> None:
    """Only a lost race may end otherwise at once: the caller is told to come back."""
    pauses: list[float] = []

    def away(session: Session) -> None:
        raise Unavailable("gone")

    with pytest.raises(Unavailable):
        transact(state, away, pause=pauses.append)
    assert pauses == []


def test_a_look_commits_nothing(state: PoolState) -> None:
    """What the host has begun in its session stays the host's to commit."""
    with state.session() as session:
        _write(session)
        assert look(state, _written) == 1
        session.rollback()
    assert look(state, _written) == 0
