"""``flask spiderpool pause|resume|stop|retry TASK_ID``."""

from __future__ import annotations

import click
from flask.cli import with_appcontext

from flask_spiderpool import control
from flask_spiderpool.cli.app import as_typed, caller, find_task_id, open_pool
from flask_spiderpool.cli.output import json_option, print_json
from flask_spiderpool.models import Task
from flask_spiderpool.terms import Effect, Verb

task_argument = click.argument("task_id", metavar="TASK_ID")
note_option = click.option("-m", "--note", help="Why; stands in the task's history.")


def _report(task: Task, effect: Effect, *, as_json: bool) -> None:
    if as_json:
        print_json({"task_id": task.id, "status": task.status, "desired": task.desired, "effect": effect})
        return
    words = {
        Effect.ACCEPTED: f"task {task.id} is {task.status}",
        Effect.UNCHANGED: f"task {task.id} is {task.status} already",
    }
    click.echo(words[effect])


def _change(verb: Verb, task_id: str, note: str | None, as_json: bool) -> None:
    with as_typed({"reason": "--note"}), open_pool() as (state, session):
        found = find_task_id(session, task_id)
        task, effect = control.change(session, state, verb, found, by=caller(), note=note)
        session.commit()
        _report(task, effect, as_json=as_json)


@click.command(short_help="Pause a task.")
@task_argument
@note_option
@json_option
@with_appcontext
def pause(task_id: str, note: str | None, as_json: bool) -> None:
    """Pause a task: requests that were started finish, nothing more is sent until resume.

    TASK_ID may be the first digits of the id.
    """
    _change(Verb.PAUSE, task_id, note, as_json)


@click.command(short_help="Go on with a paused task.")
@task_argument
@note_option
@json_option
@with_appcontext
def resume(task_id: str, note: str | None, as_json: bool) -> None:
    """Go on with a paused task, where it was."""
    _change(Verb.RESUME, task_id, note, as_json)


@click.command(short_help="End a task.")
@task_argument
@note_option
@json_option
@with_appcontext
def stop(task_id: str, note: str | None, as_json: bool) -> None:
    """End a task: requests that were started finish, nothing more is sent. 'retry' can go on with it."""
    _change(Verb.STOP, task_id, note, as_json)


@click.command(short_help="Go on with an ended task.")
@task_argument
@click.option("--max-pages", type=click.IntRange(min=1), help="A new limit of pages.")
@json_option
@with_appcontext
def retry(task_id: str, max_pages: int | None, as_json: bool) -> None:
    """Go on with an ended task: failed requests are asked for again, what is queued goes on."""
    with as_typed({"max_pages": "--max-pages"}), open_pool() as (state, session):
        found = find_task_id(session, task_id)
        task, effect = control.retry(session, state, found, by=caller(), max_pages=max_pages)
        session.commit()
        _report(task, effect, as_json=as_json)
