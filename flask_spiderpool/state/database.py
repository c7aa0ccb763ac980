"""Where the pool's tables are: in the host's database, or in one of the pool's own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from typing import Any

import sqlalchemy as sa
from flask import Flask, current_app, has_app_context
from sqlalchemy.orm import Session

from flask_spiderpool.config import Settings
from flask_spiderpool.errors import SetupError

_NO_DATABASE = (
    "the spider pool has no database: init Flask-SQLAlchemy on the app (db.init_app(app)), or name one of the"
    " pool's own by SPIDERPOOL_DATABASE_URL"
)


class HostDatabase:
    """The database of one app's pool, looked up at first use: hosts init their extensions in any order."""

    def __init__(self, app: Flask, settings: Settings) -> None:
        self._app = app
        self._settings = settings
        self._bind_key = settings.bind_key
        self._checked = False

    @property
    def is_hosts(self) -> bool:
        """Tell whether the pool's tables are in a database of the host's ``db``."""
        return self._settings.database_url is None and self.db is not None

    @property
    def db(self) -> Any | None:
        """The host's Flask-SQLAlchemy, if it has been initialised on the app."""
        return self._app.extensions.get("sqlalchemy")

    def engine(self) -> sa.Engine:
        """Return the host's own engine; raises :class:`~flask_spiderpool.errors.SetupError`."""
        if self.db is None:
            raise SetupError(_NO_DATABASE)
        inside = has_app_context() and current_app._get_current_object() is self._app  # type: ignore[attr-defined]
        with nullcontext() if inside else self._app.app_context():
            engines: dict[str | None, sa.Engine] = self.db.engines
        if self._bind_key not in engines:
            raise SetupError(
                f"SPIDERPOOL_BIND_KEY is {self._bind_key!r}, but SQLALCHEMY_BINDS has no such key"
                if self._bind_key is not None
                else "SQLALCHEMY_DATABASE_URI is not set; name one of SQLALCHEMY_BINDS by SPIDERPOOL_BIND_KEY"
            )
        return engines[self._bind_key]

    def url(self) -> str:
        """Return the database's URL, password in."""
        if self._settings.database_url is not None:
            return self._settings.database_url
        return self.engine().url.render_as_string(hide_password=False)

    def host_session(self) -> Session:
        """Return the host's ``db.session`` of the app context that is active."""
        if self.db is None:
            raise SetupError(_NO_DATABASE)
        if not self._checked:
            _check_driver(self.engine())
            self._checked = True
        session: Session = self.db.session()
        return session

    @contextmanager
    def session(self, own_engine: sa.Engine | None) -> Iterator[Session]:
        """Yield the host's ``db.session`` (of the app context that is active), or one on ``own_engine``.

        Nothing is committed here; an exception rolls back.
        """
        if own_engine is not None:
            with Session(own_engine, expire_on_commit=False) as session:
                yield session
            return
        session = self.host_session()
        try:
            yield session
        except BaseException:
            # On a connection that is broken the rollback fails too; what happened first is what counts.
            with suppress(sa.exc.SQLAlchemyError):
                session.rollback()
            raise


def _check_driver(engine: sa.Engine) -> None:
    """The verbs speak to the driver itself, through the host's session."""
    if engine.dialect.name == "postgresql" and engine.dialect.driver != "psycopg":
        raise SetupError(
            f"the pool needs psycopg 3 on PostgreSQL, and the host's database is opened with"
            f" {engine.dialect.driver}: write SQLALCHEMY_DATABASE_URI as postgresql+psycopg://..."
        )
    if engine.dialect.name not in ("postgresql", "sqlite"):
        raise SetupError(
            f"the pool's tables live in PostgreSQL or SQLite, not in {engine.dialect.name}: name such a database"
            " by SPIDERPOOL_DATABASE_URL"
        )


def is_memory(url: str) -> bool:
    """Tell whether ``url`` is an SQLite database that lives in one connection only."""
    parsed = sa.make_url(url)
    if parsed.get_backend_name() != "sqlite":
        return False
    database = parsed.database or ""
    return database in ("", ":memory:") or "mode=memory" in database or parsed.query.get("mode") == "memory"
