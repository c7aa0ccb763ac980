"""An app that serves a site of six pages and crawls it: ``flask --app tests.cli.demo_app``."""

from __future__ import annotations

import os

from flask import Flask
from flask_sqlalchemy import SQLAlchemy

from flask_spiderpool import SpiderPool
from flask_spiderpool.crawl.spider import ArticleSpider

PAGES = 6


def create_app() -> Flask:
    """Make the app; what it keeps lies in ``DEMO_APP_FOLDER``."""
    folder = os.environ["DEMO_APP_FOLDER"]
    app = Flask(__name__, instance_path=folder)
    app.config.update(
        SECRET_KEY="test",
        SQLALCHEMY_DATABASE_URI=f"sqlite:///{folder}/demo.db",
        DEMO_SPIDER="site",
        DEMO_PATH="/site/0",
    )
    db, pool = SQLAlchemy(), SpiderPool()
    pool.add_spider(ArticleSpider("site", include=["/site/"]))
    db.init_app(app)
    pool.init_app(app, db=db)

    @app.get("/site/<int:number>")
    def page(number: int) -> str:
        links = "".join(f'<a href="/site/{i}">{i}</a>' for i in (number + 1, number * 2) if i < PAGES)
        words = f"Page {number} of the little site has something to say, and says it at length. " * 5
        return f"<title>Page {number}</title><article><h1>Page {number}</h1><p>{words}</p></article>{links}"

    return app
