"""Hosts of all kinds: what is theirs stays theirs."""

from __future__ import annotations

import logging
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from celery import Celery
from flask import Flask, abort
from flask.testing import FlaskClient
from flask_sqlalchemy import SQLAlchemy
from werkzeug.exceptions import default_exceptions

from flask_spiderpool import SpiderPool
from flask_spiderpool.errors import SetupError
from flask_spiderpool.models import Task
from flask_spiderpool.store.tokens import add_token
from flask_spiderpool.terms import Role

Make = Callable[..., Flask]

db = SQLAlchemy()
pool = SpiderPool()


@pool.spider("quotes", start_urls=["https://quotes.example/"])
def parse(page: Any) -> None:
    """Take nothing."""


@pytest.fixture
def make_host(tmp_path: Path) -> Iterator[Make]:
    """The factory of a host: its own db, Celery app, pages and error pages."""
    made: list[Flask] = []

    def make(name: str = "host", **config: Any) -> Flask:
        app = Flask(name, instance_path=str(tmp_path / name))
        app.config.update(SQLALCHEMY_DATABASE_URI=f"sqlite:///{tmp_path}/{name}.db", TESTING=True, **config)
        celery = Celery(name, set_as_current=False, broker="memory://", task_acks_late=True)
        app.extensions["celery"] = celery
        _add_pages(app)
        pool.init_app(app)
        db.init_app(app)
        with app.app_context():
            db.create_all()
        made.append(app)
        return app

    yield make
    for app in made:
        app.extensions["spiderpool"].close()


def _add_pages(app: Flask) -> None:
    @app.get("/")
    def home() -> str:
        return "home"

    @app.get("/gone")
    def gone() -> str:
        abort(410)

    @app.get("/broken")
    def broken() -> str:
        raise ZeroDivisionError

    @app.errorhandler(404)
    def not_found(error: Exception) -> tuple[str, int]:
        return f"{app.name}: no such page", 404

    @app.errorhandler(500)
    def failed(error: Exception) -> tuple[str, int]:
        return f"{app.name}: our fault", 500


def _token(app: Flask, role: Role = Role.OPERATOR) -> dict[str, str]:
    with app.app_context():
        _, secret = add_token(db.session, name="t", role=role)
        db.session.commit()
    return {"Authorization": f"Bearer {secret}"}


def _start(client: FlaskClient, header: dict[str, str], path: str = "/spiderpool") -> Any:
    return client.post(f"{path}/spider/start", headers=header, json={"spider_name": "quotes"})


def test_two_apps_of_one_factory(make_host: Make) -> None:
    """Each has its own tasks, tokens and settings, though db and pool are the same objects."""
    first, second = make_host("first"), make_host("second", SPIDERPOOL_URL_PREFIX="/crawl")
    mine, theirs = _token(first), _token(second)
    assert _start(first.test_client(), mine).status_code == 202
    assert _start(first.test_client(), theirs).status_code == 401
    assert _start(second.test_client(), theirs).status_code == 404
    assert _start(second.test_client(), theirs, "/crawl").status_code == 202
    assert _start(second.test_client(), theirs, "/crawl").status_code == 202
    counts = []
    for app in (first, second):
        with app.app_context():
            counts.append(db.session.query(Task).count())
    assert counts == [1, 2]


@pytest.mark.parametrize("looks_first", [False, True])
def test_a_start_in_a_savepoint_of_the_hosts(make_host: Make, looks_first: bool) -> None:
    """Flask-SQLAlchemy on plain SQLite, as the quickstart has it: a rollback takes the task back."""
    app = make_host()
    with app.app_context():
        if looks_first:
            db.session.query(Task).count()
        with db.session.begin_nested():
            pool.start("quotes")
        db.session.rollback()
        db.session.commit()
        assert db.session.query(Task).count() == 0
        with db.session.begin_nested():
            pool.start("quotes")
        db.session.commit()
        assert db.session.query(Task).count() == 1


def test_a_second_init_on_one_app(make_host: Make) -> None:
    """The error says the remedy, and the first pool goes on."""
    app = make_host()
    with pytest.raises(SetupError, match="call init_app once an app"):
        pool.init_app(app)
    assert _start(app.test_client(), _token(app)).status_code == 202


def test_the_hosts_pages_stay(make_host: Make) -> None:
    """Its pages and error pages answer as without us; ours are problem documents below our prefix only."""
    app = make_host(PROPAGATE_EXCEPTIONS=False)
    client = app.test_client()
    assert client.get("/").text == "home"
    for path, status, text in (
        ("/nothing", 404, "host: no such page"),
        ("/broken", 500, "host: our fault"),
        ("/spiderpoolish", 404, "host: no such page"),
    ):
        answer = client.get(path)
        assert (answer.status_code, answer.text) == (status, text)
    assert client.get("/gone").content_type == "text/html; charset=utf-8"
    assert client.post("/").content_type == "text/html; charset=utf-8"
    assert client.get("/spiderpool/nothing").content_type == "application/problem+json"
    assert client.get("/spiderpool/spider/start").content_type == "application/problem+json"


def test_a_failure_on_our_routes_is_no_page_of_the_hosts(
    make_host: Make, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Programs call these routes: a 500 there is a problem document, and is logged as Flask logs it."""
    app = make_host(PROPAGATE_EXCEPTIONS=False)
    header = _token(app)
    monkeypatch.setattr("flask_spiderpool.control.start", lambda *args, **kwargs: 1 / 0)
    with caplog.at_level(logging.ERROR):
        answer = _start(app.test_client(), header)
    assert (answer.status_code, answer.content_type) == (500, "application/problem+json")
    assert "ZeroDivisionError" in caplog.text


def test_the_hosts_error_handlers_do_not_reach_our_routes(make_host: Make) -> None:
    """Whatever a host has registered, for codes or for every exception, programs get problem documents."""
    app = make_host()
    for code in default_exceptions:
        app.register_error_handler(code, lambda error: ("the host's page", 418))
    app.register_error_handler(Exception, lambda error: ("the host's page", 418))
    client, header = app.test_client(), _token(app)
    answers = [
        client.get("/spiderpool/spool/status"),
        client.get("/spiderpool/nothing"),
        client.get("/spiderpool/spider/start"),
        client.get("/spiderpool/spool/status?task_id=7", headers=header),
        client.post("/spiderpool/spider/start", headers=header, data="{"),
        client.post("/spiderpool/spider/start", headers=header, json={"spider_name": "none"}),
    ]
    assert [answer.status_code for answer in answers] == [401, 404, 405, 422, 415, 404]
    assert {answer.content_type for answer in answers} == {"application/problem+json"}
    assert client.get("/nothing").text == "the host's page"


def test_the_hosts_celery_is_untouched(make_host: Make) -> None:
    """Its configuration, its tasks and its choice as the current app stay; only ours is added in a worker."""
    app = make_host()
    celery = app.extensions["celery"]

    @celery.task(name="host.work", shared=False)
    def work() -> int:
        return 7

    before = dict(celery.conf)
    celery.loader.import_default_modules()
    assert dict(celery.conf) == before
    assert celery.conf.task_acks_late is True
    assert {name for name in celery.tasks if not name.startswith("celery.")} == {
        "host.work",
        "spiderpool.slice",
    }
    assert celery.tasks["host.work"].acks_late is True
    assert celery.tasks["spiderpool.slice"].acks_late is False


def test_the_hosts_logging_is_untouched(make_host: Make) -> None:
    """No handler and no level is set, neither on the root nor on our own loggers."""
    names = ["", "flask_spiderpool", "spiderpool", "sqlalchemy", "celery", "werkzeug"]

    def seen() -> list[Any]:
        loggers = [logging.getLogger(name) for name in names]
        return [(list(one.handlers), one.level, one.propagate, one.disabled) for one in loggers]

    before = seen()
    make_host()
    assert seen() == before


def test_the_hosts_configuration_is_untouched(make_host: Make) -> None:
    """No key appears in ``app.config`` that the host did not put there, but those of its own extensions."""
    app = make_host()
    assert [key for key in app.config if "SPIDERPOOL" in key or "SMOREST" in key or "OPENAPI" in key] == []


def test_the_hosts_commands_are_untouched(make_host: Make) -> None:
    """Ours comes by its entry point; nothing is added to the app's own group."""
    assert "openapi" not in make_host().cli.commands


def test_a_task_in_the_hosts_request(make_host: Make) -> None:
    """A view starts a task in its own transaction: its failure takes the task with it."""
    app = make_host(PROPAGATE_EXCEPTIONS=False)

    @app.post("/order/<outcome>")
    def order(outcome: str) -> str:
        task = pool.start("quotes", by="order")
        if outcome == "fails":
            raise ZeroDivisionError
        db.session.commit()
        return str(task.id)

    client = app.test_client()
    assert client.post("/order/fails").status_code == 500
    kept = client.post("/order/works").text
    with app.app_context():
        assert [str(task.id) for task in db.session.query(Task)] == [kept]


@pytest.mark.parametrize("key", ["crawl"])
def test_a_bind_of_the_hosts(key: str, tmp_path: Path) -> None:
    """SPIDERPOOL_BIND_KEY: our tables, models and verbs go to that bind, in the host's one session.

    In a process of its own, since a process has one bind key for all its apps.
    """
    program = textwrap.dedent(
        f"""
        import sqlalchemy as sa
        from flask import Flask
        from flask_sqlalchemy import SQLAlchemy
        from flask_spiderpool import SpiderPool
        from flask_spiderpool.errors import SetupError
        from flask_spiderpool.models import Task, metadata

        app = Flask("host", instance_path={str(tmp_path)!r})
        app.config.update(
            SQLALCHEMY_DATABASE_URI="sqlite:///{tmp_path}/main.db",
            SQLALCHEMY_BINDS={{{key!r}: "sqlite:///{tmp_path}/crawl.db"}},
            SPIDERPOOL_BIND_KEY={key!r},
            CELERY={{"broker_url": "memory://"}},
        )
        db, pool = SQLAlchemy(), SpiderPool()
        pool.spider("quotes", start_urls=["https://quotes.example/"])(lambda page: None)

        class Note(db.Model):
            id = db.Column(db.Integer, primary_key=True)

        pool.init_app(app)
        db.init_app(app)
        with app.app_context():
            db.create_all()
            assert set(sa.inspect(db.engine).get_table_names()) == {{"note"}}
            assert set(sa.inspect(db.engines[{key!r}]).get_table_names()) == set(metadata.tables)
            db.session.add(Note())
            task = pool.start("quotes")
            db.session.rollback()
            assert db.session.query(Task).count() == db.session.query(Note).count() == 0
            with db.session.begin_nested():
                pool.start("quotes")
            db.session.rollback()
            assert db.session.query(Task).count() == 0
            task = pool.start("quotes")
            db.session.add(Note())
            db.session.commit()
            state = app.extensions["spiderpool"]
            assert state.database_url().endswith("crawl.db")
            assert state.store().status_counts() == {{"pending": 1}}
            state.close()
        other = Flask("other")
        try:
            pool.init_app(other)
        except SetupError as error:
            assert "SPIDERPOOL_BIND_KEY" in str(error)
            print("told")
        """
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "told\n"), done.stderr[-2000:]
