"""Nothing can be added to the code that the documentation does not name."""

from __future__ import annotations

import ast
import inspect
import re
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

import click
import pytest

import flask_spiderpool
from flask_spiderpool import errors, models, terms
from flask_spiderpool.bus.base import Bus
from flask_spiderpool.cli.group import COMMANDS, spiderpool
from flask_spiderpool.config import PREFIX, Settings
from flask_spiderpool.crawl.options import SpiderOptions
from flask_spiderpool.crawl.store import FrontierStore
from flask_spiderpool.limiter.base import Limiter
from flask_spiderpool.pulse.base import Pulse

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text("utf-8")
REFERENCE = (ROOT / "docs" / "reference.md").read_text("utf-8")


def _section(heading: str) -> str:
    """Return the text below one heading of the reference."""
    found = re.search(rf"^## {re.escape(heading)}\n(.*?)(?=^## |\Z)", REFERENCE, re.MULTILINE | re.DOTALL)
    assert found, f"docs/reference.md has no section {heading!r}"
    return found[1]


def _rows(heading: str) -> dict[str, list[str]]:
    """Return the table below a heading: the name in the first column, without back-quotes, to the other cells."""
    lines = [line for line in _section(heading).splitlines() if line.startswith("|")]
    rows = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]
    return {
        row[0].strip("` |"): [cell.strip(" |") for cell in row[1:]]
        for row in rows
        if row[0].startswith(("`", "| `"))
    }


def _shown(default: Any) -> str:
    if default is None:
        return "not set"
    if default == ():
        return "empty"
    return f"`{str(default).lower() if isinstance(default, bool) else default}`"


def test_every_setting_stands_there_with_its_default() -> None:
    """The table of settings has exactly the keys that there are, with the defaults that they have."""
    told = {key: cells[0] for key, cells in _rows("Settings").items()}
    assert told == {PREFIX + spec.name.upper(): _shown(spec.default) for spec in fields(Settings)}


def test_every_spider_option_stands_there() -> None:
    """The table of options has exactly the fields of SpiderOptions; where it says a number, it is the default."""
    told = _rows("Spider options")
    specs = {spec.name: spec.default for spec in fields(SpiderOptions)}
    assert set(told) == set(specs)
    for name, cells in told.items():
        if cells[0].isdecimal():
            assert specs[name] == int(cells[0]), name
        if cells[0] == "the setting":
            assert specs[name] is None, name
            assert name in {spec.name for spec in fields(Settings)}, name


@pytest.mark.parametrize(
    ("heading", "words"),
    [
        ("Why a request failed or was skipped", terms.Reason),
        ("Why a task ended", terms.EndReason),
    ],
)
def test_every_reason_stands_there(heading: str, words: type[terms.Reason] | type[terms.EndReason]) -> None:
    """The tables of reasons have exactly the words that are stored."""
    assert set(_rows(heading)) == {word.value for word in words}


def test_every_status_stands_there() -> None:
    """The first table of its section names each status, the second each verb on a task."""
    told = set(_rows("Statuses and verbs"))
    assert told == {status.value for status in terms.Status} | {verb.value for verb in terms.VERB_TABLE}


def test_the_verb_table_is_the_codes() -> None:
    """Each cell of verb x status says what the code does."""
    head = next(line for line in REFERENCE.splitlines() if line.startswith("| | `pending`"))
    statuses = re.findall(r"`(\w+)`", head)
    told = {
        verb: dict(zip(statuses, cells, strict=True))
        for verb, cells in _rows("Statuses and verbs").items()
        if len(cells) == len(statuses)
    }
    assert told == {
        verb.value: {status.value: effect.value for status, effect in row.items()}
        for verb, row in terms.VERB_TABLE.items()
    }


@pytest.mark.parametrize(
    ("heading", "words"), [("Roles", terms.Role), ("Events and commands", [*terms.Event, *terms.Command])]
)
def test_every_role_event_and_command_stands_there(heading: str, words: Any) -> None:
    """Roles, and the names of what travels on the bus, are named in their section."""
    missing = [str(word) for word in words if f"`{word}`" not in _section(heading)]
    assert not missing


def test_every_error_stands_there() -> None:
    """The table has exactly the exception classes, the base in the sentence above it."""
    classes = {
        name
        for name, found in vars(errors).items()
        if inspect.isclass(found) and found.__module__ == errors.__name__
    }
    assert set(_rows("Errors")) == classes - {"SpiderPoolError"}
    assert "`SpiderPoolError`" in _section("Errors")


def test_every_model_stands_there() -> None:
    """The table has exactly the models that hosts can import."""
    assert set(_rows("Models")) == set(models.__all__) - {"Base", "metadata"}


@pytest.mark.parametrize("port", [Limiter, Bus, Pulse, FrontierStore])
def test_every_port_stands_there_with_its_methods(port: type) -> None:
    """Each port's row names its methods, and backends only that exist."""
    row = _rows("Ports")[f"{port.__module__}.{port.__name__}"]
    methods = {name for name in vars(port) if not name.startswith("_")}
    assert set(re.findall(r"`(\w+)`", row[1])) == methods


def test_every_command_stands_there() -> None:
    """The table has exactly the commands of the group, and each subcommand by its full name."""
    told = _rows("Command line")
    assert {name.split()[0] for name in told} == set(COMMANDS)
    context = click.Context(spiderpool)
    for name in COMMANDS:
        command = spiderpool.get_command(context, name)
        if isinstance(command, click.Group):
            for sub in command.commands:
                assert f"{name} {sub}" in _section("Command line"), f"{name} {sub}"


def test_every_option_that_the_docs_use_exists() -> None:
    """A command line in README, quickstart or deployment guide uses commands and options that there are."""
    context = click.Context(spiderpool)
    texts = [README, *(path.read_text("utf-8") for path in (ROOT / "docs").glob("*.md"))]
    lines = [match for text in texts for match in re.findall(r"spiderpool ([a-z][^\n`#|)]*)", text)]
    used = [line.split() for line in lines if line.split()[0] in COMMANDS]
    assert len(used) > 10
    for words in used:
        command: click.Command | None = spiderpool.get_command(context, words[0])
        if isinstance(command, click.Group) and len(words) > 1:
            command = command.get_command(context, words[1])
        assert command is not None, words
        known = {option for param in command.params for option in param.opts}
        unknown = {word for word in words if re.match(r"--?[a-zA-Z]", word)} - known - {"--help", "-h"}
        assert not unknown, (words, unknown)


def test_every_method_of_the_extension_stands_there() -> None:
    """The table of SpiderPool has exactly its public methods."""
    from flask_spiderpool.extension import SpiderPool

    public = {
        name for name, found in vars(SpiderPool).items() if callable(found) and not name.startswith("_")
    }
    assert {name.split("(")[0] for name in _rows("SpiderPool")} == public


def _plain_rule(rule: str) -> str:
    """Return ``/x/<id>`` for ``/x/<uuid:id>``."""
    return re.sub(r"<(?:[^:>]+:)?([^>]+)>", r"<\1>", rule)


def test_every_public_name_stands_there() -> None:
    """What can be imported from the package itself is named where the extension is explained."""
    missing = [name for name in flask_spiderpool.__all__ if f"`{name}`" not in _section("SpiderPool")]
    assert not missing


def test_every_route_stands_there() -> None:
    """The table has exactly the routes that the pool registers, methods in."""
    from example_app import create_app

    app = create_app({"SQLALCHEMY_DATABASE_URI": "sqlite://"})
    prefix = app.extensions["spiderpool"].settings.url_prefix
    routes = {
        f"{method} {_plain_rule(rule.rule.removeprefix(prefix))}"
        for rule in app.url_map.iter_rules()
        if rule.rule.startswith(f"{prefix}/")
        for method in (rule.methods or set()) - {"HEAD", "OPTIONS"}
    }
    assert set(_rows("REST routes")) - {str(code) for code in range(400, 600)} == routes


def test_the_readme_says_at_once_what_this_is_not() -> None:
    """Before anything else the README tells this apart from link farms."""
    first = " ".join(README.splitlines()[:8])
    assert "蜘蛛池" in first
    assert "link farm" in first
    assert "**not**" in first


def test_the_readmes_test_command_is_where_ci_looks() -> None:
    """Behind the marker stands a fenced block of one line, which installs the test extra and runs pytest."""
    found = re.search(r"<!-- test-command -->\s*```sh\n([^\n]+)\n```", README)
    assert found
    assert found[1].startswith("python3 -m venv .venv && ")
    assert found[1].endswith(".venv/bin/pytest")


def test_the_readmes_app_is_whole() -> None:
    """The app of the README parses, is about twenty lines long and yields items from a spider."""
    blocks = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    assert len(blocks) == 1
    tree = ast.parse(blocks[0])
    assert 15 <= len(blocks[0].splitlines()) <= 25
    assert any(isinstance(node, ast.Yield) for node in ast.walk(tree))


def test_the_readme_names_the_demos_users_and_pages() -> None:
    """The passwords that the README explains are the demo's, and the number of pages is the site's."""
    from example_app.news import ALL_PAGES
    from example_app.tables import DEMO_USERS

    assert "`admin-lantern`" in README
    assert {name: f"{name}-lantern" for name in DEMO_USERS} == DEMO_USERS
    assert all(f"`{name}`" in README for name in DEMO_USERS)
    assert f"{len(ALL_PAGES)} pages" in README


def test_the_readme_has_no_gap_left() -> None:
    """Every output that the README shows is there: no comment but the marker of the test command."""
    assert re.findall(r"<!--(.*?)-->", README) == [" test-command "]


def test_no_setting_lacks_a_default() -> None:
    """The pool starts without any setting."""
    assert all(spec.default is not MISSING for spec in fields(Settings))
