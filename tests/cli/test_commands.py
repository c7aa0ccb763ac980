"""Every command that reports or changes, in this process, on SQLite."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from types import SimpleNamespace
from uuid import UUID, uuid4

import click
import pytest
import sqlalchemy as sa
from click.testing import CliRunner, Result
from flask import Flask
from flask.cli import ScriptInfo
from flask_migrate import Migrate

from flask_spiderpool import migrations
from flask_spiderpool.cli import spiderpool
from flask_spiderpool.cli.app import shown_database
from flask_spiderpool.cli.group import COMMANDS
from flask_spiderpool.cli.remedy import pasteable
from flask_spiderpool.cli.up import prepare_tables
from flask_spiderpool.errors import SetupError
from flask_spiderpool.models import History, Task, Token
from flask_spiderpool.pulse.base import WorkerPulse
from flask_spiderpool.terms import Role
from tests.cli.conftest import Cli


def task_of(cli: Cli, *words: str) -> str:
    return json.loads(cli("start", "quotes", *words, "--json").stdout)["task_id"]


def one_line(result: Result) -> str:
    lines = [line for line in result.stderr.splitlines() if line]
    assert len(lines) == 1, result.stderr
    return lines[0]


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_command_can_be_loaded_and_explains_itself(bare_cli: Cli, name: str):
    """Commands are imported on demand; a broken one must not be found by a user first."""
    said = bare_cli(name, "--help").output
    assert "Usage:" in said
    assert name in bare_cli("--help").output


def test_crawl_shows_its_defaults(bare_cli: Cli):
    """Somebody who reads the help knows what happens without options."""
    said = " ".join(bare_cli("crawl", "--help").output.split())
    for default in ("Default: 10000.", "Default: 10.", "Default: 1;", "Default: 32, to one host 8."):
        assert default in said


def test_an_unknown_command_is_wrong_usage(bare_cli: Cli):
    """Exit code 2, as click's own, with the command that was probably meant."""
    said = bare_cli("upp", code=2).output
    assert "No such command" in said
    assert "Did you mean 'up'?" in said
    assert "Did you mean" not in bare_cli("xyzzy", code=2).output


def test_a_database_without_tables_is_explained(bare_cli: Cli, monkeypatch: pytest.MonkeyPatch):
    """One line that names the command which helps, never a traceback; a worker does not begin."""
    monkeypatch.setenv("SPIDERPOOL_ROLE", "web")  # put back after the worker has changed it
    for words in (["tasks"], ["start", "quotes"], ["token", "list"], ["status"], ["worker", "--quiet"]):
        assert "flask spiderpool db upgrade" in one_line(bare_cli(*words, code=1))


def test_remedies_name_the_app_as_it_was_given(monkeypatch: pytest.MonkeyPatch, app: Flask):
    """What is said can be pasted: with --app, or as the host's own command."""
    info = ScriptInfo(app_import_path="my site:make('x')", create_app=lambda: app)
    with click.Context(click.Command("x"), obj=info):
        assert pasteable("run 'flask spiderpool up'") == (
            """run 'flask --app 'my site:make('"'"'x'"'"')' spiderpool up'"""
        )
    for path, said in (("site", "flask --app site"), (None, "flask")):
        with click.Context(click.Command("x"), obj=ScriptInfo(app_import_path=path)):
            assert (
                pasteable("`flask db upgrade`, flask spiderpooler")
                == f"`{said} db upgrade`, flask spiderpooler"
            )
    monkeypatch.setattr("sys.argv", ["/opt/bin/mysite", "spiderpool", "tasks"])
    with click.Context(click.Command("x"), obj=ScriptInfo(create_app=lambda: app)):
        assert pasteable("flask spiderpool tasks") == "mysite spiderpool tasks"


def test_an_error_names_the_app(app: Flask):
    """An error of any layer is told with the command that can be pasted."""
    info = ScriptInfo(app_import_path="site", create_app=lambda: app)
    result = CliRunner().invoke(spiderpool, ["tasks"], obj=info)
    assert "run 'flask --app site spiderpool db upgrade'" in result.stderr


def test_db_upgrade_says_what_it_did(bare_cli: Cli):
    """The first time it makes tables, the second time it has nothing to do."""
    first = json.loads(bare_cli("db", "upgrade", "--json").output)
    second = json.loads(bare_cli("db", "upgrade", "--json").output)
    assert first == {"before": None, "after": first["after"], "changed": True}
    assert second == {"before": first["after"], "after": first["after"], "changed": False}
    assert json.loads(bare_cli("db", "current", "--json").output)["current"] == first["after"]
    assert json.loads(bare_cli("db", "check", "--json").output) == {"ok": True, "differences": []}


def test_db_check_fails_where_something_differs(cli: Cli, app: Flask):
    """For scripts: exit code 1 and the difference."""
    with app.app_context():
        db = app.extensions["sqlalchemy"]
        with db.engine.begin() as connection:
            connection.execute(sa.text("DROP TABLE spiderpool_log"))
    said = cli("db", "check", code=1).output
    assert "add_table: spiderpool_log\n" in said
    assert "Table(" not in said
    assert "flask spiderpool db upgrade" in said


def test_an_empty_database_is_told_in_one_sentence(bare_cli: Cli):
    """Not a list of everything that is missing, and with the remedy."""
    checked = bare_cli("db", "check", code=1).output
    assert len(checked.splitlines()) == 2
    assert "no tables of the pool" in checked
    assert "flask spiderpool db upgrade" in checked
    (current,) = bare_cli("db", "current").output.splitlines()
    assert "no tables of the pool" in current
    assert "flask spiderpool db upgrade" in current
    assert json.loads(bare_cli("db", "check", "--json", code=1).output)["ok"] is False
    assert json.loads(bare_cli("db", "current", "--json").output)["current"] is None


def test_tables_of_create_all_are_told_from_none(bare_cli: Cli, app: Flask):
    """They are as they must be, only without a version; an upgrade looks after them from then on."""
    with app.app_context():
        app.extensions["sqlalchemy"].create_all()
    assert "as they must be" in bare_cli("db", "check").output
    assert "without a version" in bare_cli("db", "current").output
    assert "from now on" in bare_cli("db", "upgrade").output
    assert "(newest)" in bare_cli("db", "current").output


def test_spiders_are_listed_with_their_descriptions(cli: Cli):
    """What looks like markup is shown as it is."""
    assert "Quotes, said by [somebody]." in cli("spiders").output
    listed = {one["name"]: one for one in json.loads(cli("spiders", "--json").output)}
    assert listed["quotes"]["options"]["max_depth"] == 3


def test_start_writes_a_task_with_its_options(cli: Cli, app: Flask):
    """Options by name and by --param; who started it stands in the row."""
    task_id = task_of(
        cli, "--max-pages", "7", "-p", "priority=-3", "-p", "user_agent=Me/1", "-m", "for the tests"
    )
    with app.app_context():
        session = app.extensions["sqlalchemy"].session
        task = session.get(Task, UUID(task_id))
        assert (task.status, task.max_pages, task.priority) == ("pending", 7, -3)
        assert task.options["user_agent"] == "Me/1"
        assert task.created_by.startswith("cli")
        assert session.scalars(sa.select(History.note)).all() == ["for the tests"]


def test_urls_of_start_take_the_place_of_the_spiders_own(cli: Cli, app: Flask):
    """As many as are given."""
    task_id = task_of(cli, "https://a.example/", "https://b.example/")
    with app.app_context():
        task = app.extensions["sqlalchemy"].session.get(Task, UUID(task_id))
        assert task.options["start_urls"] == ["https://a.example/", "https://b.example/"]


@pytest.mark.parametrize(
    ("words", "field", "remedy"),
    [
        (["start", "qoutes"], "qoutes", "did you mean 'quotes'"),
        (["start", "quotes", "-p", "max_page=3"], "max_page", "did you mean max_pages"),
        (["start", "quotes", "-p", "priority"], "--param", "NAME=VALUE"),
        (["start", "quotes", "-p", "start_urls=x"], "start_urls", "give URLs as arguments"),
        (["start", "quotes", "-p", "session=1"], "session", "not an option"),
        (["start", "quotes", "ftp://x/"], "Error: URL: ", "ftp"),
        (["start", "quotes", "-p", "attempts=0"], "Error: -p attempts: ", "from 1"),
        (["pause", "xyz"], "TASK_ID", "digits"),
        (["pause", "abc"], "TASK_ID", "digits"),
        (["stop", "0123abcd"], "TASK_ID", "flask spiderpool tasks"),
        (["resume", str(uuid4())], "TASK_ID", "flask spiderpool tasks"),
        (["status", "0123abcd"], "TASK_ID", "flask spiderpool tasks"),
        (["token", "revoke", "99"], "ID", "token list"),
        (["token", "revoke", "nobody"], "NAME", "token list"),
        (["token", "create", "99"], "NAME", "add a letter"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_line(cli: Cli, words: list[str], field: str, remedy: str):
    """It names the field and the remedy; exit code 2."""
    line = one_line(cli(*words, code=2))
    assert field in line
    assert remedy in line


def test_verbs_by_prefix(cli: Cli):
    """The first digits of an id are enough, with or without hyphens."""
    task_id = task_of(cli)
    paused = json.loads(cli("pause", task_id[:8], "--json").output)
    assert paused["task_id"] == task_id
    assert (paused["desired"], paused["effect"]) == ("pause", "accepted")
    assert json.loads(cli("pause", task_id[:13], "--json").output)["effect"] == "unchanged"
    assert json.loads(cli("resume", task_id.replace("-", ""), "--json").output)["desired"] == "run"
    assert "already" in cli("resume", task_id).output
    assert json.loads(cli("stop", task_id, "--json").output)["desired"] == "stop"


def test_an_ambiguous_prefix_is_refused_with_the_matches(cli: Cli, app: Flask):
    """Nothing is changed by guessing."""
    ids = [task_of(cli), task_of(cli)]
    with app.app_context():
        db = app.extensions["sqlalchemy"]
        with db.engine.begin() as connection:
            for number, task_id in enumerate(ids):
                for table, column in (
                    ("task", "id"),
                    ("slot", "task_id"),
                    ("lane", "task_id"),
                    ("request", "task_id"),
                    ("history", "task_id"),
                ):
                    connection.execute(
                        sa.text(f"UPDATE spiderpool_{table} SET {column} = :new WHERE {column} = :old"),
                        {"new": f"abcdabcd{number}" + "0" * 23, "old": UUID(task_id).hex},
                    )
    line = one_line(cli("pause", "abcdabcd", code=2))
    assert "several tasks" in line
    assert "abcdabcd-0000" in line
    assert "abcdabcd-1000" in line


def test_a_verb_that_makes_no_sense_is_a_conflict(cli: Cli):
    """A stop is never taken back; exit code 2 and the status in the line."""
    task_id = task_of(cli)
    cli("stop", task_id)
    assert json.loads(cli("status", task_id, "--json").output)["status"] == "stopped"
    assert "stopped" in one_line(cli("resume", task_id, code=2))
    retried = json.loads(cli("retry", task_id, "--max-pages", "5", "--json").output)
    assert retried["effect"] == "accepted"


def test_tasks_are_listed_newest_first_with_numbers_that_add_up(cli: Cli):
    """In a pipe nothing is folded: the whole id stands in one line."""
    first, second = task_of(cli), task_of(cli, "https://a.example/", "https://b.example/")
    listed = json.loads(cli("tasks", "--json").output)
    assert [one["task_id"] for one in listed] == [second, first]
    assert listed[0]["queued"] == listed[0]["discovered"] == 2
    lines = cli("tasks").output.splitlines()
    assert any(first in line and "pending" in line for line in lines)
    assert json.loads(cli("tasks", "--status", "finished", "--json").output) == []
    assert len(json.loads(cli("tasks", "--limit", "1", "--json").output)) == 1
    assert len(json.loads(cli("tasks", "--spider", "quotes", "--json").output)) == 2
    assert "start SPIDER" in cli("tasks", "--spider", "other").output


def test_status_of_a_pool_nobody_works_for(cli: Cli):
    """It says that no worker is alive and how to start one."""
    task_of(cli)
    said = cli("status").output
    assert "1 pending" in said
    assert "flask spiderpool worker" in said
    status = json.loads(cli("status", "--json").output)
    assert {name: count for name, count in status["tasks"].items() if count} == {"pending": 1}
    assert status["requests"] == {"queued": 1, "leased": 0}
    assert (status["workers"], status["keeper"]) == ([], {"last_pass_age_s": None})


def test_status_in_json_is_the_document_of_the_rest_route(cli: Cli, app: Flask):
    """One name for one thing, for the pool and for a task."""
    task_id = task_of(cli)
    headers = {"Authorization": "Bearer " + cli("token", "create", "me").stdout.strip()}
    client = app.test_client()
    for words, query in (([], ""), ([task_id], f"?task_id={task_id}")):
        answered = client.get(f"/spiderpool/spool/status{query}", headers=headers).get_json()
        assert json.loads(cli("status", *words, "--json").output) == answered


def test_status_of_a_task_tells_a_person_why(cli: Cli, app: Flask):
    """Who, when, numbers that add up in one line, and each reason with an example."""
    task_id = task_of(cli, *(f"https://a.example/{n}" for n in range(6)))
    with app.app_context():
        db = app.extensions["sqlalchemy"]
        with db.engine.begin() as connection:
            for number, (state, reason) in enumerate([(4, "http_404"), (4, "http_404"), (5, "robots")]):
                connection.execute(
                    sa.text(
                        "UPDATE spiderpool_request SET state = :state, reason = :reason WHERE url = :url"
                    ),
                    {"state": state, "reason": reason, "url": f"https://a.example/{number}"},
                )
            connection.execute(
                sa.text(
                    "UPDATE spiderpool_task SET done = 2, pages = 1, unchanged = 1, failed = 2, skipped = 1"
                )
            )
    said = cli("status", task_id[:8]).output
    assert "spider    quotes" in said
    assert "status    pending" in said
    assert "6 found: 2 pages (1 new or changed, 1 unchanged), 2 failed, 1 skipped, 1 to go" in said
    assert "  2 x http_404, as https://a.example/0\n" in said
    assert "  1 x robots, as https://a.example/2\n" in said
    assert "by cli" in said


def test_start_says_when_nobody_works(cli: Cli, app: Flask):
    """The task waits in the database; beside the answer, so that --json stays JSON."""
    said = cli("start", "quotes", "--json")
    assert json.loads(said.stdout)["status"] == "pending"
    assert "no worker is alive; run 'flask spiderpool up'" in said.stderr
    app.extensions["spiderpool"].pulse().beat(
        WorkerPulse(name="w", seen_at=datetime.now(UTC), threads=1, slices=0)
    )
    assert cli("start", "quotes").stderr == ""


def test_status_of_a_task_brings_it_to_its_verdict(cli: Cli):
    """A stopped task with no worker alive does not hang in ``stopping``."""
    task_id = task_of(cli)
    cli("stop", task_id)
    assert "stopped" in cli("status", task_id[:8]).output


def test_a_token_is_shown_once_and_kept_as_a_hash(cli: Cli, app: Flask):
    """Neither the list nor the database holds the secret."""
    made = json.loads(cli("token", "create", "ci", "--role", "viewer", "--days", "30", "--json").output)
    listed = cli("token", "list", "--json").output
    assert made["token"] not in listed
    (one,) = json.loads(listed)
    assert (one["name"], one["role"], one["revoked_at"]) == ("ci", Role.VIEWER.value, None)
    assert one["expires_at"] is not None
    with app.app_context():
        kept = app.extensions["sqlalchemy"].session.scalars(sa.select(Token)).one()
        assert made["token"].encode() not in kept.hash
    assert json.loads(cli("token", "revoke", str(made["id"]), "--json").output)["revoked_at"] is not None
    assert json.loads(cli("token", "list", "--json").output)[0]["revoked_at"] is not None


def test_a_live_name_is_taken_once_and_revoked_by_name(cli: Cli):
    """Two tokens of one name could not be told apart; after the revocation the name is free."""
    cli("token", "create", "ci", "--days", "1")
    line = one_line(cli("token", "create", "ci", code=2))
    assert "called ci already" in line
    assert "token revoke ci" in line
    assert "is revoked" in cli("token", "revoke", "ci").output
    assert "no live token is called 'ci'" in one_line(cli("token", "revoke", "ci", code=2))
    cli("token", "create", "ci")
    kept = json.loads(cli("token", "list", "--json").output)
    assert [one["revoked_at"] is None for one in kept] == [False, True]


def test_without_json_the_token_alone_is_on_stdout(cli: Cli):
    """``TOKEN=$(flask spiderpool token create me)`` must hold the secret and nothing else."""
    result = cli("token", "create", "me")
    assert result.stdout.strip().startswith("spt_")
    assert len(result.stdout.split()) == 1
    assert "shown this once" in result.stderr


def test_an_app_without_a_pool_is_told_so():
    """Not a KeyError."""
    result = Flask("bare").test_cli_runner().invoke(spiderpool, ["tasks"])
    assert result.exit_code == 1
    assert "SpiderPool().init_app" in result.output


def test_up_leaves_the_tables_of_a_migrating_host_to_the_host(app: Flask, sqlite_url: str):
    """One owner of migrations a database: where Flask-Migrate is, its commands are named; where the host has
    made the tables, nothing is done twice."""
    db = app.extensions["sqlalchemy"]
    Migrate(app, db)
    state = app.extensions["spiderpool"]
    with pytest.raises(SetupError, match="flask db upgrade"):
        prepare_tables(app, state)
    with app.app_context():
        db.create_all()
    prepare_tables(app, state)
    assert migrations.current(sqlite_url) is None


def test_up_makes_the_tables_of_other_hosts(app: Flask, sqlite_url: str):
    """Each start brings them up to date."""
    state = app.extensions["spiderpool"]
    prepare_tables(app, state)
    prepare_tables(app, state)
    assert migrations.current(sqlite_url) == migrations.head()


def test_a_password_is_never_shown():
    """What ``up`` and ``demo`` print may stand in a log."""
    state = SimpleNamespace(database_url=lambda: "postgresql+psycopg://me:secret@db.example/x")
    assert shown_database(state) == "postgresql+psycopg://me:***@db.example/x"
