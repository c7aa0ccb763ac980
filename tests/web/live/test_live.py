"""The REST API over real HTTP: what the test client cannot show."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from flask import Flask


@pytest.fixture
def http(live_server: Any, app: Flask) -> Iterator[httpx.Client]:
    """A client of the served app, with a token."""
    with httpx.Client(
        base_url=f"http://localhost:{live_server.port}/spiderpool",
        headers={"Authorization": f"Bearer {app.config['TOKEN']}"},
        trust_env=False,
    ) as client:
        yield client


def test_a_start_and_a_stop(http: httpx.Client, app: Flask) -> None:
    """The way of a program: start, follow the link, stop; the message lies with the broker."""
    started = http.post("/spider/start", json={"spider_name": "quotes"})
    assert started.status_code == 202
    followed = http.get(httpx.URL(str(http.base_url)).join(started.headers["Location"]))
    assert followed.json()["status"] == "pending"
    task_id = started.json()["task_id"]
    assert http.post("/spider/stop", json={"task_id": task_id}).status_code == 202
    assert http.get("/spool/status", params={"task_id": task_id}).json()["status"] == "stopped"
    folder = Path(app.instance_path) / "spiderpool-broker" / "queue"
    deadline = time.monotonic() + 20
    while not any(path.suffix == ".msg" for path in folder.glob("*")):
        assert time.monotonic() < deadline, "no message left"
        time.sleep(0.02)


def test_a_chunked_body_is_bounded(http: httpx.Client) -> None:
    """A body without a length is read no further than the limit."""

    def chunks() -> Iterator[bytes]:
        yield b'{"spider_name": "quotes", "note": "'
        for _ in range(20):
            yield b"x" * 1000
        yield b'"}'

    answer = http.post("/spider/start", content=chunks(), headers={"Content-Type": "application/json"})
    assert answer.status_code == 413
    assert answer.headers["Content-Type"] == "application/problem+json"


def test_a_chunked_body_of_the_right_size(http: httpx.Client) -> None:
    """Within the limit it is as good as any other."""
    body = iter([b'{"spider_name": ', b'"quotes"}'])
    answer = http.post("/spider/start", content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code == 202


def test_methods_that_every_route_has(http: httpx.Client) -> None:
    """HEAD answers as GET without a body; OPTIONS names the methods."""
    head = http.head("/spool/status")
    assert (head.status_code, head.content) == (200, b"")
    assert "POST" in http.options("/spider/start").headers["Allow"]
