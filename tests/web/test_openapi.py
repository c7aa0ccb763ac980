"""``/api/openapi.json``: what the API says of itself."""

from __future__ import annotations

from typing import Any

import flask
import pytest
from flask import Flask
from flask.testing import FlaskClient
from flask_smorest import Api, Blueprint

from flask_spiderpool.terms import Role
from tests.web.conftest import MakeApp, bearer


@pytest.fixture
def spec(client: FlaskClient, viewer: dict[str, str]) -> dict[str, Any]:
    """The document."""
    found: dict[str, Any] = client.get("/spiderpool/api/openapi.json", headers=viewer).get_json()
    return found


def test_it_names_every_route(spec: dict[str, Any]) -> None:
    """The seed's routes are described, each with a summary."""
    verbs = {f"/spiderpool/spider/{verb}" for verb in ("start", "pause", "resume", "stop", "retry")}
    assert set(spec["paths"]) == verbs | {"/spiderpool/spool/status"}
    for path in verbs:
        assert spec["paths"][path]["post"]["summary"]


def test_it_describes_the_start(spec: dict[str, Any]) -> None:
    """The body's fields have their names and types."""
    schema = spec["components"]["schemas"]["StartArguments"]
    assert schema["required"] == ["spider_name"]
    assert schema["additionalProperties"] is False
    assert schema["properties"]["max_depth"]["type"] == "integer"
    assert schema["properties"]["crawl_delay"]["type"] == "number"
    assert {"include", "exclude"} <= set(schema["properties"])
    assert [one["type"] for one in schema["properties"]["target_url"]["oneOf"]] == ["string", "array"]


def test_it_says_how_to_be_known(spec: dict[str, Any]) -> None:
    """Bearer tokens are the scheme of every route."""
    assert spec["components"]["securitySchemes"]["token"] == {"type": "http", "scheme": "bearer"}
    assert spec["security"] == [{"token": []}]


def test_errors_are_problem_documents(spec: dict[str, Any]) -> None:
    """Answers that tell of an error have the media type of RFC 9457."""
    assert set(spec["components"]["responses"]["NOT_FOUND"]["content"]) == {"application/problem+json"}
    accepted = spec["paths"]["/spiderpool/spider/start"]["post"]["responses"]["202"]
    assert set(accepted["content"]) == {"application/json"}


def test_a_host_with_an_api_of_its_own(make_app: MakeApp) -> None:
    """Both documents and the host's error format stay apart; its ``openapi`` command stays too."""

    def host(app: Flask) -> None:
        app.config.update(API_TITLE="Host", API_VERSION="v1", OPENAPI_VERSION="3.0.3", OPENAPI_URL_PREFIX="/")
        api = Api(app)
        blueprint = Blueprint("shop", __name__, url_prefix="/shop")

        @blueprint.get("/")
        @blueprint.response(200)
        def shop() -> dict[str, str]:
            return {"open": "yes"}

        api.register_blueprint(blueprint)

    app = make_app(before=host)
    client = app.test_client()
    assert set(client.get("/openapi.json").get_json()["paths"]) == {"/shop/"}
    ours = client.get("/spiderpool/api/openapi.json", headers=bearer(app, Role.VIEWER))
    assert "/shop/" not in ours.get_json()["paths"]
    assert client.get("/nothing").get_json() == {"code": 404, "status": "Not Found"}
    assert "openapi" in app.cli.commands


def test_a_host_without_one_gets_no_command(app: Flask) -> None:
    """The command that flask-smorest adds is not ours to give."""
    assert "openapi" not in app.cli.commands


def test_other_mounts(make_app: MakeApp) -> None:
    """Any prefix, and a script root in front of it: routes and links follow."""
    app = make_app(SPIDERPOOL_URL_PREFIX="/tools/crawl", APPLICATION_ROOT="/intranet")
    client = app.test_client()
    header = bearer(app, Role.OPERATOR)
    assert client.get("/spiderpool/spool/status", headers=header).content_type.startswith("text/html")
    answer = client.post(
        "/tools/crawl/spider/start",
        headers=header,
        json={"spider_name": "quotes"},
        environ_overrides={"SCRIPT_NAME": "/intranet"},
    )
    assert answer.headers["Location"].startswith("/intranet/tools/crawl/spool/status?task_id=")
    with app.test_request_context():
        assert flask.url_for("spiderpool_spool.status").endswith("/tools/crawl/spool/status")
