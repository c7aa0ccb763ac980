"""Run a function in a transaction of the store's own engine: on the right thread, repeated when it may be."""

from __future__ import annotations

import contextlib
import logging
import os
import random
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

import sqlalchemy as sa

from flask_spiderpool.config import Settings
from flask_spiderpool.errors import Unavailable
from flask_spiderpool.store.engine import (
    begin_immediately,
    begin_reading,
    first_line,
    is_again,
    is_away,
    make_engine,
)
from flask_spiderpool.store.sql import Tx
from flask_spiderpool.store.writer import Writer

T = TypeVar("T")

log = logging.getLogger("spiderpool.store")

RETRY_S = 8.0  #: how long a call waits for a database that is away for a moment


class _Own:
    """What belongs to one process, made at first use."""

    def __init__(self, *, begun: bool) -> None:
        self.begun = begun  #: a parent's connections have been let go of, or there was no parent
        self.lock = threading.RLock()
        self.writer: Writer | None = None
        self.pool: ThreadPoolExecutor | None = None
        self.side: sa.Engine | None = None

    def the_writer(self) -> Writer:
        """Return the process's writer thread."""
        with self.lock:
            if self.writer is None:
                self.writer = Writer()
            return self.writer


class Transactions:
    """The engines, threads and retries of one store in one process.

    PostgreSQL: calls run on the calling thread, each on a pooled connection; renewals on one of their own.
    SQLite: writes run on the one writer thread, reads on the calling thread. A host's engine (eager mode)
    is used as it is, one call at a time. Everything is made at first use, and made anew in a forked child.
    """

    def __init__(
        self,
        engine: sa.Engine,
        settings: Settings,
        *,
        owns_engine: bool,
        renewals: bool,
        retry_s: float = RETRY_S,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._settings = settings
        self._owns = owns_engine
        self._retry_s = retry_s
        self._pause = pause
        self._renewals = renewals
        self.postgres = engine.dialect.name == "postgresql"
        if not owns_engine and self.postgres:
            engine = engine.execution_options(isolation_level="READ COMMITTED")
        self._engine = engine
        self._processes = {os.getpid(): _Own(begun=True)}
        if owns_engine and not self.postgres:
            begin_immediately(engine)

    @property
    def _own(self) -> _Own:
        """What belongs to this process. After a fork a parent's connections and threads are let go of, once.

        They stay referenced, so that nothing closes them; the child's lock is its own, because a thread of
        the parent may have held the parent's at the fork.
        """
        pid = os.getpid()
        own = self._processes.get(pid)
        if own is None:
            # Atomic: of two threads that come first together, both get the same.
            own = self._processes.setdefault(pid, _Own(begun=False))
        if not own.begun:
            with own.lock:
                if not own.begun:
                    self._engine.dispose(close=False)
                    own.begun = True
        return own

    def submit(self, fn: Callable[..., T], *args: Any, first: bool = False, **kw: Any) -> Future[T]:
        """Run a call of the store off the calling thread: the writer thread, or a small pool."""
        own = self._own
        if self._owns and not self.postgres:
            return own.the_writer().put(lambda: fn(*args, **kw), first=first)
        with own.lock:
            if own.pool is None:
                size = self._settings.store_threads if self.postgres else 1
                own.pool = ThreadPoolExecutor(size, thread_name_prefix="spiderpool-store")
            return own.pool.submit(fn, *args, **kw)

    def write(self, fn: Callable[[Tx], T], *, first: bool = False) -> T:
        """Run ``fn`` in one transaction and return its result, with races and short absences repeated.

        Raises :class:`~flask_spiderpool.errors.Unavailable` when the database stays away.
        """
        own = self._own
        if self.postgres:
            engine = self._side_engine(own) if first and self._renewals and self._owns else self._engine
            return self._repeat(engine, fn)
        if not self._owns:
            with own.lock:
                return self._repeat(self._engine, fn)
        result: T = own.the_writer().put(lambda: self._repeat(self._engine, fn), first=first).result()
        return result

    def read(self, fn: Callable[[Tx], T]) -> T:
        """Run ``fn``, which changes nothing, in one transaction; on SQLite it waits for no writer."""
        own = self._own
        if self.postgres:
            return self._repeat(self._engine, fn)
        if not self._owns:
            with own.lock:
                return self._repeat(self._engine, fn)
        return self._repeat(self._side_engine(own), fn)

    @contextlib.contextmanager
    def reading(self) -> Any:
        """A connection for streamed reading, closed at the end."""
        own = self._own
        engine = self._engine if self.postgres or not self._owns else self._side_engine(own)
        with engine.connect() as connection:
            yield connection

    def close(self) -> None:
        """End threads and connections; what is queued is finished first. Idempotent."""
        own = self._processes.get(os.getpid())
        if own is None:  # a child that has not used it: everything is its parent's
            return
        with own.lock:
            writer, pool, side = own.writer, own.pool, own.side
        if writer is not None:
            writer.close()
        if pool is not None:
            pool.shutdown()
        if side is not None:
            side.dispose()
        if self._owns:
            self._engine.dispose()

    def wait(self, wait_s: float) -> None:
        """Pause the calling thread."""
        self._pause(wait_s)

    @property
    def engine(self) -> sa.Engine:
        """The engine of the writes."""
        return self._engine

    def _side_engine(self, own: _Own) -> sa.Engine:
        """PostgreSQL: the renewals' own connection. SQLite: the readers' connections."""
        with own.lock:
            if own.side is None:
                size = 1 if self.postgres else self._settings.store_threads
                side = make_engine(self._engine.url, connections=size)
                if not self.postgres:
                    begin_reading(side)
                own.side = side
            return own.side

    def _repeat(self, engine: sa.Engine, fn: Callable[[Tx], T]) -> T:
        began = time.monotonic()
        tries = 0
        while True:
            tries += 1
            try:
                return _once(engine, fn)
            except Exception as error:
                if not (is_again(error) or is_away(error)):
                    raise
                if time.monotonic() - began > self._retry_s:
                    raise Unavailable(
                        f"the pool's database cannot be used just now: {first_line(error)}"
                    ) from error
                log.debug("transaction repeated: %s", first_line(error))
            self._pause(min(1.0, 0.005 * 2**tries) * random.uniform(0.5, 1.5))  # noqa: S311 - jitter


def _once(engine: sa.Engine, fn: Callable[[Tx], T]) -> T:
    with engine.connect() as connection:
        try:
            with connection.begin():
                return fn(Tx(connection))
        except Exception as error:
            # The driver's own errors pass SQLAlchemy by: tell the pool of a broken connection.
            if is_away(error) and not connection.closed:
                with contextlib.suppress(Exception):
                    connection.invalidate(error)
            raise
