"""A complete host of Flask-SpiderPool: its own users, tables and pages, and a news site to crawl.

Run it from the repository: ``flask --app example_app spiderpool demo``.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from flask import Flask, Response, render_template, request

from example_app import accounts, pages
from example_app import spiders as spiders  # registers them with the pool
from example_app.extensions import db, login_manager, pool
from example_app.news import views as news
from example_app.news.edition import ROOT, SECTIONS

__all__ = ["create_app", "db", "pool"]

# Known to everybody who has read this file: good for a demo on this machine, for nothing else.
# Set FLASK_SECRET_KEY wherever somebody else can reach the app.
_DEMO_SECRET_KEY = "only-for-the-demo-set-FLASK_SECRET_KEY"  # noqa: S105

_SECURITY_HEADERS = {
    "Content-Security-Policy": "default-src 'self'; frame-ancestors 'none'; form-action 'self'; base-uri 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
}


@pool.access_rule
def role_of(user: Any) -> str | None:
    """Tell the pool what a user of this host may do there; None: nothing."""
    return user.role if user is not None and user.is_authenticated else None


def create_app(config: Mapping[str, Any] | None = None) -> Flask:
    """Make the app.

    Settings, later wins: the defaults below, ``FLASK_*`` of the environment (``FLASK_SQLALCHEMY_DATABASE_URI``),
    ``SPIDERPOOL_*`` of the environment, ``config``. ``FLASK_INSTANCE_PATH`` moves the instance folder, in which
    database, broker and limiter stand while no server is named; it must be absolute.
    """
    app = Flask(__name__, instance_path=os.environ.get("FLASK_INSTANCE_PATH"))
    _configure(app, config or {})
    db.init_app(app)
    login_manager.init_app(app)
    pool.init_app(app, db=db)
    for blueprint in _BLUEPRINTS:
        app.register_blueprint(blueprint)
    app.after_request(_harden)
    app.register_error_handler(404, _not_found)
    return app


_BLUEPRINTS = (pages.blueprint, accounts.blueprint, news.blueprint)


#: Variables of that prefix that are no settings: what the pool's own processes tell each other, and tests.
_NO_SETTINGS = ("SPIDERPOOL_ROLE", "SPIDERPOOL_PARENT_PID", "SPIDERPOOL_TEST_", "SPIDERPOOL_BENCH_")


def pool_settings_of(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the pool's settings that stand in the environment; the pool reads numbers from text itself."""
    return {
        key: value
        for key, value in environ.items()
        if key.startswith("SPIDERPOOL_") and not key.startswith(_NO_SETTINGS)
    }


def _address_of(url: str) -> str:
    """Return ``host:port`` of a URL, the port also where the URL leaves it out."""
    parts = urlsplit(url)
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
    return f"{host}:{parts.port or (443 if parts.scheme == 'https' else 80)}"


def _configure(app: Flask, config: Mapping[str, Any]) -> None:
    app.config.from_mapping(
        SECRET_KEY=_DEMO_SECRET_KEY,
        SESSION_COOKIE_SAMESITE="Lax",
        SQLALCHEMY_DATABASE_URI=None,
        DEMO_USERS=None,
        DEMO_SPIDER="news",  # what `flask spiderpool demo` starts, and where on this site
        DEMO_PATH="/news/",
        # The news site is served by this very app, mostly at a loopback address, which the pool refuses otherwise.
        SPIDERPOOL_ALLOW_ADDRESSES=[_address_of(spiders.NEWS_URL)],
    )
    app.config.from_prefixed_env()
    app.config.update(pool_settings_of(os.environ))
    app.config.update(config)
    own_database = app.config["SQLALCHEMY_DATABASE_URI"] is not None
    if not own_database:
        folder = Path(app.instance_path)
        folder.mkdir(parents=True, exist_ok=True)
        app.config["SQLALCHEMY_DATABASE_URI"] = f"sqlite:///{folder / 'example.db'}"
    if app.config["DEMO_USERS"] is None:
        # Their passwords are printed in the README: never make them in a database that somebody chose.
        app.config["DEMO_USERS"] = app.debug or not own_database


def _harden(response: Response) -> Response:
    """Set the security headers of the host's own pages; the pool sets its own."""
    if request.blueprint in {blueprint.name for blueprint in _BLUEPRINTS} or request.endpoint == "static":
        for name, value in _SECURITY_HEADERS.items():
            response.headers.setdefault(name, value)
    return response


def _not_found(_: Exception) -> tuple[str, int]:
    """Show the host's own 404 page; below the news site it wears that site's clothes."""
    template = "news/not_found.html" if request.path.startswith(f"{ROOT}/") else "host/not_found.html"
    return render_template(template, sections=SECTIONS.values()), 404
