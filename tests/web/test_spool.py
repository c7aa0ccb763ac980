"""``/spool/status``: how the pool is."""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import UUID

import pytest
from flask.testing import FlaskClient

from flask_spiderpool.crawl.request import Outcome, Verdict
from flask_spiderpool.pulse.base import WorkerPulse
from flask_spiderpool.state import PoolState
from flask_spiderpool.terms import Role, Status
from tests.web.conftest import MakeApp, bearer

STATUS = "/spiderpool/spool/status"


def test_an_empty_pool(client: FlaskClient, viewer: dict[str, str]) -> None:
    """Every status is there with its number; a keeper that never ran has no age."""
    body = client.get(STATUS, headers=viewer).get_json()
    assert body["tasks"] == dict.fromkeys(map(str, Status), 0)
    assert body["requests"] == {"queued": 0, "leased": 0}
    assert (body["workers"], body["threads"], body["slices"]) == ([], 0, 0)
    assert body["keeper"] == {"last_pass_age_s": None}
    assert (body["pages_last_minute"], body["pages_this_minute"], body["failure_rate"]) == (0, 0, 0.0)


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_a_pool_at_work(kind: str, make_app: MakeApp, request: pytest.FixtureRequest) -> None:
    """Workers, throughput, the queue and the keeper, as the store and the pulse know them."""
    app = make_app(request.getfixturevalue(f"{kind}_url"))
    state: PoolState = app.extensions["spiderpool"]
    with app.app_context():
        state.start("quotes", start_urls=["https://quotes.example/1", "https://quotes.example/2"])
        app.extensions["sqlalchemy"].session.commit()
    store, pulse = state.store(), state.pulse()
    pulse.beat(WorkerPulse("w:1:a", datetime.now(UTC), threads=64, slices=2, info={"pid": 1}))
    pulse.add({"done": 30, "failed": 10, "wire_bytes": 5})
    store.keep("w:1:a")
    body = app.test_client().get(STATUS, headers=bearer(app, Role.VIEWER)).get_json()
    assert body["tasks"]["pending"] == 1
    assert body["requests"] == {"queued": 2, "leased": 0}
    assert body["slots"] == {"due": 0, "sent": 1, "running": 0}
    [worker] = body["workers"]
    assert (worker["name"], worker["threads"], worker["info"]) == ("w:1:a", 64, {"pid": 1})
    assert (body["threads"], body["slices"]) == (64, 2)
    # Whichever minute it is by now, these were counted in this one or the last.
    assert body["pages_last_minute"] + body["pages_this_minute"] == 30
    assert body["failure_rate"] == 0.25
    assert 0 <= body["keeper"]["last_pass_age_s"] < 60


def test_a_task_with_its_numbers(client: FlaskClient, viewer: dict[str, str], task_id: str) -> None:
    """``?task_id=`` gives one task; its numbers add up."""
    body = client.get(f"{STATUS}?task_id={task_id}", headers=viewer).get_json()
    numbers = body["numbers"]
    assert (body["task_id"], body["spider_name"], body["status"]) == (task_id, "quotes", "pending")
    assert numbers["discovered"] == 1
    assert numbers["discovered"] == sum(
        numbers[name] for name in ("queued", "leased", "done", "failed", "skipped")
    )
    assert datetime.fromisoformat(body["created_at"]).tzinfo is not None
    assert (body["started_at"], body["ended_at"], body["end_reason"]) == (None, None, None)
    assert set(body["links"]) == {"status", "pause", "resume", "stop", "retry"}


def test_the_verdict_is_said_on_the_way(
    client: FlaskClient, operator: dict[str, str], viewer: dict[str, str], task_id: str
) -> None:
    """With no worker alive a task does not hang in ``pausing`` or ``stopping``: the route says the verdict."""
    client.post("/spiderpool/spider/pause", headers=operator, json={"task_id": task_id})
    assert client.get(f"{STATUS}?task_id={task_id}", headers=viewer).get_json()["status"] == "paused"
    client.post("/spiderpool/spider/stop", headers=operator, json={"task_id": task_id})
    assert client.get(STATUS, headers=viewer).get_json()["tasks"]["stopped"] == 1


def test_a_task_that_still_works_keeps_stopping(
    client: FlaskClient, operator: dict[str, str], viewer: dict[str, str], state: PoolState, task_id: str
) -> None:
    """``stopped`` is not said while a slice holds a request."""
    store = state.store()
    claim = store.claim(UUID(task_id), 0, 1, "w")
    assert claim is not None
    lease = store.lease(claim.ticket, 1, {}, 1, suspects=True, rest_hosts={})
    assert len(lease.requests) == 1
    client.post("/spiderpool/spider/stop", headers=operator, json={"task_id": task_id})
    body = client.get(f"{STATUS}?task_id={task_id}", headers=viewer).get_json()
    assert (body["status"], body["numbers"]["leased"]) == ("stopping", 1)
    store.settle(claim.ticket, [Outcome(request, Verdict.RELEASE) for request in lease.requests])
    assert client.get(f"{STATUS}?task_id={task_id}", headers=viewer).get_json()["status"] == "stopped"


def test_an_unknown_task(client: FlaskClient, viewer: dict[str, str]) -> None:
    """404 names the parameter."""
    answer = client.get(f"{STATUS}?task_id=00000000-0000-0000-0000-000000000000", headers=viewer)
    assert answer.status_code == 404
    assert answer.get_json()["errors"][0]["field"] == "task_id"


def test_the_answer_is_not_to_be_kept(client: FlaskClient, viewer: dict[str, str], task_id: str) -> None:
    """No cache between us and the caller may tell an old state."""
    for url in (STATUS, f"{STATUS}?task_id={task_id}"):
        assert client.get(url, headers=viewer).headers["Cache-Control"] == "no-store"
