"""One worker process a database: a lock in a real PostgreSQL."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from flask import Flask

from flask_spiderpool import SpiderPool
from flask_spiderpool.errors import SetupError
from flask_spiderpool.state import database_lock as module
from flask_spiderpool.state.database_lock import TRUST_S, DatabaseLock
from tests.servers.postgres import PostgresServer

WAIT_S = 30.0


def until(condition: Callable[[], bool]) -> None:
    """Wait for what another thread or process does."""
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@contextmanager
def elsewhere(url: str, then: str = "sys.stdin.read()") -> Iterator[subprocess.Popen[str]]:
    """Another process that holds the lock, and then does something."""
    program = (
        "import os, sys\nfrom flask_spiderpool.state.database_lock import DatabaseLock\n"
        f"lock = DatabaseLock(sys.argv[1])\nprint(lock.held, flush=True)\n{then}\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, url], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "True\n"
        try:
            yield process
        finally:
            process.kill()


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PATIENCE_S", 0.3)


def test_a_second_process_is_refused_and_told_the_remedy(postgres_url: str) -> None:
    """Wherever it runs: it is told who has the lock, and may have it when that one has ended."""
    with elsewhere(postgres_url) as holder:
        with pytest.raises(SetupError, match=f":{holder.pid}.*SPIDERPOOL_LIMITER_URL"):
            DatabaseLock(postgres_url)
        holder.kill()
        holder.wait()
        module.PATIENCE_S = WAIT_S
        lock = DatabaseLock(postgres_url)
    assert lock.held
    lock.release()
    lock.release()
    assert not lock.held
    with elsewhere(postgres_url):
        pass


def test_it_dies_with_its_process(postgres_url: str) -> None:
    """A child that its holder has forked does not keep it."""
    then = "child = os.fork()\nif child: print(child, flush=True)\nsys.stdin.read()"
    with elsewhere(postgres_url, then) as holder:
        assert holder.stdout is not None
        orphan = int(holder.stdout.readline())
        try:
            holder.kill()
            holder.wait()
            module.PATIENCE_S = WAIT_S / 3
            lock = DatabaseLock(postgres_url)
            assert lock.held
            lock.release()
        finally:
            os.kill(orphan, 9)


def test_a_forked_child_leaves_its_parents_lock_alone(postgres_url: str) -> None:
    """The child cannot release it, and its end changes nothing."""
    with closing_lock(DatabaseLock(postgres_url, beat_s=0.05)) as lock:
        child = os.fork()
        if child == 0:
            lock.release()
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        before = lock._confirmed_at
        until(lambda: lock._confirmed_at > before)
        assert lock.held
        with pytest.raises(SetupError):
            DatabaseLock(postgres_url)


@contextmanager
def closing_lock(lock: DatabaseLock) -> Iterator[DatabaseLock]:
    """Release it at the end."""
    try:
        yield lock
    finally:
        lock.release()


def test_a_database_that_is_away(own_postgres: PostgresServer) -> None:
    """It is not held while the server is away, at first and later, and is taken again by itself."""
    url = own_postgres.url_of("postgres")
    own_postgres.kill()
    with closing_lock(DatabaseLock(url, beat_s=0.05)) as lock:
        assert not lock.held
        own_postgres.start()
        until(lambda: lock.held)
        own_postgres.kill()
        until(lambda: not lock.held)
        own_postgres.start()
        until(lambda: lock.held)
        assert lock.turns == 0


def test_another_that_came_first_after_an_absence(
    own_postgres: PostgresServer, caplog: pytest.LogCaptureFixture
) -> None:
    """Whoever lost it to another process says so once, waits, and knows that somebody else had counted."""
    url = own_postgres.url_of("postgres")
    lost = DatabaseLock(url, beat_s=0.05)
    with closing_lock(lost):
        lost._stopped.set()
        lost._thread.join()
        lost._stopped.clear()
        with elsewhere(url):
            for _ in range(3):
                lost._beat()
            assert not lost.held
        until(lambda: lost._beat() is None and lost.held)  # type: ignore[func-returns-value]
        assert lost.turns == 1
        assert caplog.text.count("asks no site") == 1
        lost._let_go()


def test_without_an_answer_it_is_not_trusted(postgres_url: str) -> None:
    """A connection that hangs holds nothing: the server may have let go of it."""
    now = 100.0
    with closing_lock(DatabaseLock(postgres_url, beat_s=WAIT_S, clock=lambda: now)) as lock:
        assert lock.held
        now += TRUST_S
        assert not lock.held


def _app(folder: Path, url: str) -> Flask:
    app = Flask("host", instance_path=str(folder))
    app.config.update(SPIDERPOOL_DATABASE_URL=url, CELERY={"broker_url": "memory://"})
    SpiderPool(app)
    return app


def test_the_memory_limiter_holds_it(postgres_url: str, tmp_path: Path) -> None:
    """Two apps with folders of their own, as in two containers, do not both count for one database."""
    with closing(_app(tmp_path / "a", postgres_url).extensions["spiderpool"]) as state:
        assert state.limiter().acquire("site", 0.0, 1).granted == 1
        other = _app(tmp_path / "b", postgres_url).extensions["spiderpool"]
        with closing(other), pytest.raises(SetupError, match="SPIDERPOOL_LIMITER_URL"):
            other.limiter()
        eager = _app(tmp_path / "c", postgres_url)
        eager.config["CELERY"] = {"task_always_eager": True}
        with closing(eager.extensions["spiderpool"]) as inline:
            assert inline.limiter().acquire("site", 0.0, 1).granted == 1
    with closing(_app(tmp_path / "b", postgres_url).extensions["spiderpool"]) as after:
        assert after.limiter().acquire("site", 0.0, 1).granted == 1


def test_on_sqlite_the_lock_lies_beside_the_database(sqlite_url: str, tmp_path: Path) -> None:
    """Two instance folders on one file are two processes too."""
    program = (
        "import sys\nfrom pathlib import Path\nfrom tests.state.test_database_lock import _app\n"
        "try:\n    _app(Path(sys.argv[1]), sys.argv[2]).extensions['spiderpool'].limiter(); print('free')\n"
        "except Exception as error:\n    print(type(error).__name__)\n"
    )

    def in_child() -> str:
        words = [sys.executable, "-c", program, str(tmp_path / "b"), sqlite_url]
        return subprocess.run(words, capture_output=True, text=True, check=True, timeout=60).stdout.strip()

    with closing(_app(tmp_path / "a", sqlite_url).extensions["spiderpool"]) as state:
        state.limiter()
        assert in_child() == "SetupError"
    assert in_child() == "free"
