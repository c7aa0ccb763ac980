"""A lock in PostgreSQL that says: this is the one worker process on this database."""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import threading
import weakref
from collections.abc import Callable

import sqlalchemy as sa

from flask_spiderpool.crawl.guard import boot_clock
from flask_spiderpool.errors import SetupError
from flask_spiderpool.store.engine import is_away

logger = logging.getLogger(__name__)

BEAT_S = 2.0  #: the connection is tried this often
#: Without an answer for so long the lock counts as lost. The server lets go of a connection later than that.
TRUST_S = 10.0
#: A predecessor that was killed has so long to be noticed by the server.
PATIENCE_S = 3.0
PAUSE_S = 0.2

_CONNECT = {
    "connect_timeout": 5,
    "keepalives": 1,
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 2,
    "tcp_user_timeout": 5000,
}
#: The server's side. A machine that died without a word would keep the lock for two hours else.
_SERVER = (
    "SET tcp_keepalives_idle = 15",
    "SET tcp_keepalives_interval = 5",
    "SET tcp_keepalives_count = 3",
    "SET idle_session_timeout = 0",
)
_KEY = "hashtextextended('spiderpool limiter ' || coalesce(current_schema(), ''), 0)"
_TAKE = sa.text(f"SELECT pg_try_advisory_lock({_KEY})")
_HOLDER = sa.text(
    "SELECT a.application_name FROM pg_locks l JOIN pg_stat_activity a USING (pid)"  # noqa: S608 - constants
    " WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1"
    " AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())"
    f" AND (l.classid::bigint << 32) | l.objid::bigint = {_KEY}"
)


class DatabaseLock:
    """An advisory lock of a session of its own, held until :meth:`release` or the end of the process.

    The constructor raises :class:`~flask_spiderpool.errors.SetupError`, which says the remedy, if another
    process holds it. When the database is away the lock is not held, and a thread goes on trying: what it
    guards must rest meanwhile. Costs one connection. It does nothing in a forked child, which must make its own.
    """

    def __init__(self, url: str, *, beat_s: float = BEAT_S, clock: Callable[[], float] = boot_clock) -> None:
        #: Counts how often others may have held it before us.
        self.turns = 0
        self._engine = _engine(url)
        self._beat_s = beat_s
        self._clock = clock
        self._connection: sa.Connection | None = None
        self._confirmed_at = 0.0
        self._refused = False
        self._stopped = threading.Event()
        self._pid = os.getpid()
        _all.add(self)
        self._take_or_refuse()
        self._thread = threading.Thread(target=self._run, name="spiderpool-database-lock", daemon=True)
        self._thread.start()

    @property
    def held(self) -> bool:
        """Tell whether this process holds the lock for sure."""
        return self._connection is not None and self._clock() - self._confirmed_at < TRUST_S

    def release(self) -> None:
        """Give the lock back. Idempotent; does nothing in a forked child."""
        if self._pid != os.getpid():
            return
        self._stopped.set()
        self._thread.join(BEAT_S)

    def _take_or_refuse(self) -> None:
        until = self._clock() + PATIENCE_S
        while True:
            holder = self._take()
            if holder is None:
                return
            if self._clock() >= until:
                self._let_go()
                raise SetupError(_refusal(holder))
            self._stopped.wait(PAUSE_S)

    def _run(self) -> None:
        try:
            while not self._stopped.wait(self._beat_s):
                try:
                    self._beat()
                except Exception:
                    # Whatever it was: without the thread the lock would never be held again.
                    logger.exception("the limiter's lock in the database could not be looked after")
                    self._let_go()
        finally:
            self._let_go()

    def _beat(self) -> None:
        """Try the connection; without one try to take the lock."""
        if self._connection is None:
            was_refused = self._refused
            holder = self._take()
            if holder is not None and not was_refused:
                logger.critical("%s. Until then this worker asks no site for anything", _refusal(holder))
            return
        asked_at = self._clock()
        try:
            self._connection.execute(sa.text("SELECT 1"))
            self._confirmed_at = asked_at
        except sa.exc.DBAPIError:
            logger.warning("the connection that holds the limiter's lock broke; it is made anew")
            self._let_go()

    def _take(self) -> str | None:
        """Connect and take the lock; return who has it if it is not to be had."""
        asked_at = self._clock()
        try:
            if self._connection is None:
                self._connection = _connect(self._engine)
            if not self._connection.scalar(_TAKE):
                holder = self._connection.scalar(_HOLDER) or "another process"
                self._let_go()
                self._refused = True
                return str(holder)
        except Exception as error:
            if not is_away(error):
                raise
            self._let_go()
            return None
        self._confirmed_at = asked_at
        if self._refused:
            self._refused = False
            self.turns += 1
        return None

    def _let_go(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(Exception):
                connection.close()

    def _forget_in_child(self) -> None:
        """The session must end with the parent, so the child keeps no descriptor of its socket open.

        Another file takes the descriptor's place: whatever the driver may still write goes nowhere.
        """
        if self._connection is None:
            return
        with contextlib.suppress(Exception):
            nowhere = os.open(os.devnull, os.O_RDWR)
            driver = self._connection.connection.driver_connection
            assert driver is not None
            os.dup2(nowhere, driver.fileno(), inheritable=False)
            os.close(nowhere)


def _engine(url: str) -> sa.Engine:
    name = f"spiderpool limiter {socket.gethostname()[:30]}:{os.getpid()}"
    return sa.create_engine(
        url,
        poolclass=sa.NullPool,
        isolation_level="AUTOCOMMIT",
        connect_args={**_CONNECT, "application_name": name},
    )


def _connect(engine: sa.Engine) -> sa.Connection:
    connection = engine.connect()
    for statement in _SERVER:
        # A server that is older, or no TCP: then it is so.
        with contextlib.suppress(sa.exc.DBAPIError):
            connection.exec_driver_sql(statement)
    return connection


def _refusal(holder: str) -> str:
    return (
        f"the memory limiter counts for one worker process only, and another one ({holder}) works on this"
        " database. Stop that worker, or set SPIDERPOOL_LIMITER_URL to Redis to run more than one"
    )


_all: weakref.WeakSet[DatabaseLock] = weakref.WeakSet()
_kept: list[DatabaseLock] = []  # of a parent: no finaliser may run on them


def _forget_in_child() -> None:
    for lock in list(_all):
        lock._forget_in_child()
        _kept.append(lock)
    _all.clear()


os.register_at_fork(after_in_child=_forget_in_child)
