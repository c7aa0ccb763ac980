"""What one app owns of the pool: ``app.extensions["spiderpool"]``, reached by :data:`current_pool`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Protocol, cast
from uuid import UUID

import sqlalchemy as sa
from celery import Celery
from flask import Flask, current_app, has_app_context
from sqlalchemy.orm import Session, scoped_session
from werkzeug.local import LocalProxy

from flask_spiderpool import control
from flask_spiderpool.bus import Bus, CommandMessage, bus_from_url
from flask_spiderpool.config import Settings
from flask_spiderpool.crawl.spider import SpiderRegistry
from flask_spiderpool.errors import SetupError, UnknownTask
from flask_spiderpool.limiter import Limiter, limiter_from_url
from flask_spiderpool.models import Task
from flask_spiderpool.pulse.base import Pulse
from flask_spiderpool.state.database import HostDatabase, is_memory
from flask_spiderpool.state.database_lock import DatabaseLock
from flask_spiderpool.state.process import PerProcess
from flask_spiderpool.store import Message, Store
from flask_spiderpool.store.bus import DatabaseBus
from flask_spiderpool.store.pulse import DatabasePulse
from flask_spiderpool.terms import Effect, Role, Verb

__all__ = ["EXTENSION_KEY", "AccessRule", "Outlet", "PoolState", "current_pool"]

EXTENSION_KEY = "spiderpool"

#: Given the host's user (None: nobody, or a host without Flask-Login), the role that it has in the pool.
AccessRule = Callable[[Any], "Role | str | None"]

AnySession = Session | scoped_session[Any]


class Outlet(Protocol):
    """The ways out of the process, made by the extension: both return at once and raise nothing."""

    def send(self, messages: Sequence[Message]) -> None:
        """Publish messages of slots; in eager mode run them, each to its end."""
        ...

    def tell(self, command: CommandMessage) -> None:
        """Send a command on the bus."""
        ...

    def close(self) -> None:
        """Let what waits leave, for a moment; idempotent."""
        ...


class PoolState:
    """One app's pool: settings, spiders, access rule, the verbs, and this process's connections.

    Engines, connections and threads are made at first use and made anew in a forked child.
    """

    def __init__(
        self,
        app: Flask,
        settings: Settings,
        registry: SpiderRegistry,
        *,
        celery: Callable[[], Celery],
        enter_app: Callable[[], AbstractContextManager[None]],
    ) -> None:
        self.app = app
        self.settings = settings
        self.registry = registry
        self.access_rule: AccessRule | None = None
        self.admin: Any = None  #: the host's Flask-Admin, for the control panel
        self.database = HostDatabase(app, settings)
        self.outlet: Outlet  #: set by the extension
        self.celery = celery  #: the host's Celery app, or the one made for it; looked up at first use
        self.enter_app = (
            enter_app  #: a context in which host code runs: app context, ``db.session`` removed after
        )
        self.receivers: list[Any] = []  #: signals hold their receivers weakly; they live as long as the app
        self._parts = PerProcess()

    # -- the verbs ---------------------------------------------------------------------------------------

    def start(self, spider: str, *, session: AnySession | None = None, **params: Any) -> Task:
        """Begin a task: see :func:`flask_spiderpool.control.start`. Joins the host's transaction."""
        with self._joined(session) as joined:
            return control.start(joined, self, spider, **params)

    def pause(self, task_id: UUID | str, **how: Any) -> Effect:
        """Pause a task: what was started finishes, nothing more is started until ``resume``."""
        return self._change(Verb.PAUSE, task_id, **how)

    def resume(self, task_id: UUID | str, **how: Any) -> Effect:
        """Go on with a paused task, where it was."""
        return self._change(Verb.RESUME, task_id, **how)

    def stop(self, task_id: UUID | str, **how: Any) -> Effect:
        """End a task: what was started finishes; ``retry`` can go on with it later."""
        return self._change(Verb.STOP, task_id, **how)

    def retry(
        self,
        task_id: UUID | str,
        *,
        by: str | None = None,
        note: str | None = None,
        max_pages: int | None = None,
        session: AnySession | None = None,
    ) -> Effect:
        """Go on with an ended task: failed requests are asked for again."""
        with self._joined(session) as joined:
            return control.retry(joined, self, task_id, by=by, note=note, max_pages=max_pages)[1]

    def task(self, task_id: UUID | str, *, session: AnySession | None = None) -> Task:
        """Return a task; raises :class:`~flask_spiderpool.errors.UnknownTask`."""
        known = control.as_task_id(task_id)
        with self._joined(session) as joined, control.translated():
            task = joined.get(Task, known)
            if task is None:
                raise UnknownTask(f"no task has the id {known}")
            return task

    def _change(
        self,
        verb: Verb,
        task_id: UUID | str,
        *,
        by: str | None = None,
        note: str | None = None,
        session: AnySession | None = None,
    ) -> Effect:
        with self._joined(session) as joined:
            return control.change(joined, self, verb, task_id, by=by, note=note)[1]

    @contextmanager
    def _joined(self, session: AnySession | None) -> Iterator[Session]:
        """Yield the session given, else the host's, uncommitted; a pool with its own database commits."""
        if session is not None:
            yield session() if isinstance(session, scoped_session) else session
        elif self.database.is_hosts:
            yield self.database.host_session()
        else:
            with self.session() as own:
                yield own
                own.commit()

    def session(self) -> AbstractContextManager[Session]:
        """A session on the database of the pool's tables: the host's ``db.session`` where it can be.

        The caller commits; leaving by an exception rolls back.
        """
        return self.database.session(None if self.database.is_hosts else self._own_engine())

    # -- ways out ----------------------------------------------------------------------------------------

    def send(self, messages: Sequence[Message]) -> None:
        """Publish messages of slots. Returns at once and raises nothing (eager mode: runs them)."""
        self.outlet.send(messages)

    def tell(self, command: CommandMessage) -> None:
        """Send a command on the bus. Returns at once and raises nothing."""
        self.outlet.tell(command)

    # -- this process's connections ----------------------------------------------------------------------

    @property
    def eager(self) -> bool:
        """Tell whether Celery runs tasks inline (``task_always_eager``)."""
        return bool(self.celery().conf.task_always_eager)

    def store(self) -> Store:
        """Return this process's store; on the host's own engine only in eager mode."""
        return self._parts.get("store", self._make_store)

    def bus(self) -> Bus:
        """Return this process's bus."""
        return self._parts.get("bus", self._make_bus)

    def pulse(self) -> Pulse:
        """Return this process's pulse."""
        return self._parts.get("pulse", lambda: DatabasePulse(self.store()))

    def limiter(self) -> Limiter:
        """Return this process's limiter. For workers only: the memory limiter refuses a second process."""
        return self._parts.get("limiter", self._make_limiter)

    def database_url(self) -> str:
        """Return the URL of the database that holds the pool's tables, password in."""
        return self.database.url()

    def close(self) -> None:
        """Give back what this process holds. Idempotent; what is used again is made again."""
        self.outlet.close()
        for part in self._parts.take_all():
            if isinstance(part, sa.Engine):
                part.dispose()
            elif hasattr(part, "close"):
                part.close()

    def _make_store(self) -> Store:
        if self.eager and self.database.is_hosts:
            return Store(self.database.engine(), self.settings, owns_engine=False)
        return Store.open(self._url(), self.settings)

    def _url(self) -> str:
        url = self.database.url()
        if is_memory(url):
            raise SetupError(
                "an SQLite database in memory lives in one connection, and the pool's store has its own: name"
                " a file (sqlite:///app.db), or set task_always_eager in Celery's configuration for tests"
            )
        return url

    def _own_engine(self) -> sa.Engine:
        return self._parts.get("engine", lambda: sa.create_engine(self._url(), pool_pre_ping=True))

    def _make_bus(self) -> Bus:
        settings = self.settings
        url = settings.bus_url or settings.redis_url or "database://"
        if self.eager:
            url = "memory://"
        if url.startswith("database:"):
            return DatabaseBus(self.store(), settings.bus_poll_s)
        return bus_from_url(url, prefix=settings.namespace)

    def _make_limiter(self) -> Limiter:
        settings = self.settings
        url = settings.limiter_url or settings.redis_url or "memory://"
        if self.eager:
            return limiter_from_url(url, prefix=settings.namespace)
        # One process a database: on PostgreSQL workers may be on other machines, on SQLite in other folders.
        database = sa.make_url(self.database_url())
        hold = None
        lock_path = Path(self.app.instance_path) / "spiderpool-limiter.lock"
        if database.get_backend_name() == "postgresql":
            hold = partial(DatabaseLock, self.database_url())
        elif database.database and not database.database.startswith(("file:", ":")):
            lock_path = Path(database.database + "-limiter.lock")
        return limiter_from_url(url, prefix=settings.namespace, lock_path=lock_path, hold=hold)


def _current_state() -> PoolState:
    if not has_app_context():
        raise SetupError("the spider pool is reached in an app context only: use `with app.app_context():`")
    with suppress(KeyError):
        return cast(PoolState, current_app.extensions[EXTENSION_KEY])
    raise SetupError(f"the app {current_app.name!r} has no spider pool: call SpiderPool.init_app(app)")


#: The :class:`PoolState` of the current app.
current_pool: PoolState = cast(PoolState, LocalProxy(_current_state))
