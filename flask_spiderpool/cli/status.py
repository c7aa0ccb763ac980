"""``flask spiderpool status``: how the pool is, or one task."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import click
from flask import current_app
from flask.cli import with_appcontext
from sqlalchemy.orm import Session

from flask_spiderpool.cli.app import find_task_id, open_pool
from flask_spiderpool.cli.faults import faults
from flask_spiderpool.cli.group import EXIT_INTERRUPTED
from flask_spiderpool.cli.output import as_shown, json_option, print_json, print_table
from flask_spiderpool.cli.progress import summary
from flask_spiderpool.cli.remedy import pasteable
from flask_spiderpool.cli.watch import watch
from flask_spiderpool.errors import InvalidParameter
from flask_spiderpool.models import Task
from flask_spiderpool.state import PoolState
from flask_spiderpool.terms import Desired
from flask_spiderpool.web.schemas import PoolStatus, TaskStatus
from flask_spiderpool.web.spool import ALIVE_S, pool_status, task_status

NOBODY_WORKS = "no worker is alive; run 'flask spiderpool up', or 'flask spiderpool worker'"


@click.command(short_help="Show how the pool is, or one task.")
@click.argument("task_id", required=False)
@click.option("--watch", "watched", is_flag=True, help="Show the task's progress until it rests.")
@json_option
@with_appcontext
def status(task_id: str | None, watched: bool, as_json: bool) -> None:
    """Show workers, tasks by status and throughput; with TASK_ID that task, and why requests failed.

    --json gives the document of GET /spool/status. --watch shows progress on stderr until the task has
    ended or is paused, and then the same as without it; Ctrl-C ends the watch, not the task.
    """
    if watched and task_id is None:
        raise InvalidParameter("--watch", "name the TASK_ID of a task to watch")
    with open_pool() as (state, session):
        if task_id is None:
            answer = PoolStatus().dump(pool_status(state.store(), state.pulse()))
            lines = _pool(answer)
        else:
            found = find_task_id(session, task_id)
            spider = session.get_one(Task, found).spider
            # The verdict is written on the store's own connection: this one must not hold a snapshot.
            session.rollback()
            if watched:
                _watch(state, found, spider, quiet=as_json)
            state.store().verdict(found)
            with current_app.test_request_context():  # the links are those that a client of the site sees
                answer = TaskStatus().dump(task_status(state, found))
            lines = _task(session, session.get_one(Task, found), answer["numbers"])
        if as_json:
            print_json(answer)
            return
        for line in lines:
            click.echo(line)
    if task_id is None:
        _print_workers(answer["workers"])


def _watch(state: PoolState, task_id: UUID, spider: str, *, quiet: bool) -> None:
    if not quiet and nobody_works(state):
        click.echo(pasteable(NOBODY_WORKS), err=True)
    try:
        watch(state, task_id, spider, sys.stderr, quiet=quiet)
    except KeyboardInterrupt:
        raise SystemExit(EXIT_INTERRUPTED) from None


def nobody_works(state: PoolState) -> bool:
    """Tell whether no worker has spoken lately."""
    return not state.pulse().workers(ALIVE_S)


def _task(session: Session, task: Task, numbers: dict[str, int]) -> Iterator[str]:
    asked = {Desired.PAUSE: "pausing", Desired.STOP: "stopping"}.get(Desired(task.desired))
    more = f" ({task.end_reason})" if task.end_reason else ""
    if not more and asked is not None and task.status not in (asked, "paused"):
        more = f" ({task.desired} was asked for)"
    yield f"task      {task.id}"
    yield f"spider    {task.spider}"
    yield f"status    {task.status}{more}"
    by = f" by {task.created_by}" if task.created_by else ""
    yield f"created   {as_shown(task.created_at)}{by}"
    yield f"started   {as_shown(task.started_at)}"
    lasted = ""
    if task.ended_at is not None and task.started_at is not None:
        lasted = f" (after {(task.ended_at - task.started_at).total_seconds():.0f} s)"
    yield f"ended     {as_shown(task.ended_at)}{lasted}"
    limit = f"; limit {task.max_pages} pages" if task.max_pages is not None else ""
    yield f"requests  {numbers['discovered']} found: {summary(numbers)}{limit}"
    yield from map(str, faults(session, task.id))


def _pool(answer: dict[str, Any]) -> Iterator[str]:
    tasks = ", ".join(f"{count} {name}" for name, count in sorted(answer["tasks"].items()) if count)
    yield f"tasks     {tasks or 'none yet'}"
    yield f"requests  {answer['requests']['queued']} queued, {answer['requests']['leased']} leased"
    yield (
        f"pages     {answer['pages_last_minute']} in the last minute, {answer['pages_this_minute']} in this one,"
        f" {answer['failure_rate']:.1%} failed"
    )
    age_s = answer["keeper"]["last_pass_age_s"]
    yield f"keeper    {'has never run' if age_s is None else f'passed {age_s:.0f} s ago'}"
    yield ""


def _print_workers(workers: list[dict[str, Any]]) -> None:
    rows = [
        (worker["name"], worker["slices"], worker["threads"], _mib(worker["info"].get("rss_bytes")))
        for worker in workers
    ]
    print_table(("worker", "slices", "threads", "memory"), rows, empty=pasteable(NOBODY_WORKS))


def _mib(size: int | None) -> str:
    return "-" if size is None else f"{size / 2**20:.0f} MiB"
