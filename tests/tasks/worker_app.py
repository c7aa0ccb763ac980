"""The host app of the tests that start real workers: ``flask --app tests.tasks.worker_app``.

Where it keeps things stands in ``WORKER_APP_FOLDER`` and ``WORKER_APP_DATABASE``; the pool's settings come from
the environment.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator
from typing import Any

from flask import Flask
from flask_sqlalchemy import SQLAlchemy

from flask_spiderpool import SpiderPool
from flask_spiderpool.crawl.spider import ArticleSpider
from flask_spiderpool.tasks.loop import LoopThread

db = SQLAlchemy()
pool = SpiderPool()


@pool.spider("items", follow=True)
def items(page: Any) -> Iterator[Any]:
    """One item a page, that says which process made it and what that process had imported."""
    webby = {"flask_admin", "flask_smorest", "flask_spiderpool.web"} & set(sys.modules)
    yield {"url": page.url, "pid": os.getpid(), "web_modules": sorted(webby)}


@pool.spider("breaker")
def breaker(page: Any) -> None:
    """End the event loop of the process that runs it, as a ``SystemExit`` that passes every handler would."""
    for thing in gc.get_objects():
        if isinstance(thing, LoopThread):
            thing.loop.call_soon_threadsafe(sys.exit, 7)


pool.add_spider(ArticleSpider("pages"))


def create_app() -> Flask:
    """Make the app."""
    app = Flask(__name__, instance_path=os.environ["WORKER_APP_FOLDER"])
    app.config.update(SECRET_KEY="test", SQLALCHEMY_DATABASE_URI=os.environ["WORKER_APP_DATABASE"])
    db.init_app(app)
    pool.init_app(app, db=db)
    return app
