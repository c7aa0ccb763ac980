"""Where the example host's settings come from."""

from __future__ import annotations

from pathlib import Path

import pytest

from example_app import _address_of, create_app, pool_settings_of
from flask_spiderpool.cli.supervise import PARENT_VARIABLE
from flask_spiderpool.errors import ConfigError
from flask_spiderpool.extension.role import ROLE_VARIABLE


def test_later_settings_win(monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment beats the defaults, and what the factory is given beats the environment."""
    monkeypatch.setenv("FLASK_SQLALCHEMY_DATABASE_URI", "sqlite://")
    monkeypatch.setenv("SPIDERPOOL_DELAY_S", "0.25")
    monkeypatch.setenv("SPIDERPOOL_MAX_PAGES", "70")
    app = create_app({"SPIDERPOOL_MAX_PAGES": 7})
    assert app.config["SQLALCHEMY_DATABASE_URI"] == "sqlite://"
    settings = app.extensions["spiderpool"].settings
    assert (settings.delay_s, settings.max_pages) == (0.25, 7)


def test_a_misspelled_setting_is_not_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wrong key in the environment stops the app and names the right one."""
    monkeypatch.setenv("SPIDERPOOL_DELAYS", "1")
    with pytest.raises(ConfigError, match="did you mean SPIDERPOOL_DELAY_S"):
        create_app({"SQLALCHEMY_DATABASE_URI": "sqlite://"})


def test_what_processes_tell_each_other_is_no_setting() -> None:
    """The variables by which a worker knows its role and parent are not handed to the pool as settings."""
    environ = {
        ROLE_VARIABLE: "worker",
        PARENT_VARIABLE: "1",
        "SPIDERPOOL_TEST_PG": "x",
        "SPIDERPOOL_QUEUE": "q",
    }
    assert pool_settings_of(environ) == {"SPIDERPOOL_QUEUE": "q"}


def test_without_a_database_named_the_instance_folder_holds_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A fresh clone needs no settings: the database is a file in the instance folder, with demo users."""
    monkeypatch.setattr(
        "flask.Flask.auto_find_instance_path", lambda self: str(tmp_path / "made" / "instance")
    )
    monkeypatch.delenv("FLASK_SQLALCHEMY_DATABASE_URI", raising=False)
    app = create_app()
    assert (
        app.config["SQLALCHEMY_DATABASE_URI"] == f"sqlite:///{tmp_path / 'made' / 'instance' / 'example.db'}"
    )
    assert (tmp_path / "made" / "instance").is_dir()
    assert app.config["DEMO_USERS"] is True


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("http://127.0.0.1:5000/news/", "127.0.0.1:5000"),
        ("http://[::1]:5000/news/", "[::1]:5000"),
        ("https://news.example/news/", "news.example:443"),
        ("http://news.example/", "news.example:80"),
    ],
)
def test_the_apps_own_address_may_be_crawled(url: str, address: str) -> None:
    """The address of the news site is named exactly, port included."""
    assert _address_of(url) == address
