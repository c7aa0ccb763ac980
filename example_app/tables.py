"""Makes the host's own tables at first use; the pool's tables are the pool's business.

``bookmark`` refers to a table of the pool, so it is made once that one stands (``flask spiderpool db
upgrade``, or ``demo`` and ``up``, which do it themselves).
"""

from __future__ import annotations

import sqlalchemy as sa
from flask import Flask, current_app
from sqlalchemy.exc import IntegrityError, OperationalError, ProgrammingError

from example_app.extensions import db
from example_app.models import ROLES, Bookmark, User
from flask_spiderpool.models import Document

_READY = "example_app_tables"

#: Name and password of the demo users are the same word and "lantern": the README prints them.
DEMO_USERS = {role: f"{role}-lantern" for role in ROLES}


def prepare_tables() -> bool:
    """Make what is missing; return whether the pool's tables stand too. Costs nothing once they do."""
    app: Flask = current_app._get_current_object()  # type: ignore[attr-defined]
    if app.extensions.get(_READY):
        return True
    inspector = sa.inspect(db.engine)
    has_pool = inspector.has_table(Document.__tablename__)
    wanted = [User, Bookmark] if has_pool else [User]
    missing = [
        db.metadata.tables[model.__tablename__]
        for model in wanted
        if not inspector.has_table(model.__tablename__)
    ]
    if missing:
        _create(missing)
    if app.config["DEMO_USERS"]:
        _add_demo_users()
    app.extensions[_READY] = has_pool
    return has_pool


def _create(tables: list[sa.Table]) -> None:
    try:
        db.metadata.create_all(db.engine, tables=tables)
    except (OperationalError, ProgrammingError):
        # Web and worker may come here at the same moment; the second finds the tables made.
        db.metadata.create_all(db.engine, tables=tables)


def _add_demo_users() -> None:
    known = set(db.session.scalars(sa.select(User.name)))
    for name, password in DEMO_USERS.items():
        if name not in known:
            user = User(name=name, role=name)
            user.set_password(password)
            db.session.add(user)
    try:
        db.session.commit()
    except IntegrityError:
        db.session.rollback()  # another process added them just now
