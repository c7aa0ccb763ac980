"""Transactions: whose engine, which thread, what is repeated, what a fork may not share."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
import time
from pathlib import Path
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session
from sqlalchemy.pool import StaticPool

from flask_spiderpool.config import Settings
from flask_spiderpool.errors import SetupError, Unavailable
from flask_spiderpool.store import Store, verbs
from flask_spiderpool.store.engine import OPEN_S, make_engine
from flask_spiderpool.store.sql import Statement, Tx
from flask_spiderpool.terms import Verb
from tests.servers.postgres import PostgresServer
from tests.store.frontiers import Frontier, done, links


def test_read_committed_whatever_the_host_chose(postgres_frontier: Frontier) -> None:
    """A database whose default is SERIALIZABLE does not change the store's isolation."""
    f = postgres_frontier
    name = f.host.url.database
    f.sql(f"ALTER DATABASE {name} SET default_transaction_isolation = 'serializable'")
    shown = Statement("SHOW transaction_isolation")
    for store in (f.another_store(), Store(sa.create_engine(f.url), f.store.settings, owns_engine=False)):
        assert store.read(lambda tx: tx.one(shown)) == ("read committed",)
        assert store.write(lambda tx: tx.one(shown)) == ("read committed",)


def test_connections_are_prepared(postgres_frontier: Frontier) -> None:
    """Text is compressed by lz4 where the server was built with it; a transaction left open ends in time."""
    has_lz4 = postgres_frontier.value(
        "SELECT 'lz4' = ANY(enumvals) FROM pg_settings WHERE name = 'default_toast_compression'"
    )
    show = Statement(
        "SELECT current_setting('default_toast_compression'),"
        " current_setting('idle_in_transaction_session_timeout')"
    )
    assert postgres_frontier.store.read(lambda tx: tx.one(show)) == ("lz4" if has_lz4 else "pglz", "5s")


def test_endless_transaction_is_ended(postgres_frontier: Frontier, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the server can (17 and later), a transaction that is neither idle nor done in time is ended: try again."""
    f = postgres_frontier
    able = int(str(f.value("SHOW server_version_num"))) >= 170000
    show = Statement("SELECT current_setting('transaction_timeout', true)")
    assert f.store.read(lambda tx: tx.one(show)) == ("15s" if able else None,)
    monkeypatch.setattr("flask_spiderpool.store.engine.WHOLE_S", 0.2)
    naps_s = [1.0, 0.0]

    def work(tx: Tx) -> str:
        tx.run(Statement("SELECT pg_sleep(:nap_s)"), nap_s=naps_s.pop(0))
        return "done"

    assert f.another_store().write(work) == "done"
    assert naps_s == ([] if able else [0.0])


def test_frozen_process_holds_up_nobody_for_long(postgres_frontier: Frontier) -> None:
    """Of a frozen process one transaction holds a lock and one waits for it: both are gone when one's time is up."""
    f = postgres_frontier
    task_id = f.start().ticket.task_id
    frozen, revived = make_engine(f.url, connections=2), threading.Event()
    lock = sa.text("SELECT 1 FROM spiderpool_slot FOR UPDATE")

    def next_in_line() -> None:
        with contextlib.suppress(sa.exc.DBAPIError), frozen.connect() as connection:
            try:
                connection.execute(lock)
            finally:
                revived.wait(60)

    with frozen.connect() as holder:
        holder.execute(lock)
        waiting = f.waiting(next_in_line)
        began = time.monotonic()
        f.verb(task_id, Verb.STOP)
        took_s = time.monotonic() - began
        revived.set()
        waiting.result()
        with pytest.raises(sa.exc.DBAPIError):
            holder.execute(lock)
        holder.invalidate()
    frozen.dispose()
    assert took_s < 1.5 * OPEN_S


def test_sqlite_is_prepared(sqlite_frontier: Frontier) -> None:
    """WAL, and a writer that takes its lock at the beginning."""
    f = sqlite_frontier
    assert f.store.read(lambda tx: tx.one(Statement("PRAGMA journal_mode"))) == ("wal",)

    def try_to_write(tx: Tx) -> str:
        with sqlite3.connect(f.host.url.database or "", timeout=0) as other:
            try:
                other.execute("CREATE TABLE x (y)")
            except sqlite3.OperationalError as error:
                return str(error)
            finally:
                other.rollback()
        return "written"

    assert f.store.write(try_to_write) == "database is locked"


def test_sqlite_writes_on_one_thread_and_reads_apart(sqlite_frontier: Frontier) -> None:
    """Writes of all threads run on the one writer thread; a read does not wait for a write under way."""
    f = sqlite_frontier
    names = [f.thread(f.store.write, lambda tx: threading.current_thread().name) for _ in range(8)]
    assert {future.result() for future in names} == {"spiderpool-writer"}
    began, go = threading.Event(), threading.Event()

    def slow(tx: Tx) -> None:
        tx.run(Statement("UPDATE spiderpool_task SET done = 0"))
        began.set()
        go.wait(30)

    writing = f.store.submit(f.store.write, slow)
    began.wait(10)
    try:
        assert f.thread(f.store.status_counts).result(10) == {}
        assert f.store.read(lambda tx: threading.current_thread().name) == threading.current_thread().name
    finally:
        go.set()
    writing.result(10)


def test_call_from_the_writer_thread_itself(sqlite_frontier: Frontier) -> None:
    """A call submitted to the writer that makes calls of its own does not wait for itself."""
    f = sqlite_frontier
    message = f.start()
    claim = f.store.submit(f.store.claim, *message.ticket, "w").result(10)
    assert claim is not None
    handed = f.store.submit(f.store.hand_on, claim.ticket, next_in_s=None).result(10)
    assert len(handed) == 1


def test_locked_database_is_waited_for(sqlite_frontier: Frontier) -> None:
    """Another process's write lock is waited for, not reported."""
    f = sqlite_frontier
    other = sqlite3.connect(f.host.url.database or "", isolation_level=None, check_same_thread=False)
    other.execute("BEGIN IMMEDIATE")
    future = f.thread(f.start)
    other.execute("COMMIT")
    other.close()
    assert future.result(20).ticket.n == 0


@pytest.mark.parametrize(
    "error",
    [
        psycopg.errors.DeadlockDetected("deadlock detected"),
        psycopg.errors.SerializationFailure("could not serialize"),
        sqlite3.OperationalError("database is locked"),
    ],
)
def test_lost_races_are_repeated(frontier: Frontier, error: Exception) -> None:
    """Deadlocks and serialization errors are repeated with nothing of the first try left."""
    tries = []

    def fail_twice(tx: Tx) -> int:
        tx.run(Statement("UPDATE spiderpool_keeper SET passed_at = passed_at + 1"))
        tries.append(1)
        if len(tries) < 3:
            raise error
        return len(tries)

    frontier.sql("INSERT INTO spiderpool_keeper (id, passed_at, clock_offset_s) VALUES (1, 0, 0)")
    assert frontier.store.write(fail_twice) == 3
    assert frontier.value("SELECT passed_at FROM spiderpool_keeper") == 1


def test_other_errors_are_raised_at_once(frontier: Frontier) -> None:
    """What is no race and no absence is raised as it is, after one try."""
    tries = []

    def broken(tx: Tx) -> None:
        tries.append(1)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        frontier.store.write(broken)
    assert len(tries) == 1


def test_killed_connection_is_replaced(postgres_frontier: Frontier) -> None:
    """A connection that the server ends in mid-transaction costs a repetition, not the call."""
    f = postgres_frontier
    tries = []

    def die_once(tx: Tx) -> int:
        (pid,) = tx.all(Statement("SELECT pg_backend_pid()"))[0]
        tries.append(pid)
        if len(tries) == 1:
            f.value("SELECT pg_terminate_backend(:pid, 5000)", pid=pid)
        return int(tx.all(Statement("SELECT 7"))[0][0])

    assert f.store.write(die_once) == 7
    assert len(set(tries)) == 2


def test_server_restart(own_postgres: PostgresServer, settings: Settings) -> None:
    """A store goes on after its server was killed; while it is away calls say Unavailable."""
    own_postgres.create_database("pool")
    url = own_postgres.url_of("pool")
    store = Store.open(url, settings)
    store.create_tables()
    frontier = Frontier(store, url)
    try:
        ticket = frontier.claimed(3)
        store._transactions._retry_s = 0.2
        own_postgres.kill()
        with pytest.raises(Unavailable):
            store.now()
        store._transactions._retry_s = 20
        own_postgres.start()
        frontier.host.dispose()
        assert len(frontier.take(ticket)) == 3
        frontier.check(ticket.task_id)
    finally:
        frontier.close()


def test_forked_child_has_its_own_connections(frontier: Frontier) -> None:
    """A child made by fork uses the store it inherited with connections and threads of its own."""
    ticket = frontier.claimed(4)
    frontier.take(ticket, 1)
    frontier.host.dispose()
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:  # pragma: no cover - another process
        code = 1
        try:
            taken = frontier.store.lease(ticket, 1, {}, 9, suspects=True, rest_hosts={}).requests
            frontier.store.settle(ticket, [done(request) for request in taken])
            os.write(writer, str(len(taken)).encode())
            code = 0
        finally:
            os._exit(code)
    os.close(writer)
    with os.fdopen(reader) as answer:
        assert answer.read() == "1"
    assert os.waitpid(pid, 0)[1] == 0
    assert len(frontier.take(ticket)) == 2
    frontier.check(ticket.task_id)
    assert frontier.store.numbers(ticket.task_id)["done"] == 1


def test_forked_child_forgets_the_parents_memory(frontier: Frontier) -> None:
    """Whatever a child calls first: the memory of its parent's slices (and a lock held there) is not its own."""
    inherited = frontier.context
    frontier.host.dispose()
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:  # pragma: no cover - another process
        code = 1
        try:
            frontier.store.now()
            os.write(writer, b"another" if frontier.context is not inherited else b"the parent's")
            code = 0
        finally:
            os._exit(code)
    os.close(writer)
    with os.fdopen(reader) as answer:
        assert answer.read() == "another"
    assert os.waitpid(pid, 0)[1] == 0
    assert frontier.context is inherited


def test_threads_of_a_new_process_let_go_once(frontier: Frontier, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two threads that come first in a new process, one lets go of the parent's connections, the other waits."""
    store = frontier.another_store()
    lets_go: list[int] = []
    others: list[threading.Thread] = []
    store.now()

    def look(engine: sa.Engine) -> None:
        lets_go.append(1)
        if len(lets_go) == 1:
            others.append(threading.Thread(target=store.now))
            others[0].start()
            others[0].join(0.3)  # it ends only where it waits for nobody

    sa.event.listen(store._transactions.engine, "engine_disposed", look)
    real = os.getpid()
    monkeypatch.setattr(os, "getpid", lambda: real + 1_000_000)
    store.now()
    others[0].join(10)
    assert len(lets_go) == 1
    store.close()


def test_hosts_engine_in_memory(settings: Settings) -> None:
    """In eager mode the store works on the host's own engine, sqlite:///:memory: too, and leaves it open."""
    engine = sa.create_engine("sqlite://", poolclass=StaticPool, connect_args={"check_same_thread": False})
    store = Store(engine, settings, owns_engine=False)
    store.create_tables()
    with Session(engine) as session:
        task, (message,) = verbs.create_task(session, spider="s", options={}, seeds=links(3), queue="q")
        session.commit()
        task_id = task.id
    claim = store.submit(store.claim, *message.ticket, "w").result(10)
    assert claim is not None
    taken = store.lease(claim.ticket, 9, {}, 9, suspects=True, rest_hosts={}).requests
    store.settle(claim.ticket, [done(request, items=[{"a": 1}]) for request in taken])
    assert store.hand_on(claim.ticket, next_in_s=None) == []
    assert store.verdict(task_id) == "finished"
    assert store.reconcile(task_id)["ok"]
    store.close()
    with engine.connect() as connection:
        assert connection.scalar(sa.text("SELECT count(*) FROM spiderpool_page")) == 3
    engine.dispose()


def test_other_databases_are_refused(settings: Settings) -> None:
    """A database that the protocol was not written for is refused with the remedy."""
    with pytest.raises(SetupError, match="SPIDERPOOL_DATABASE_URL"):
        Store.open("mysql+pymysql://localhost/x", settings)


def test_close_is_final_and_idempotent(frontier: Frontier) -> None:
    """Closing ends the threads, finishes what is queued, and may be repeated."""
    store = frontier.another_store()
    future = store.submit(store.status_counts)
    store.close()
    assert future.result(10) == {}
    store.close()


def test_everything_is_made_at_first_use(tmp_path: Path, settings: Settings) -> None:
    """Opening a store touches nothing: a parent that will fork opens no connection."""
    before = threading.active_count()
    store = Store.open(f"sqlite:///{tmp_path / 'none.db'}", settings)
    assert not (tmp_path / "none.db").exists()
    assert threading.active_count() == before
    store.close()


def test_savepoint_undoes_only_its_own(frontier: Frontier) -> None:
    """What was done before a savepoint stays when its inside is undone."""

    def both(tx: Tx) -> Any:
        insert = Statement("INSERT INTO spiderpool_counter (minute, name, value) VALUES (1, :name, 1)")
        tx.run(insert, name="kept")
        with contextlib.suppress(ZeroDivisionError), tx.savepoint():
            tx.run(insert, name="undone")
            raise ZeroDivisionError
        return tx.all(Statement("SELECT name FROM spiderpool_counter"))

    assert frontier.store.write(both) == [("kept",)]
