"""``task_always_eager``: a task runs to its end inside the commit that began it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from flask import Flask
from flask_sqlalchemy import SQLAlchemy

from flask_spiderpool import SpiderPool
from flask_spiderpool.models import Item, Task
from tests.site.server import Site

MakeRing = Callable[..., Site]


@pytest.fixture(params=["memory", "file"])
def eager_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Eager mode works on a database in memory too, since the store then uses the host's engine."""
    return "sqlite:///:memory:" if request.param == "memory" else f"sqlite:///{tmp_path}/eager.db"


@pytest.fixture
def site(make_ring: MakeRing) -> Site:
    return make_ring(12)


@pytest.fixture
def app(eager_url: str, site: Site, tmp_path: Path) -> Iterator[Flask]:
    db = SQLAlchemy()
    pool = SpiderPool()

    @pool.spider("items", start_urls=[site.url + "/p/0"], follow=True)
    def items(page: Any) -> Iterator[Any]:
        yield {"title": page.css("title::text").get()}

    app = Flask("eager", instance_path=str(tmp_path))
    app.config.update(
        SQLALCHEMY_DATABASE_URI=eager_url,
        SPIDERPOOL_ALLOW_ADDRESSES=[site.host],
        SPIDERPOOL_DELAY_S=0,
        SPIDERPOOL_BACKOFF_S=0.1,
        CELERY={"task_always_eager": True},
    )
    db.init_app(app)
    pool.init_app(app, db=db)
    with app.app_context():
        db.create_all()
        app.extensions["test_pool"] = pool
        yield app
        db.session.remove()
    app.extensions["spiderpool"].close()


def test_a_task_runs_to_its_end_inside_the_commit(app: Flask, site: Site):
    """After the commit every page has been fetched once and every item is there."""
    db, pool = app.extensions["sqlalchemy"], app.extensions["test_pool"]
    task = pool.start("items")
    assert site.paths() == []
    db.session.commit()
    found = db.session.get(Task, task.id, populate_existing=True)
    assert (found.status, found.done, found.items) == ("finished", 12, 12)
    assert db.session.query(Item).count() == 12
    assert sorted(path for path in site.paths() if path != "/robots.txt") == sorted(
        f"/p/{i}" for i in range(12)
    )


def test_a_rollback_means_that_the_task_never_was(app: Flask, site: Site):
    """Nothing is asked of the site."""
    db, pool = app.extensions["sqlalchemy"], app.extensions["test_pool"]
    pool.start("items")
    db.session.rollback()
    assert site.paths() == []
    assert db.session.query(Task).count() == 0


def test_retries_are_waited_for(app: Flask, site: Site):
    """There is no keeper in eager mode: the loop itself waits until a retry is ripe."""
    db, pool = app.extensions["sqlalchemy"], app.extensions["test_pool"]
    from tests.site.server import Reply

    answers = iter([Reply("busy", status=503), Reply("<p>now</p>")])
    site.pages["/late"] = lambda seen: next(answers)
    task = pool.start("items", start_urls=site.url + "/late", max_depth=0)
    db.session.commit()
    found = db.session.get(Task, task.id, populate_existing=True)
    assert (found.status, found.done, found.retries) == ("finished", 1, 1)


def test_no_thread_of_the_runtime_is_left(app: Flask, site: Site):
    """A test suite in eager mode must not collect loops and renewal threads."""
    db, pool = app.extensions["sqlalchemy"], app.extensions["test_pool"]
    pool.start("items", max_pages=1)
    db.session.commit()
    names = {thread.name for thread in threading.enumerate()}
    assert not names & {"spiderpool-loop", "spiderpool-renewal", "spiderpool-keeper", "spiderpool-beat"}
