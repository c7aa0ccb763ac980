"""Who may do what."""

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from flask import Flask
from flask.testing import FlaskClient
from flask_login import LoginManager, UserMixin, login_user
from flask_wtf import CSRFProtect

from flask_spiderpool import SpiderPool
from flask_spiderpool.errors import ConfigError
from flask_spiderpool.store.tokens import find_token, revoke
from flask_spiderpool.terms import Role
from tests.web.conftest import MakeApp, bearer

STATUS = "/spiderpool/spool/status"
START = "/spiderpool/spider/start"
BODY = {"spider_name": "quotes"}
ROUTES = [
    ("GET", STATUS),
    ("GET", "/spiderpool/api/openapi.json"),
    *(("POST", f"/spiderpool/spider/{verb}") for verb in ("start", "pause", "resume", "stop", "retry")),
]


class User(UserMixin):
    """A user of the host with a role."""

    def __init__(self, name: str, role: str | None) -> None:
        self.id = name
        self.role = role


USERS = {
    "ada": User("ada", "operator"),
    "ben": User("ben", "viewer"),
    "eve": User("eve", None),
    "oli": User("oli", "owner"),
}


def _rule(user: Any) -> Any:
    return user.role if user is not None and user.is_authenticated else None


@pytest.fixture
def host(make_app: MakeApp) -> Flask:
    """A host with Flask-Login and an access rule."""
    pool = SpiderPool(access_rule=_rule)
    pool.spider("quotes", start_urls=["https://quotes.example/"])(lambda page: None)
    app = make_app(pool=pool)
    LoginManager(app).user_loader(USERS.get)

    @app.post("/login/<name>")
    def login(name: str) -> str:
        login_user(USERS[name])
        return "welcome"

    return app


def _signed_in(host: Flask, name: str) -> FlaskClient:
    browser = host.test_client()
    assert browser.post(f"/login/{name}").status_code == 200
    return browser


@pytest.mark.parametrize(("method", "path"), ROUTES)
def test_every_route_is_closed_by_default(client: FlaskClient, method: str, path: str) -> None:
    """Nobody gets 401, and is told how to be known."""
    answer = client.open(path, method=method, json={} if method == "POST" else None)
    assert answer.status_code == 401
    assert answer.headers["WWW-Authenticate"] == 'Bearer realm="spiderpool"'
    assert answer.content_type == "application/problem+json"


def test_every_route_of_the_pool_is_in_the_list(app: Flask) -> None:
    """A new route cannot be forgotten by the test above."""
    ours = {
        (method, str(rule))
        for rule in app.url_map.iter_rules()
        if str(rule).startswith("/spiderpool")
        for method in (rule.methods or set()) - {"HEAD", "OPTIONS"}
    }
    assert ours == set(ROUTES)


@pytest.mark.parametrize(
    "header",
    ["Bearer", "Bearer ", "Bearer spt_wrong", "Bearer wrong", "Bearer spt_" + "x" * 5000, "bearer ü"],
)
def test_an_unknown_token(client: FlaskClient, header: str) -> None:
    """A wrong token is 401 and says that the token is at fault (RFC 6750)."""
    answer = client.get(STATUS, headers={"Authorization": header})
    assert answer.status_code == 401
    assert 'error="invalid_token"' in answer.headers["WWW-Authenticate"]


@pytest.mark.parametrize("header", ["Basic dXNlcjpwYXNz", "Digest x", "spt_x", ""])
def test_another_scheme_is_no_token(client: FlaskClient, header: str) -> None:
    """Only bearer tokens are looked at."""
    assert client.get(STATUS, headers={"Authorization": header}).status_code == 401


def test_an_expired_token(app: Flask, client: FlaskClient) -> None:
    """A token counts until its time is over."""
    now = datetime.now(UTC)
    old = bearer(app, Role.VIEWER, expires_at=now - timedelta(seconds=1))
    new = bearer(app, Role.VIEWER, expires_at=now + timedelta(hours=1))
    assert client.get(STATUS, headers=old).status_code == 401
    assert client.get(STATUS, headers=new).status_code == 200


def test_a_revoked_token(app: Flask, client: FlaskClient, viewer: dict[str, str]) -> None:
    """A revoked token is refused at once."""
    assert client.get(STATUS, headers=viewer).status_code == 200
    with app.app_context(), app.extensions["spiderpool"].session() as session:
        token = find_token(session, viewer["Authorization"].removeprefix("Bearer "))
        assert token is not None
        revoke(session, token.id)
        session.commit()
    assert client.get(STATUS, headers=viewer).status_code == 401


@pytest.mark.parametrize("role", list(Role))
def test_roles(app: Flask, client: FlaskClient, role: Role) -> None:
    """Whoever may look may not steer; whoever may steer may look; 403 says what is needed."""
    header = bearer(app, role)
    assert client.get(STATUS, headers=header).status_code == 200
    answer = client.post(START, headers=header, json=BODY)
    if role is Role.VIEWER:
        assert answer.status_code == 403
        assert "operator" in answer.get_json()["detail"]
    else:
        assert answer.status_code == 202


def test_access_is_checked_before_the_body(client: FlaskClient, viewer: dict[str, str]) -> None:
    """Who may not call learns nothing of what the call takes."""
    assert client.post(START, data="{", content_type="application/json").status_code == 401
    assert client.post(START, headers=viewer, data="x").status_code == 403


def test_a_view_without_a_role_is_open_to_nobody(app: Flask, client: FlaskClient) -> None:
    """Forgetting the mark closes a route rather than opening it."""
    vars(app.view_functions["spiderpool_spool.status"]).pop("spiderpool_role")
    assert client.get(STATUS, headers=bearer(app, Role.ADMIN)).status_code == 403


# -- the host's own users


def test_a_user_with_a_role_may_look(host: Flask) -> None:
    """The rule is asked with the host's signed-in user."""
    assert _signed_in(host, "ben").get(STATUS).status_code == 200


def test_a_user_without_a_role_is_refused(host: Flask) -> None:
    """A known user that the rule gives nothing gets 403."""
    answer = _signed_in(host, "eve").get(STATUS)
    assert answer.status_code == 403
    assert "no role" in answer.get_json()["detail"]


def test_nobody_is_asked_to_sign_in(host: Flask) -> None:
    """An anonymous visitor gets 401."""
    assert host.test_client().get(STATUS).status_code == 401


def test_a_token_goes_before_the_cookie(host: Flask) -> None:
    """With a token the cookie does not count: a wrong token is 401 even for a signed-in user."""
    browser = _signed_in(host, "ada")
    assert browser.get(STATUS, headers={"Authorization": "Bearer spt_wrong"}).status_code == 401


def test_history_names_the_user(host: Flask) -> None:
    """``by`` is the host's id of the user."""
    answer = _signed_in(host, "ada").post(START, json=BODY, headers={"X-Requested-With": "fetch"})
    with host.app_context():
        assert host.extensions["spiderpool"].task(answer.get_json()["task_id"]).created_by == "user:ada"


def test_a_rule_that_returns_a_wrong_role_closes_the_route(
    host: Flask, caplog: pytest.LogCaptureFixture
) -> None:
    """A rule's mistake opens nothing; it is logged with the allowed roles."""
    with caplog.at_level(logging.ERROR):
        answer = _signed_in(host, "oli").get(STATUS)
    assert answer.status_code == 503
    assert "viewer, operator, editor, admin" in caplog.text


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Sec-Fetch-Site": "same-origin"}, 202),
        ({"Sec-Fetch-Site": "same-site"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "cross-site", "X-Requested-With": "fetch"}, 403),
        ({"Origin": "http://localhost"}, 202),
        ({"Origin": "https://evil.example"}, 403),
        ({"Origin": "http://localhost.evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "http://[bad"}, 403),
        ({"Origin": "http://[::1"}, 403),
        ({"Origin": "http://localhost", "Referer": "http://[bad"}, 202),
        ({"Origin": "http://[bad", "Host": "[bad"}, 403),
        ({"Origin": "null", "Host": ""}, 403),
        ({"Origin": "https://evil.example", "X-Requested-With": "fetch"}, 403),
        ({"X-Requested-With": "fetch"}, 202),
        ({}, 403),
    ],
)
def test_a_cookie_counts_for_calls_of_the_same_origin(
    host: Flask, headers: dict[str, str], status: int
) -> None:
    """A page of another site cannot start a task with a visitor's cookie."""
    assert _signed_in(host, "ada").post(START, json=BODY, headers=headers).status_code == status


def test_looking_needs_no_origin(host: Flask) -> None:
    """A safe method changes nothing, so a cookie is enough."""
    assert _signed_in(host, "ada").get(STATUS, headers={"Sec-Fetch-Site": "cross-site"}).status_code == 200


def test_a_token_needs_no_origin(host: Flask) -> None:
    """A browser does not add tokens by itself."""
    header = bearer(host, Role.OPERATOR) | {"Origin": "https://elsewhere.example"}
    assert host.test_client().post(START, json=BODY, headers=header).status_code == 202


@pytest.mark.parametrize("csrf_first", [True, False])
def test_the_hosts_csrf_protection(make_app: MakeApp, csrf_first: bool) -> None:
    """Our routes are exempt, whichever is initialised first; the host's own forms stay protected."""
    pool = SpiderPool(access_rule=_rule)
    pool.spider("quotes", start_urls=["https://quotes.example/"])(lambda page: None)
    app = make_app(pool=pool, before=CSRFProtect if csrf_first else lambda app: None)
    if not csrf_first:
        CSRFProtect(app)

    @app.post("/form")
    def form() -> str:
        return "sent"

    client = app.test_client()
    assert client.post(START, json=BODY, headers=bearer(app, Role.OPERATOR)).status_code == 202
    assert client.post("/form").status_code == 400


def test_a_host_without_flask_login(make_app: MakeApp) -> None:
    """The rule is asked with None; tokens go on; no login manager is installed."""
    asked: list[Any] = []

    def rule(user: Any) -> str | None:
        asked.append(user)
        return "viewer"

    app = make_app(pool=SpiderPool(access_rule=rule))
    assert app.test_client().get(STATUS).status_code == 200
    assert asked == [None]
    assert not hasattr(app, "login_manager")


# -- open, aloud


def test_auth_none_opens_every_route_of_a_debug_app(make_app: MakeApp) -> None:
    """A debug or testing app may be open; history names nobody in particular."""
    app = make_app(SPIDERPOOL_AUTH="none")
    answer = app.test_client().post(START, json=BODY)
    assert answer.status_code == 202


def test_auth_none_is_refused_elsewhere() -> None:
    """An app that is neither in debug mode nor under test cannot be opened; other faults are told with it."""
    app = Flask("open")
    app.config.update(SPIDERPOOL_AUTH="none", SPIDERPOOL_ATTEMPTS=0)
    with pytest.raises(ConfigError, match="debug or testing app") as caught:
        SpiderPool(app)
    assert [fault.split()[0] for fault in caught.value.faults] == ["SPIDERPOOL_ATTEMPTS", "SPIDERPOOL_AUTH"]
    app.config["SPIDERPOOL_ATTEMPTS"] = 1
    with pytest.raises(ConfigError, match="debug or testing app"):
        SpiderPool(app)


def test_auth_none_ends_with_debug_mode(make_app: MakeApp) -> None:
    """Should the app leave debug mode after all, it is closed again."""
    app = make_app(SPIDERPOOL_AUTH="none")
    app.testing = False
    app.debug = False
    assert app.test_client().get(STATUS).status_code == 401
