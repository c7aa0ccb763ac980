"""LAYER 1: people and programs talk to the pool.

Everything stands below ``url_prefix``, is closed by default, and answers errors as problem documents; nothing
here changes what the host answers elsewhere.
"""

from __future__ import annotations

from typing import Any

import flask
from flask import Blueprint, Flask, Response

from flask_spiderpool.state import PoolState
from flask_spiderpool.web.api import PoolApi, guard, make_openapi_blueprint
from flask_spiderpool.web.problems import unrouted
from flask_spiderpool.web.spiders import make_spider_blueprint
from flask_spiderpool.web.spool import make_spool_blueprint

__all__ = ["register"]


def register(app: Flask, state: PoolState) -> None:
    """Mount the pool's routes on ``app``. Blueprints are made anew for each app."""
    prefix = state.settings.url_prefix
    api = PoolApi(app)
    ours: list[Blueprint] = []
    for path, blueprint in (
        ("/spider", make_spider_blueprint(state)),
        ("/spool", make_spool_blueprint(state)),
    ):
        guard(blueprint, state)
        api.register_blueprint(blueprint, url_prefix=prefix + path)
        ours.append(blueprint)
    openapi = make_openapi_blueprint(api)
    guard(openapi, state)
    app.register_blueprint(openapi, url_prefix=f"{prefix}/api")
    ours.append(openapi)

    def answer_unrouted() -> Response | None:
        return unrouted(prefix)

    app.before_request(answer_unrouted)
    _exempt_from_csrf(app, state, ours)


def _exempt_from_csrf(app: Flask, state: PoolState, blueprints: list[Blueprint]) -> None:
    """Let the host's CSRFProtect pass our REST routes, which check tokens and origins themselves.

    It may be initialised after us, so it is looked up as the first request begins, before it looks itself.
    """

    def on_request(sender: Flask, **_: Any) -> None:
        flask.request_started.disconnect(on_request, sender)
        exempt = getattr(sender.extensions.get("csrf"), "exempt", None)
        if callable(exempt):
            for blueprint in blueprints:
                exempt(blueprint)

    flask.request_started.connect(on_request, app)
    state.receivers.append(on_request)
