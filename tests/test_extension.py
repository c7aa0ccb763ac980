"""``SpiderPool``: wiring one app, and nothing but that."""

from __future__ import annotations

import gc
import logging
import weakref
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from celery import Celery
from flask import Flask
from flask_sqlalchemy import SQLAlchemy

from flask_spiderpool import Spider, SpiderPool, current_pool
from flask_spiderpool.errors import ConfigError, SetupError, UnknownSpider
from flask_spiderpool.models import Task, metadata
from flask_spiderpool.state import PoolState
from flask_spiderpool.terms import TASK_SLICE


def _app(name: str = "host", **config: Any) -> Flask:
    app = Flask(name)
    app.config.update({"CELERY": {"broker_url": "memory://"}, **config})
    return app


def _state(app: Flask) -> PoolState:
    state: PoolState = app.extensions["spiderpool"]
    return state


class Quotes(Spider):
    """A spider as a class."""

    name = "quotes"
    start_urls = ("https://quotes.example/",)

    def parse(self, page: Any) -> None:
        """Take nothing."""


# -- init_app


def test_both_ways_of_wiring() -> None:
    """``SpiderPool(app)`` and ``init_app`` come to the same."""
    first, second = _app(), _app()
    SpiderPool(first)
    SpiderPool().init_app(second)
    assert isinstance(_state(first), PoolState)
    assert isinstance(_state(second), PoolState)


def test_a_second_init_says_the_remedy() -> None:
    """One pool an app; the first one stays."""
    app = _app("shop")
    pool = SpiderPool(app)
    state = _state(app)
    for again in (pool, SpiderPool()):
        with pytest.raises(SetupError, match=r"'shop' has a spider pool already: call init_app once"):
            again.init_app(app)
    assert _state(app) is state


def test_a_wrong_setting_stops_the_start() -> None:
    """Every fault is said at once, and the app has no half-made pool."""
    app = _app(SPIDERPOOL_ATTEMPTS=0, SPIDERPOOL_SLIC_S=1)
    with pytest.raises(ConfigError) as caught:
        SpiderPool(app)
    assert len(caught.value.faults) == 2
    assert "spiderpool" not in app.extensions


def test_the_prefix_may_be_an_argument() -> None:
    """That of init_app goes before the constructor's, which goes before the setting."""
    apps = [_app(SPIDERPOOL_URL_PREFIX="/setting") for _ in range(3)]
    SpiderPool(apps[0])
    SpiderPool(apps[1], url_prefix="/constructor")
    SpiderPool(url_prefix="/constructor").init_app(apps[2], url_prefix="/call")
    assert [_state(app).settings.url_prefix for app in apps] == ["/setting", "/constructor", "/call"]
    with pytest.raises(ConfigError, match="SPIDERPOOL_URL_PREFIX"):
        SpiderPool(_app(), url_prefix="no slash")


def test_nothing_of_an_app_is_kept_on_the_extension() -> None:
    """An app that nobody holds any more is freed, although its pool lives on."""
    pool = SpiderPool()
    app = _app(SQLALCHEMY_DATABASE_URI="sqlite:///:memory:")
    SQLAlchemy(app)
    pool.init_app(app)
    with app.app_context():
        assert current_pool.app is app
    gone = weakref.ref(app)
    del app
    gc.collect()
    assert gone() is None
    pool.add_spider(Quotes)


# -- spiders and rules


def test_spiders_before_and_after_init_reach_every_app() -> None:
    """The order of definitions and init_app calls does not matter."""
    pool = SpiderPool()

    @pool.spider("before", start_urls=["https://a.example/"])
    def before(page: Any) -> None:
        """Take nothing."""

    first, second = _app(), _app()
    pool.init_app(first)
    pool.init_app(second)

    @pool.spider("after", start_urls=["https://a.example/"])
    def after(page: Any) -> None:
        """Take nothing."""

    pool.add_spider(Quotes)
    for app in (first, second):
        assert _state(app).registry.names() == ["after", "article", "before", "quotes"]
    assert callable(before)


def test_a_decorated_function_stays_a_function() -> None:
    """It can be called and tested as it is written."""
    pool = SpiderPool()

    @pool.spider("double")
    def double(page: int) -> int:
        return 2 * page

    assert double(4) == 8


def test_pools_do_not_share_spiders() -> None:
    """A spider of one extension is unknown to the apps of another."""
    one, other = SpiderPool(), SpiderPool()
    one.add_spider(Quotes)
    app = _app()
    other.init_app(app)
    with pytest.raises(UnknownSpider):
        _state(app).registry.get("quotes")


def test_a_name_that_is_taken() -> None:
    """Two spiders of one name are refused where the second is defined, before any app has it."""
    pool = SpiderPool()
    pool.add_spider(Quotes)
    with pytest.raises(SetupError, match="'quotes' already"):
        pool.spider("quotes")(lambda page: None)
    app = _app()
    pool.init_app(app)
    assert isinstance(_state(app).registry.get("quotes"), Quotes)


def test_a_rule_after_init_reaches_the_apps() -> None:
    """``@pool.access_rule`` may stand below init_app; an app's own argument goes before it only until then."""
    pool = SpiderPool()
    app = _app()
    pool.init_app(app)
    assert _state(app).access_rule is None

    @pool.access_rule
    def rule(user: Any) -> str:
        return "viewer"

    assert _state(app).access_rule is rule
    later = _app()
    pool.init_app(later)
    assert _state(later).access_rule is rule


def test_admin_is_kept_for_the_panel() -> None:
    """The host's Flask-Admin is held, given here or there."""
    first, second = _app(), _app()
    SpiderPool(first, admin="theirs")
    SpiderPool().init_app(second, admin="theirs")
    assert [_state(app).admin for app in (first, second)] == ["theirs", "theirs"]


# -- the verbs


def test_the_verbs_join_the_hosts_transaction(tmp_path: Path) -> None:
    """Started in ``db.session``: not there after a rollback, there after a commit."""
    app = _app(SQLALCHEMY_DATABASE_URI=f"sqlite:///{tmp_path}/host.db")
    db = SQLAlchemy(app)
    pool = SpiderPool(app)
    pool.add_spider(Quotes)
    with app.app_context():
        db.create_all()
        pool.start("quotes")
        db.session.rollback()
        assert db.session.query(Task).count() == 0
        task = pool.start("quotes", max_pages=5, by="ada")
        db.session.commit()
        assert pool.task(task.id) is db.session.get(Task, task.id)
        assert (task.max_pages, task.created_by) == (5, "ada")
        assert pool.pause(task.id, by="ada") == "accepted"
        assert pool.pause(str(task.id)) == "unchanged"
        assert pool.resume(task.id) == "accepted"
        assert pool.stop(task.id) == "accepted"
        db.session.commit()
        _state(app).store().verdict(task.id)
        assert pool.retry(task.id, max_pages=9) == "accepted"
        db.session.commit()
        assert pool.task(task.id).max_pages == 9
    _state(app).close()


def test_another_session_may_be_given(tmp_path: Path) -> None:
    """A host with sessions of its own hands one over, and commits it itself."""
    app = _app(SQLALCHEMY_DATABASE_URI=f"sqlite:///{tmp_path}/host.db")
    db = SQLAlchemy(app)
    pool = SpiderPool(app)
    pool.add_spider(Quotes)
    with app.app_context():
        db.create_all()
        with sa.orm.Session(db.engine) as mine:
            task = pool.start("quotes", session=mine)
            assert pool.task(task.id, session=mine) is task
            pool.stop(task.id, session=mine)
            mine.rollback()
        assert db.session.query(Task).count() == 0


def test_the_verbs_need_an_app_context() -> None:
    """Outside of one the error says what to write."""
    pool = SpiderPool(_app())
    with pytest.raises(SetupError, match=r"app\.app_context"):
        pool.start("quotes")


# -- the host's metadata


@pytest.mark.parametrize("order", ["argument", "db first", "db last"])
def test_the_tables_stand_in_the_hosts_metadata(order: str) -> None:
    """``create_all`` makes ours too, in whatever order the host initialises."""
    app = _app(SQLALCHEMY_DATABASE_URI="sqlite:///:memory:")
    db = SQLAlchemy()
    pool = SpiderPool()
    if order == "db first":
        db.init_app(app)
    pool.init_app(app, **({"db": db} if order == "argument" else {}))
    if order != "db first":
        db.init_app(app)
    with app.app_context():
        db.create_all()
        assert set(metadata.tables) <= set(sa.inspect(db.engine).get_table_names())


@pytest.mark.filterwarnings("error::sqlalchemy.exc.SAWarning")
def test_two_apps_of_one_db_copy_once() -> None:
    """The second app finds the tables there, and SQLAlchemy has nothing to warn of."""
    db = SQLAlchemy()
    for _ in range(2):
        app = _app(SQLALCHEMY_DATABASE_URI="sqlite:///:memory:")
        db.init_app(app)
        SpiderPool(app, db=db)
        with app.app_context():
            db.create_all()
    assert set(metadata.tables) == set(db.metadata.tables)


def test_a_database_of_its_own_leaves_the_hosts_metadata_alone(tmp_path: Path) -> None:
    """With SPIDERPOOL_DATABASE_URL the host's migrations do not see our tables."""
    app = _app(
        SQLALCHEMY_DATABASE_URI="sqlite:///:memory:", SPIDERPOOL_DATABASE_URL=f"sqlite:///{tmp_path}/own.db"
    )
    db = SQLAlchemy(app)
    SpiderPool(app, db=db)
    with app.app_context():
        assert set(db.metadata.tables) == set()


# -- Celery


def test_our_task_is_registered_when_a_worker_loads_its_modules() -> None:
    """On our app's ``import_modules`` signal, and on no other Celery app's."""
    app = _app()
    ours = app.extensions["celery"] = Celery("ours", broker="memory://", set_as_current=False)
    other = Celery("other", broker="memory://", set_as_current=False)
    SpiderPool(app)
    assert TASK_SLICE not in ours.tasks
    for celery in (other, ours):
        celery.loader.import_default_modules()
    assert TASK_SLICE in ours.tasks
    assert TASK_SLICE not in other.tasks


def test_our_task_withstands_the_hosts_settings() -> None:
    """Queue, acknowledgement, results and serializer are the task's own, whatever the host set for all."""
    app = _app()
    celery = app.extensions["celery"] = Celery("ours", broker="memory://", set_as_current=False)
    celery.conf.update(
        task_acks_late=True,
        task_ignore_result=False,
        task_serializer="pickle",
        task_default_queue="shop",
        task_reject_on_worker_lost=True,
    )
    SpiderPool(app)
    celery.loader.import_default_modules()
    task = celery.tasks[TASK_SLICE]
    assert (task.queue, task.serializer) == ("spiderpool", "json")
    assert (task.acks_late, task.ignore_result, task.reject_on_worker_lost) == (False, True, False)


def test_a_second_app_in_the_process_does_not_get_our_task() -> None:
    """Tasks are not shared between Celery apps."""
    app = _app()
    celery = app.extensions["celery"] = Celery("ours", broker="memory://", set_as_current=False)
    SpiderPool(app)
    celery.loader.import_default_modules()
    assert TASK_SLICE not in Celery("later", set_as_current=False).tasks


def test_apps_that_share_a_celery_app_in_eager_mode() -> None:
    """A global Celery app and an app factory, as in a test suite: the app that sends is the app that runs."""
    celery = Celery("shared", set_as_current=False)
    celery.conf.task_always_eager = True
    ran: list[str] = []
    for name in ("first", "second"):
        app = _app(name, SQLALCHEMY_DATABASE_URI="sqlite:///:memory:")
        db = SQLAlchemy(app)
        pool = SpiderPool(app, celery=celery)

        class Closed(Spider):
            name = "closed"
            start_urls = ("http://127.0.0.1:1/",)
            attempts = 1

        pool.add_spider(Closed)
        with app.app_context():
            db.create_all()
            task = pool.start("closed")
            db.session.commit()
            ran.append(pool.task(task.id).status)
        _state(app).close()
    assert ran == ["failed", "failed"]


def test_our_extension_leaves_the_root_logger_alone() -> None:
    """No handler, no level: logging is the host's."""
    root = logging.getLogger()
    before = (list(root.handlers), root.level)
    SpiderPool(_app())
    assert (list(root.handlers), root.level) == before
