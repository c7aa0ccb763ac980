"""``/spider``: start, pause, resume, stop, retry."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from flask import Flask
from flask.testing import FlaskClient

from flask_spiderpool.models import History, Request, Task
from flask_spiderpool.state import PoolState
from flask_spiderpool.terms import VERB_TABLE, Effect, Role, Status, Verb
from tests.web.conftest import KeptOutlet, MakeApp, bearer

START = "/spiderpool/spider/start"


def _task(app: Flask, task_id: str) -> Task:
    with app.app_context(), app.extensions["spiderpool"].session() as session:
        task: Task = session.get(Task, UUID(task_id))
        session.expunge(task)
        return task


def test_start_writes_a_task_and_calls_for_a_slice(
    app: Flask, client: FlaskClient, operator: dict[str, str], outlet: KeptOutlet
) -> None:
    """202 names the task and where to follow it; one message leaves for its first slot."""
    answer = client.post(START, headers=operator, json={"spider_name": "quotes"})
    body = answer.get_json()
    assert answer.status_code == 202
    assert answer.headers["Location"] == body["links"]["status"]
    assert (body["spider_name"], body["status"]) == ("quotes", "pending")
    assert set(body["links"]) == {"status", "pause", "resume", "stop", "retry"}
    [message] = outlet.messages
    assert (str(message.ticket.task_id), message.ticket.n, message.queue) == (
        body["task_id"],
        0,
        "spiderpool",
    )
    task = _task(app, body["task_id"])
    assert (task.status, task.discovered, task.created_by) == ("pending", 1, "token:test operator")


@pytest.mark.parametrize(("owner", "expected"), [("team-a", "team-a"), (None, "token:test operator")])
def test_a_task_belongs_to_the_tokens_owner(
    app: Flask, client: FlaskClient, owner: str | None, expected: str
) -> None:
    """What a token starts is its owner's, the token's own where it names none; the history names the token."""
    answer = client.post(
        START, headers=bearer(app, Role.OPERATOR, owner=owner), json={"spider_name": "quotes"}
    )
    task = _task(app, answer.get_json()["task_id"])
    assert (task.owner, task.created_by) == (expected, "token:test operator")


def test_start_takes_the_seeds_parameters(app: Flask, client: FlaskClient, operator: dict[str, str]) -> None:
    """The names of the API become the task's options."""
    answer = client.post(
        START,
        headers=operator,
        json={
            "spider_name": "quotes",
            "target_url": ["https://other.example/a", "https://other.example/b#part"],
            "max_depth": 2,
            "crawl_delay": 1.5,
            "max_pages": 7,
            "include": ["/a"],
            "exclude": ["/private"],
            "headers": {"Accept-Language": "nl"},
            "respect_nofollow": True,
            "note": "weekly",
        },
    )
    assert answer.status_code == 202
    task = _task(app, answer.get_json()["task_id"])
    assert task.max_pages == 7
    assert task.options["start_urls"] == ["https://other.example/a", "https://other.example/b"]
    assert task.options["delay_s"] == 1.5
    assert task.options["max_depth"] == 2
    assert (task.options["include"], task.options["exclude"]) == (["/a"], ["/private"])
    assert task.options["headers"] == {"Accept-Language": "nl"}
    assert task.options["respect_nofollow"] is True
    with app.app_context(), app.extensions["spiderpool"].session() as session:
        urls = [request.url for request in session.query(Request).filter_by(task_id=task.id)]
        [history] = session.query(History).filter_by(task_id=task.id)
    assert sorted(urls) == ["https://other.example/a", "https://other.example/b"]
    assert (history.note, history.by) == ("weekly", "token:test operator")


def test_one_target_url_may_be_plain_text(app: Flask, client: FlaskClient, operator: dict[str, str]) -> None:
    """``target_url`` is one URL or a list."""
    answer = client.post(
        START, headers=operator, json={"spider_name": "article", "target_url": "https://one.example/"}
    )
    assert _task(app, answer.get_json()["task_id"]).options["start_urls"] == ["https://one.example/"]


@pytest.mark.parametrize(
    ("body", "status", "field", "detail"),
    [
        ({}, 422, "spider_name", "Missing data"),
        ({"spider_name": ""}, 422, "spider_name", "Length"),
        ({"spider_name": 5}, 422, "spider_name", "string"),
        ({"spider_name": "quote"}, 404, "spider_name", "did you mean 'quotes'?"),
        ({"spider_name": "article"}, 422, "target_url", "missing"),
        ({"spider_name": "quotes", "max_page": 1}, 422, "max_page", "did you mean max_pages?"),
        ({"spider_name": "quotes", "zzzz": 1}, 422, "zzzz", "known are spider_name"),
        ({"spider_name": "quotes", "max_pages": 0}, 422, "max_pages", "from 1"),
        ({"spider_name": "quotes", "max_pages": "5"}, 422, "max_pages", "integer"),
        ({"spider_name": "quotes", "max_pages": True}, 422, "max_pages", "integer"),
        ({"spider_name": "quotes", "max_pages": 1.5}, 422, "max_pages", "integer"),
        ({"spider_name": "quotes", "max_pages": 10**30}, 422, "max_pages", "from 1"),
        ({"spider_name": "quotes", "crawl_delay": -1}, 422, "crawl_delay", "from 0"),
        ({"spider_name": "quotes", "crawl_delay": "1"}, 422, "crawl_delay", "number"),
        ({"spider_name": "quotes", "follow": "yes"}, 422, "follow", "boolean"),
        ({"spider_name": "quotes", "obey_robots": False}, 422, "obey_robots", "stricter"),
        ({"spider_name": "quotes", "include": ["("]}, 422, "include", "regular expression"),
        ({"spider_name": "quotes", "include": ["a{99999999999}"]}, 422, "include", "repetition"),
        ({"spider_name": "quotes", "exclude": ["a{1,99999999999}"]}, 422, "exclude", "repetition"),
        ({"spider_name": "quotes", "include": ["(" * 900 + ")" * 900]}, 422, "include", ""),
        ({"spider_name": "quotes", "exclude": ["(" * 5000]}, 422, "exclude", "1000 characters"),
        ({"spider_name": "quotes", "target_url": []}, 422, "target_url", "at least one"),
        ({"spider_name": "quotes", "target_url": "ftp://quotes.example/"}, 422, "target_url", "http"),
        ({"spider_name": "quotes", "target_url": ["https://a.example/", 5]}, 422, "target_url.1", "string"),
        ({"spider_name": "quotes", "note": "x" * 1001}, 422, "note", "length"),
        ({"spider_name": "quotes", "queue": "celery"}, 422, "queue", "Unknown field"),
    ],
)
def test_a_wrong_field_is_named(
    client: FlaskClient,
    operator: dict[str, str],
    outlet: KeptOutlet,
    body: dict[str, Any],
    status: int,
    field: str,
    detail: str,
) -> None:
    """The problem document says which field is wrong and what is allowed; nothing is started."""
    answer = client.post(START, headers=operator, json=body)
    assert answer.status_code == status, answer.get_data(as_text=True)
    assert answer.content_type == "application/problem+json"
    [error] = answer.get_json()["errors"]
    assert error["field"] == field
    assert detail in error["detail"]
    assert outlet.messages == []


def test_several_wrong_options_are_named_as_the_api_names_them(
    client: FlaskClient, operator: dict[str, str]
) -> None:
    """The names that options have inside do not leak."""
    answer = client.post(
        START, headers=operator, json={"spider_name": "quotes", "crawl_delay": -1, "target_url": "x:y"}
    )
    text = answer.get_data(as_text=True)
    assert "target_url" in text
    assert "start_urls" not in text
    assert "delay_s" not in text


def test_a_target_outside_the_spiders_domains_is_refused(make_app: MakeApp) -> None:
    """A spider bound to its domains cannot be sent elsewhere."""
    app = make_app()
    app.extensions["spiderpool"].registry.spider(
        "bound", start_urls=["https://a.example/"], allowed_domains=["a.example"]
    )(lambda page: None)
    answer = app.test_client().post(
        START,
        headers=bearer(app, Role.OPERATOR),
        json={"spider_name": "bound", "target_url": "https://b.example/"},
    )
    assert answer.status_code == 422
    assert "outside the spider's scope" in answer.get_json()["errors"][0]["detail"]


def test_pause_resume_stop_retry(
    app: Flask, client: FlaskClient, operator: dict[str, str], outlet: KeptOutlet, task_id: str
) -> None:
    """Each verb is written, told on the bus, and answered with what it came to."""

    def call(verb: str) -> tuple[int, str, str]:
        answer = client.post(f"/spiderpool/spider/{verb}", headers=operator, json={"task_id": task_id})
        body = answer.get_json()
        assert (body["task_id"], body["verb"]) == (task_id, verb)
        return answer.status_code, body["effect"], body["desired"]

    assert call("pause") == (202, "accepted", "pause")
    assert call("pause") == (200, "unchanged", "pause")
    assert call("resume") == (202, "accepted", "run")
    assert call("stop") == (202, "accepted", "stop")
    app.extensions["spiderpool"].store().verdict(UUID(task_id))
    assert call("retry") == (202, "accepted", "run")
    assert [command.data["desired"] for command in outlet.commands] == ["pause", "run", "stop", "run"]


def test_a_reason_is_kept(app: Flask, client: FlaskClient, operator: dict[str, str], task_id: str) -> None:
    """What a person gives as the reason stands in the history."""
    client.post("/spiderpool/spider/stop", headers=operator, json={"task_id": task_id, "reason": "too slow"})
    with app.app_context(), app.extensions["spiderpool"].session() as session:
        last = session.query(History).order_by(History.id.desc()).first()
        assert (last.note, last.by) == ("too slow", "token:test operator")


def test_retry_takes_a_new_limit(
    app: Flask, client: FlaskClient, state: PoolState, operator: dict[str, str], task_id: str
) -> None:
    """A task that ended at its limit goes on with a larger one."""
    client.post("/spiderpool/spider/stop", headers=operator, json={"task_id": task_id})
    state.store().verdict(UUID(task_id))
    answer = client.post(
        "/spiderpool/spider/retry", headers=operator, json={"task_id": task_id, "max_pages": 5}
    )
    assert answer.status_code == 202
    assert _task(app, task_id).max_pages == 5


@pytest.mark.parametrize("status", list(Status))
@pytest.mark.parametrize("verb", [Verb.PAUSE, Verb.RESUME, Verb.STOP, Verb.RETRY])
def test_the_table_of_verbs(
    app: Flask, client: FlaskClient, operator: dict[str, str], task_id: str, verb: Verb, status: Status
) -> None:
    """Each pair of verb and status answers as the table says: 200, 202, or 409 with both named."""
    with app.app_context(), app.extensions["spiderpool"].session() as session:
        session.get(Task, UUID(task_id)).status = status.value
        session.commit()
    answer = client.post(f"/spiderpool/spider/{verb}", headers=operator, json={"task_id": task_id})
    expected = {Effect.ACCEPTED: 202, Effect.UNCHANGED: 200, Effect.CONFLICT: 409}
    assert answer.status_code == expected[VERB_TABLE[verb][status]]
    if answer.status_code == 409:
        body = answer.get_json()
        assert answer.content_type == "application/problem+json"
        assert (body["verb"], body["task_status"]) == (verb, status)


@pytest.mark.parametrize("verb", ["pause", "resume", "stop", "retry"])
def test_an_unknown_task(client: FlaskClient, operator: dict[str, str], verb: str) -> None:
    """404 names the field; what is no UUID is 422."""
    answer = client.post(
        f"/spiderpool/spider/{verb}",
        headers=operator,
        json={"task_id": "00000000-0000-0000-0000-000000000000"},
    )
    assert answer.status_code == 404
    assert answer.get_json()["errors"][0]["field"] == "task_id"
    answer = client.post(f"/spiderpool/spider/{verb}", headers=operator, json={"task_id": "7"})
    assert answer.status_code == 422
    assert answer.get_json()["errors"][0]["field"] == "task_id"


def test_on_postgresql(make_app: MakeApp, postgres_url: str) -> None:
    """The whole way of a start and a stop on PostgreSQL."""
    app = make_app(postgres_url)
    client, header = app.test_client(), bearer(app, Role.OPERATOR)
    task_id = client.post(START, headers=header, json={"spider_name": "quotes"}).get_json()["task_id"]
    assert (
        client.post("/spiderpool/spider/stop", headers=header, json={"task_id": task_id}).status_code == 202
    )
    answer = client.get(f"/spiderpool/spool/status?task_id={task_id}", headers=header).get_json()
    assert (answer["status"], answer["end_reason"]) == ("stopped", "by_person")
