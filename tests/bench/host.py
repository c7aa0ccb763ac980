"""The host app of the benchmark: ``BENCH_CONFIG`` is its configuration as JSON, ``BENCH_INSTANCE`` its folder."""

from __future__ import annotations

import json
import os

from flask import Flask
from flask_sqlalchemy import SQLAlchemy
from sqlalchemy.orm import DeclarativeBase

from flask_spiderpool.extension import SpiderPool


class Base(DeclarativeBase):
    """No models of its own."""


db = SQLAlchemy(model_class=Base)
pool = SpiderPool()


def create_app() -> Flask:
    """Make the app."""
    app = Flask(__name__, instance_path=os.environ["BENCH_INSTANCE"])
    app.config.from_mapping(json.loads(os.environ["BENCH_CONFIG"]))
    db.init_app(app)
    pool.init_app(app, db=db)
    return app
