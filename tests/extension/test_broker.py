"""The Celery app: the host's, or one made for it."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Any

import pytest
from celery import Celery
from flask import Flask, current_app

from flask_spiderpool.config import Settings
from flask_spiderpool.errors import SetupError
from flask_spiderpool.extension.broker import find_or_make_celery, known_celery
from flask_spiderpool.extension.folder_broker import Transport


def _app(tmp_path: Path, **config: Any) -> Flask:
    app = Flask("shop", instance_path=str(tmp_path / "instance"))
    app.config.update(config)
    return app


def test_the_hosts_own_is_used_as_it_is(tmp_path: Path) -> None:
    """Neither replaced nor changed."""
    app = _app(tmp_path)
    theirs = app.extensions["celery"] = Celery("theirs", broker="memory://", set_as_current=False)
    before = dict(theirs.conf)
    assert find_or_make_celery(app, None, Settings(broker_url="redis://other")) is theirs
    assert dict(theirs.conf) == before


def test_one_that_is_given_goes_before(tmp_path: Path) -> None:
    """What the host hands over is meant."""
    app = _app(tmp_path)
    app.extensions["celery"] = Celery("theirs", set_as_current=False)
    given = Celery("given", set_as_current=False)
    assert find_or_make_celery(app, given, Settings()) is given
    assert known_celery(app, given) is given


def test_one_that_comes_later_is_found(tmp_path: Path) -> None:
    """A host may make its Celery app after ours was needed."""
    app = _app(tmp_path)
    made = find_or_make_celery(app, None, Settings())
    assert find_or_make_celery(app, None, Settings()) is made
    later = app.extensions["celery"] = Celery("later", set_as_current=False)
    assert find_or_make_celery(app, None, Settings()) is later


def test_one_is_made_without_a_server(tmp_path: Path) -> None:
    """Without any configuration messages are files in the instance folder, which is the owner's alone."""
    app = _app(tmp_path)
    celery = find_or_make_celery(app, None, Settings())
    assert app.extensions["celery"] is celery
    assert celery.main == "shop"
    assert celery.conf.broker_url == "spiderpool-folder://localhost"
    with celery.connection_for_write() as connection:
        assert isinstance(connection.transport, Transport)
    assert celery.conf.result_backend is None
    assert celery.conf.task_default_queue == "spiderpool"
    folders = celery.conf.broker_transport_options
    for name in ("data_folder_in", "data_folder_out", "control_folder"):
        assert Path(folders[name]).is_dir()
    root = Path(app.instance_path) / "spiderpool-broker"
    assert stat.S_IMODE(root.stat().st_mode) == 0o700


def test_the_apps_configuration_counts(tmp_path: Path) -> None:
    """``CELERY`` as Flask's documentation has it; our own setting goes before it."""
    app = _app(tmp_path, CELERY={"broker_url": "memory://", "task_always_eager": True})
    celery = find_or_make_celery(app, None, Settings())
    assert (celery.conf.broker_url, celery.conf.task_always_eager) == ("memory://", True)
    other = _app(tmp_path, CELERY={"broker_url": "memory://"})
    assert (
        find_or_make_celery(other, None, Settings(broker_url="redis://r/0")).conf.broker_url == "redis://r/0"
    )
    assert not (tmp_path / "instance").exists()


def test_a_hosts_tasks_run_in_an_app_context(tmp_path: Path) -> None:
    """The Celery app that we make gives tasks the context that Flask's documentation promises."""
    app = _app(tmp_path)
    celery = find_or_make_celery(app, None, Settings())

    @celery.task(name="shop.name", shared=False)
    def name() -> str:
        return current_app.name

    assert name() == "shop"


def test_a_folder_that_cannot_be_made_has_a_remedy(tmp_path: Path) -> None:
    """The error names the folder and the setting that avoids it."""
    (tmp_path / "instance").write_text("in the way")
    with pytest.raises(SetupError, match="SPIDERPOOL_BROKER_URL"):
        find_or_make_celery(_app(tmp_path), None, Settings())
