"""The REST API's frame: flask-smorest for routes and OpenAPI, with none of its effects on the host."""

from __future__ import annotations

from typing import Any

from flask import Blueprint, Flask, Response, jsonify
from flask_smorest import Api
from flask_smorest.spec import openapi_cli

from flask_spiderpool.state import PoolState
from flask_spiderpool.terms import Role
from flask_spiderpool.web.access import check_access, requires
from flask_spiderpool.web.body import check_body
from flask_spiderpool.web.fields import one_or_many_properties
from flask_spiderpool.web.problems import MEDIA_TYPE, handle_problems
from flask_spiderpool.web.query import check_query
from flask_spiderpool.web.schemas import PoolStatus, Problem, TaskStatus

#: Keeps our API's settings apart from those of an Api that the host has itself.
CONFIG_PREFIX = "SPIDERPOOL_REST"
API_VERSION = "1"

_SECURITY: dict[str, Any] = {
    "components": {"securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}},
    "security": [{"token": []}],
}


class PoolApi(Api):
    """Leaves the host's error pages and its ``openapi`` command alone."""

    ERROR_SCHEMA = Problem

    def __init__(self, app: Flask) -> None:
        theirs = app.cli.commands.get(openapi_cli.name)
        super().__init__(
            app,
            spec_kwargs={
                "title": "Flask-SpiderPool",
                "version": API_VERSION,
                "openapi_version": "3.1.0",
                **_SECURITY,
            },
            config_prefix=CONFIG_PREFIX,
        )
        if theirs is not None:
            app.cli.commands[openapi_cli.name] = theirs
        elif list(app.extensions["flask-smorest"]["apis"]) == [self.config_prefix]:
            del app.cli.commands[openapi_cli.name]
        self.ma_plugin.converter.add_attribute_function(one_or_many_properties)
        for schema in (PoolStatus, TaskStatus):
            self.spec.components.schema(schema.__name__, schema=schema)

    def _register_error_handlers(self) -> None:
        """Do nothing: smorest would turn the host's own error pages into JSON."""

    def _register_responses(self) -> None:
        """Register the standard responses as problem documents."""
        self.DEFAULT_RESPONSE_CONTENT_TYPE = MEDIA_TYPE
        try:
            super()._register_responses()
        finally:
            del self.DEFAULT_RESPONSE_CONTENT_TYPE


def guard(blueprint: Blueprint, state: PoolState) -> None:
    """Put access, checks of query and body, and problem documents before and behind every route of ``blueprint``."""

    def check() -> Response | None:
        check_access(state)
        return check_query() or check_body(state.settings.max_content_bytes)

    blueprint.before_request(check)
    handle_problems(blueprint)


def make_openapi_blueprint(api: PoolApi) -> Blueprint:
    """Make ``/api/openapi.json``: closed like every route."""
    blueprint = Blueprint("spiderpool_api", __name__)

    @blueprint.get("/openapi.json")
    @requires(Role.VIEWER)
    def openapi() -> Response:
        return jsonify(api.spec.to_dict())

    return blueprint
