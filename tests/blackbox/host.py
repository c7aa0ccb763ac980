"""The app under test: a host with a database of its own, made from the environment.

``BLACKBOX_CONFIG`` is the app's configuration as JSON; ``BLACKBOX_INSTANCE`` its instance folder. The
User-Agent names the process, so that the site's log says which life of which worker asked.
"""

from __future__ import annotations

import json
import os

from flask import Flask
from flask_sqlalchemy import SQLAlchemy
from sqlalchemy.orm import DeclarativeBase

from flask_spiderpool.extension import SpiderPool


class Base(DeclarativeBase):
    """The host's own models would stand here."""


db = SQLAlchemy(model_class=Base)
pool = SpiderPool()


def create_app() -> Flask:
    """Make the app."""
    app = Flask("blackbox", instance_path=os.environ["BLACKBOX_INSTANCE"])
    app.config.from_mapping(json.loads(os.environ["BLACKBOX_CONFIG"]))
    app.config["SPIDERPOOL_USER_AGENT"] = f"blackbox-test pid/{os.getpid()}"
    db.init_app(app)
    pool.init_app(app, db=db)
    return app
