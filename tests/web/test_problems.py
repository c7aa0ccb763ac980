"""Problem documents, and bodies that are none."""

from __future__ import annotations

import io
import sqlite3
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from flask import Flask
from flask.testing import FlaskClient

from flask_spiderpool.errors import Unavailable
from flask_spiderpool.state import PoolState
from flask_spiderpool.terms import Role
from tests.web.conftest import MakeApp, bearer

START = "/spiderpool/spider/start"
STATUS = "/spiderpool/spool/status"


def _is_problem(answer: Any, status: int) -> dict[str, Any]:
    assert answer.status_code == status, answer.get_data(as_text=True)
    assert answer.content_type == "application/problem+json"
    body: dict[str, Any] = answer.get_json(force=True)
    assert (body["status"], body["type"]) == (status, "about:blank")
    assert body["title"]
    assert body["detail"]
    return body


@pytest.mark.parametrize(
    "path", ["/spiderpool", "/spiderpool/", "/spiderpool/nothing", "/spiderpool/spider/start/"]
)
def test_an_unknown_path_below_the_prefix(client: FlaskClient, path: str) -> None:
    """404 is a problem document there."""
    _is_problem(client.get(path), 404)


@pytest.mark.parametrize("path", ["/", "/nothing", "/spiderpools", "/api/spiderpool"])
def test_an_unknown_path_elsewhere_is_the_hosts(client: FlaskClient, path: str) -> None:
    """The host's own 404 page stays."""
    answer = client.get(path)
    assert answer.status_code == 404
    assert answer.content_type == "text/html; charset=utf-8"


def test_a_wrong_method(client: FlaskClient) -> None:
    """405 names the methods that are allowed."""
    answer = client.get(START)
    _is_problem(answer, 405)
    assert "POST" in answer.headers["Allow"]


@pytest.mark.parametrize(
    ("data", "content_type", "status"),
    [
        (b"{", "application/json", 400),
        (b"", "application/json", 400),
        (b"\xff\xfe", "application/json", 400),
        (b"[" * 100_000, "application/json", 400),
        (b'{"max_pages": ' + b"9" * 5000 + b"}", "application/json", 400),
        (b"spider_name=quotes", "application/x-www-form-urlencoded", 415),
        (b"{}", "text/plain", 415),
        (b"{}", None, 415),
        (b"[]", "application/json", 422),
        (b"5", "application/json", 422),
        (b"null", "application/json", 422),
        (b'{"spider_name": "a\\u0000"}', "application/json", 422),
        (b'{"spider_name": "\\ud800"}', "application/json", 422),
        (b'{"spider_name": "quotes", "headers": {"a": ["\\u0000"]}}', "application/json", 422),
        (b'{"\\u0000": 1}', "application/json", 422),
        (b'{"spider_name": "quotes", "crawl_delay": NaN}', "application/json", 422),
    ],
)
def test_bodies_that_are_none(
    client: FlaskClient, operator: dict[str, str], data: bytes, content_type: str | None, status: int
) -> None:
    """Whatever is sent, the answer is a problem document and never a 500."""
    _is_problem(client.post(START, headers=operator, data=data, content_type=content_type), status)


@pytest.mark.parametrize(
    ("method", "path", "field", "detail"),
    [
        ("GET", f"{STATUS}?nope=1", "nope", "Unknown parameter; known are task_id"),
        ("GET", f"{STATUS}?taskid=1", "taskid", "Unknown parameter; did you mean task_id?"),
        ("GET", f"{STATUS}?%00=1", "\x00", "Unknown parameter"),
        ("POST", f"{START}?max_pages=5", "max_pages", "Unknown parameter; none is taken here"),
        ("GET", "/spiderpool/api/openapi.json?x", "x", "none is taken here"),
    ],
)
def test_an_unknown_query_parameter(
    client: FlaskClient, operator: dict[str, str], method: str, path: str, field: str, detail: str
) -> None:
    """It is refused as an unknown field of a body is, rather than silently ignored."""
    body = {"spider_name": "quotes"} if method == "POST" else None
    (error,) = _is_problem(client.open(path, method=method, headers=operator, json=body), 422)["errors"]
    assert error["field"] == field
    assert detail in error["detail"]


def test_an_unknown_query_parameter_is_no_news_to_strangers(client: FlaskClient) -> None:
    """Whoever may not come in is told that first."""
    _is_problem(client.get(f"{STATUS}?nope=1"), 401)


def test_long_names_are_not_echoed_whole(client: FlaskClient, operator: dict[str, str]) -> None:
    """Of a name that was sent 200 characters come back, of many wrong ones the first twenty."""
    long = "k" * 10_000
    answers = [
        client.post(START, headers=operator, json={"spider_name": "quotes", long: 1}),
        client.post(START, headers=operator, json={"spider_name": "quotes", "headers": {long: "\x00"}}),
        client.get(f"{STATUS}?{long}=1", headers=operator),
        client.post(
            START, headers=operator, json={"spider_name": "quotes", **{long + str(i): 1 for i in range(50)}}
        ),
        client.post(START, headers=operator, json={"spider_name": "quotes", "allowed_domains": [long + "/"]}),
    ]
    for answer in answers:
        body = _is_problem(answer, 422)
        assert len(body["detail"]) <= 1000
        assert len(body["errors"]) <= 20
        for error in body["errors"]:
            assert len(error["field"]) <= 200
            assert len(error["detail"]) <= 1000


def test_json_of_another_name_is_taken(client: FlaskClient, operator: dict[str, str]) -> None:
    """``application/vnd.x+json`` is JSON too."""
    answer = client.post(
        START, headers=operator, data=b'{"spider_name": "quotes"}', content_type="application/vnd.x+json"
    )
    assert answer.status_code == 202


def test_a_body_that_is_too_large(make_app: MakeApp) -> None:
    """413 before anything is read."""
    app = make_app(SPIDERPOOL_MAX_CONTENT_BYTES=2000)
    header = bearer(app, Role.OPERATOR)
    body = b'{"spider_name": "quotes", "note": "' + b"x" * 2000 + b'"}'
    answer = app.test_client().post(START, headers=header, data=body, content_type="application/json")
    assert "2000 bytes" in _is_problem(answer, 413)["detail"]


def test_a_body_without_a_length_is_bounded_too(make_app: MakeApp) -> None:
    """A chunked body is cut off at the limit."""
    app = make_app(SPIDERPOOL_MAX_CONTENT_BYTES=2000)
    answer = app.test_client().post(
        START,
        headers=bearer(app, Role.OPERATOR),
        input_stream=io.BytesIO(b" " * 5000),
        content_type="application/json",
        environ_overrides={"wsgi.input_terminated": True, "HTTP_TRANSFER_ENCODING": "chunked"},
    )
    _is_problem(answer, 413)


def test_the_hosts_smaller_limit_stays(make_app: MakeApp) -> None:
    """Ours never widens what the host allows."""
    app = make_app(MAX_CONTENT_LENGTH=50)
    answer = app.test_client().post(
        START,
        headers=bearer(app, Role.OPERATOR),
        data=b"{" + b" " * 60 + b"}",
        content_type="application/json",
    )
    _is_problem(answer, 413)


@pytest.mark.parametrize("query", ["task_id=7", "task_id=%00", "task_id=", "task_id=a&task_id=b"])
def test_a_query_that_is_wrong(client: FlaskClient, viewer: dict[str, str], query: str) -> None:
    """422 names the parameter."""
    body = _is_problem(client.get(f"{STATUS}?{query}", headers=viewer), 422)
    assert body["errors"][0]["field"] == "task_id"


def test_the_database_is_away(
    app: Flask,
    client: FlaskClient,
    viewer: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """503 with Retry-After; a signed-in caller too learns nothing of the server: that is for the log."""
    db = app.extensions["sqlalchemy"]
    with app.app_context():
        db.engine.dispose()
        away = sa.create_engine("postgresql+psycopg://me:secret@127.0.0.1:1/none")
        monkeypatch.setitem(db._app_engines[app], None, away)
    answer = client.get(STATUS, headers=viewer)
    assert _is_problem(answer, 503)["detail"] == "the pool's database cannot be used just now"
    assert answer.headers["Retry-After"] == "5"
    assert "127.0.0.1" in caplog.text


def test_nobody_learns_the_servers_address(
    app: Flask, client: FlaskClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A caller whom nobody knows, with a token made up, is not told where the database is either."""
    db = app.extensions["sqlalchemy"]
    with app.app_context():
        db.engine.dispose()
        away = sa.create_engine("postgresql+psycopg://me:secret@127.0.0.1:1/none")
        monkeypatch.setitem(db._app_engines[app], None, away)
    answer = client.get(STATUS, headers={"Authorization": "Bearer spt_nonsense"})
    assert _is_problem(answer, 503)["detail"] == "the pool's database cannot be used just now"


def test_the_store_is_away(
    client: FlaskClient,
    viewer: dict[str, str],
    state: PoolState,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """What the store reports as unavailable is 503 too, and its words stay in the log."""

    def refuse() -> dict[str, Any]:
        raise Unavailable('no connection to "10.0.0.7"')

    monkeypatch.setattr(state.store(), "pool_numbers", refuse)
    answer = client.get(STATUS, headers=viewer)
    assert _is_problem(answer, 503)["detail"] == "the pool's database cannot be used just now"
    assert 'no connection to "10.0.0.7"' in caplog.text


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_missing_tables_have_a_remedy(kind: str, make_app: MakeApp, request: pytest.FixtureRequest) -> None:
    """A database that was never migrated says what to run."""
    app = make_app(request.getfixturevalue(f"{kind if kind == 'sqlite' else 'postgres'}_url"))
    header = bearer(app, Role.VIEWER)
    with app.app_context():
        app.extensions["sqlalchemy"].drop_all()
    answer = app.test_client().get(STATUS, headers=header)
    assert "flask spiderpool db upgrade" in _is_problem(answer, 503)["detail"]


def test_a_busy_database_is_tried_again(
    app: Flask, client: FlaskClient, operator: dict[str, str], state: PoolState
) -> None:
    """A view owns its transaction: one that could not get the lock is begun anew, and then answers 503."""
    with app.app_context():
        engine = app.extensions["sqlalchemy"].engine
        path = Path(engine.url.database)
    sa.event.listen(engine, "connect", lambda raw, _: raw.execute("PRAGMA busy_timeout = 1"))
    engine.dispose()
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    answer = client.post(START, headers=operator, json={"spider_name": "quotes"})
    _is_problem(answer, 503)
    other.execute("ROLLBACK")
    other.close()
    assert client.post(START, headers=operator, json={"spider_name": "quotes"}).status_code == 202


def test_a_fault_of_ours_is_a_problem_too(make_app: MakeApp, monkeypatch: pytest.MonkeyPatch) -> None:
    """500 on our routes is a problem document; nothing of the exception is told."""
    app = make_app(PROPAGATE_EXCEPTIONS=False)
    header = bearer(app, Role.VIEWER)

    def break_down() -> None:
        raise ZeroDivisionError("secret detail")

    monkeypatch.setattr(app.extensions["spiderpool"].store(), "pool_numbers", break_down)
    answer = app.test_client().get(STATUS, headers=header)
    _is_problem(answer, 500)
    assert "secret" not in answer.get_data(as_text=True)
