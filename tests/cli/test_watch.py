"""A task watched while it goes."""

from __future__ import annotations

import io
import json
import threading
import time
from collections.abc import Callable, Iterator
from uuid import UUID, uuid4

import pytest
from flask import Flask

from flask_spiderpool.bus import EventMessage
from flask_spiderpool.bus.memory import MemoryBus
from flask_spiderpool.cli import watch as module
from flask_spiderpool.cli.watch import watch
from flask_spiderpool.errors import UnknownTask
from flask_spiderpool.state import PoolState
from flask_spiderpool.terms import Event, Status
from tests.cli.conftest import Cli


@pytest.fixture
def state(app: Flask) -> PoolState:
    """The app's pool."""
    found: PoolState = app.extensions["spiderpool"]
    return found


def _begin(cli: Cli) -> UUID:
    return UUID(json.loads(cli("start", "quotes", "--json").stdout)["task_id"])


class ScriptedBus(MemoryBus):
    """Whoever waits for news has the next step happen, and hears what it says."""

    def __init__(self, steps: list[Callable[[], list[EventMessage]]]) -> None:
        super().__init__()
        self.steps = steps

    def subscribe(self, timeout_s: float) -> Iterator[EventMessage]:
        """Nothing is heard without waiting."""
        return iter(self.steps.pop(0)() if timeout_s else [])


def _said(task_id: UUID) -> EventMessage:
    return EventMessage(Event.TASK_PROGRESS, {"task_id": str(task_id)})


def test_it_shows_a_task_until_it_rests(app: Flask, cli: Cli, state: PoolState) -> None:
    """Each news of this task brings a look at the database, and the last one its status."""
    task_id = _begin(cli)

    def progress() -> list[EventMessage]:
        return [_said(uuid4()), _said(task_id)]

    def stop() -> list[EventMessage]:
        with app.app_context():
            state.stop(task_id)
            app.extensions["sqlalchemy"].session.commit()
        return []  # lost: the bus is a hint

    bus = ScriptedBus([progress, stop])
    state._parts.get("bus", lambda: bus)
    out = io.StringIO()
    assert watch(state, task_id, "quotes", out) is Status.STOPPED
    assert bus.steps == []
    assert out.getvalue() == "quotes: 0 pages, 1 to go\n"


def test_it_stops_when_it_is_asked_to(cli: Cli, state: PoolState) -> None:
    """Whoever ends the watch gets no status; the task goes on."""
    task_id = _begin(cli)
    asked = iter([False, True])
    state._parts.get("bus", lambda: ScriptedBus([list]))
    assert watch(state, task_id, "quotes", io.StringIO(), stopped=lambda: next(asked)) is None


def test_a_task_that_is_not_there(cli: Cli, state: PoolState) -> None:
    """It is told at once."""
    with pytest.raises(UnknownTask):
        watch(state, uuid4(), "quotes", io.StringIO())


def test_an_event_wakes_it(app: Flask, cli: Cli, state: PoolState, monkeypatch: pytest.MonkeyPatch) -> None:
    """Over the real bus: what a slice publishes is seen long before the next look would be."""
    monkeypatch.setattr(module, "LOOK_S", 600.0)
    task_id = _begin(cli)
    first = threading.Event()

    class Out(io.StringIO):
        def write(self, text: str) -> int:
            first.set()
            return super().write(text)

    def work() -> None:
        assert first.wait(60)
        with app.app_context():
            state.stop(task_id)
            app.extensions["sqlalchemy"].session.commit()
            state.bus().publish(_said(task_id))

    worker = threading.Thread(target=work)
    worker.start()
    began = time.monotonic()
    assert watch(state, task_id, "quotes", Out()) is Status.STOPPED
    assert time.monotonic() - began < 300
    worker.join()


def test_status_watch(cli: Cli, app: Flask) -> None:
    """``--watch`` shows what becomes of a task and then what it has come to; --json that alone."""
    task_id = str(_begin(cli))
    cli("pause", task_id)
    shown = cli("status", task_id, "--watch")
    assert "paused" in shown.stdout
    assert "quotes: 0 pages, 1 to go" in shown.stderr
    answer = cli("status", task_id, "--watch", "--json")
    assert json.loads(answer.stdout)["status"] == "paused"
    assert answer.stderr == ""


def test_status_watch_says_that_nobody_works(cli: Cli, app: Flask, monkeypatch: pytest.MonkeyPatch) -> None:
    """A task that nobody works on would be watched for ever; Ctrl-C ends the watch with its own code."""

    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    task_id = str(_begin(cli))
    monkeypatch.setattr("flask_spiderpool.cli.status.watch", interrupt)
    assert "no worker is alive" in cli("status", task_id, "--watch", code=130).stderr


def test_status_watch_needs_a_task(cli: Cli) -> None:
    """The pool as a whole has no end to watch for."""
    assert "--watch" in cli("status", "--watch", code=2).stderr
