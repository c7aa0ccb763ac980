"""``SpiderPool``: wires the pool into one Flask app. The composition root of web and worker processes."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar
from uuid import UUID

import flask
from celery import Celery, signals
from flask import Flask

from flask_spiderpool.config import Settings, settings_from
from flask_spiderpool.crawl.spider import FunctionSpider, Spider, SpiderRegistry
from flask_spiderpool.errors import SetupError
from flask_spiderpool.extension.broker import find_or_make_celery, known_celery
from flask_spiderpool.extension.outbox import Outbox
from flask_spiderpool.extension.role import is_worker_process
from flask_spiderpool.extension.tables import copy_tables, route_models
from flask_spiderpool.models import Task
from flask_spiderpool.state import EXTENSION_KEY, AccessRule, AnySession, PoolState, current_pool
from flask_spiderpool.terms import TASK_SLICE, Effect

__all__ = ["SpiderPool", "is_worker_process"]

F = TypeVar("F", bound=Callable[..., Any])


class SpiderPool:
    """The extension. Nothing of an app is kept on it, so one object serves any number of apps.

    ``db`` is the host's Flask-SQLAlchemy, ``celery`` its Celery app, ``admin`` its Flask-Admin; what is not
    given is looked up in ``app.extensions`` at first use, so the order of ``init_app`` calls does not matter.
    """

    def __init__(
        self,
        app: Flask | None = None,
        db: Any = None,
        celery: Celery | None = None,
        admin: Any = None,
        *,
        access_rule: AccessRule | None = None,
        url_prefix: str | None = None,
    ) -> None:
        self._db = db
        self._celery = celery
        self._admin = admin
        self._access_rule = access_rule
        self._url_prefix = url_prefix
        self._spiders = SpiderRegistry()
        # Weak, and only to hand on spiders and rules that are defined after init_app.
        self._states: weakref.WeakSet[PoolState] = weakref.WeakSet()
        if app is not None:
            self.init_app(app)

    def init_app(
        self,
        app: Flask,
        db: Any = None,
        celery: Celery | None = None,
        admin: Any = None,
        *,
        access_rule: AccessRule | None = None,
        url_prefix: str | None = None,
    ) -> None:
        """Give ``app`` a pool. What is not given here is taken from the constructor.

        Raises :class:`~flask_spiderpool.errors.ConfigError` with every wrong setting at once, and
        :class:`~flask_spiderpool.errors.SetupError` when the app has a pool already.
        """
        if EXTENSION_KEY in app.extensions:
            raise SetupError(
                f"the app {app.name!r} has a spider pool already: call init_app once an app, or make a second app"
            )
        settings = _settings(app, self._url_prefix if url_prefix is None else url_prefix)
        state = _make_state(app, settings, self._celery if celery is None else celery)
        state.admin = self._admin if admin is None else admin
        state.access_rule = self._access_rule if access_rule is None else access_rule
        for spider in self._spiders:
            if spider.name not in state.registry:
                state.registry.add(spider)
        _wire_tables(app, state, self._db if db is None else db)
        if not is_worker_process():
            from flask_spiderpool import web

            web.register(app, state)
        app.extensions[EXTENSION_KEY] = state
        self._states.add(state)

    # -- definitions -------------------------------------------------------------------------------------

    def spider(self, name: str, **options: Any) -> Callable[[F], F]:
        """Register the decorated function as the ``parse`` of a spider called ``name``."""

        def register(parse: F) -> F:
            self.add_spider(FunctionSpider(name, parse, **options))
            return parse

        return register

    def add_spider(self, spider: Spider | type[Spider]) -> None:
        """Register a spider in every app of this extension, those that were inited before too."""
        added = self._spiders.add(spider)
        for state in self._states:
            state.registry.add(added)

    def access_rule(self, rule: AccessRule) -> AccessRule:
        """Register the decorated function: given the host's user, it returns a role or None."""
        self._access_rule = rule
        for state in self._states:
            state.access_rule = rule
        return rule

    # -- the verbs, on the pool of the current app -----------------------------------------------------------

    def start(self, spider: str, *, session: AnySession | None = None, **params: Any) -> Task:
        """Begin a task of ``spider``; it joins the host's transaction: a rollback means it never was.

        ``params``: ``start_urls``, ``by``, ``owner``, ``note``, and the spider's own options for this task
        alone (``max_pages``, ``delay_s`` ...). ``session`` is the host's ``db.session`` if not given.
        """
        return current_pool.start(spider, session=session, **params)

    def pause(
        self, task_id: UUID | str, *, by: str | None = None, session: AnySession | None = None
    ) -> Effect:
        """Pause a task: what was started finishes, nothing more starts until ``resume``."""
        return current_pool.pause(task_id, by=by, session=session)

    def resume(
        self, task_id: UUID | str, *, by: str | None = None, session: AnySession | None = None
    ) -> Effect:
        """Go on with a paused task."""
        return current_pool.resume(task_id, by=by, session=session)

    def stop(
        self, task_id: UUID | str, *, by: str | None = None, session: AnySession | None = None
    ) -> Effect:
        """End a task; ``retry`` can go on with it later."""
        return current_pool.stop(task_id, by=by, session=session)

    def retry(
        self,
        task_id: UUID | str,
        *,
        by: str | None = None,
        max_pages: int | None = None,
        session: AnySession | None = None,
    ) -> Effect:
        """Go on with an ended task: failed requests are asked for again."""
        return current_pool.retry(task_id, by=by, max_pages=max_pages, session=session)

    def task(self, task_id: UUID | str, *, session: AnySession | None = None) -> Task:
        """Return a task; raises :class:`~flask_spiderpool.errors.UnknownTask`."""
        return current_pool.task(task_id, session=session)


def _settings(app: Flask, url_prefix: str | None) -> Settings:
    config = dict(app.config)
    if url_prefix is not None:
        config["SPIDERPOOL_URL_PREFIX"] = url_prefix
    return settings_from(config, os.environ, may_open=app.debug or app.testing)


def _make_state(app: Flask, settings: Settings, given: Celery | None) -> PoolState:
    @contextmanager
    def enter_app() -> Iterator[None]:
        # Flask-SQLAlchemy removes its session when the context is popped.
        with app.app_context():
            yield

    state = PoolState(
        app,
        settings,
        SpiderRegistry(),
        celery=partial(find_or_make_celery, app, given, settings),
        enter_app=enter_app,
    )
    reference = weakref.ref(state)

    def eager_task() -> Any | None:
        celery = state.celery()
        if not celery.conf.task_always_eager:
            return None
        _register_tasks(celery, reference)
        return celery.tasks[TASK_SLICE]

    def on_import_modules(sender: Any = None, **_: Any) -> None:
        # Worker signals are process-global: other Celery apps are none of our business.
        if sender is not None and sender is known_celery(app, given):
            _register_tasks(sender, reference)

    state.outlet = Outbox(state.celery, state.bus, eager_task)
    signals.import_modules.connect(on_import_modules)
    state.receivers.append(on_import_modules)
    return state


def _register_tasks(celery: Celery, state: weakref.ref[PoolState]) -> None:
    """Register our tasks on ``celery``; where several apps share one Celery app, the latest has them."""
    celery.spiderpool_state = state
    if TASK_SLICE not in celery.tasks:
        from flask_spiderpool.tasks import make_tasks

        make_tasks(celery, lambda: celery.spiderpool_state())


def _wire_tables(app: Flask, state: PoolState, db: Any) -> None:
    """Copy the tables into the host's metadata, now or when its ``db`` turns up."""
    settings = state.settings
    if settings.database_url is not None:
        return
    route_models(settings.bind_key)
    if db is not None and copy_tables(db, settings.bind_key):
        return

    def on_context(sender: Flask, **_: Any) -> None:
        found = sender.extensions.get("sqlalchemy")
        if found is not None and copy_tables(found, settings.bind_key):
            flask.appcontext_pushed.disconnect(on_context, sender)

    flask.appcontext_pushed.connect(on_context, app)
    state.receivers.append(on_context)
