"""The host's extensions, made once and bound to an app in :func:`example_app.create_app`."""

from __future__ import annotations

from flask_login import LoginManager
from flask_sqlalchemy import SQLAlchemy
from sqlalchemy.orm import DeclarativeBase

from flask_spiderpool import SpiderPool


class HostBase(DeclarativeBase):
    """Base of the host's own tables."""


db = SQLAlchemy(model_class=HostBase)
pool = SpiderPool()
login_manager = LoginManager()
