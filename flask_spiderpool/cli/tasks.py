"""``flask spiderpool tasks``: the tasks, newest first."""

from __future__ import annotations

import click
import sqlalchemy as sa
from flask.cli import with_appcontext

from flask_spiderpool.cli.app import open_pool
from flask_spiderpool.cli.output import json_option, print_json, print_table
from flask_spiderpool.cli.remedy import pasteable
from flask_spiderpool.models import Slot, Task
from flask_spiderpool.terms import Status

COLUMNS = (
    "id",
    "spider",
    "status",
    "queued",
    "leased",
    "done",
    "failed",
    "skipped",
    "items",
    "created",
    "end",
)


@click.command(short_help="List tasks, newest first.")
@click.option("--spider", help="Only tasks of this spider.")
@click.option(
    "--status", type=click.Choice([status.value for status in Status]), help="Only tasks in this status."
)
@click.option("-n", "--limit", type=click.IntRange(1, 10_000), default=20, show_default=True)
@json_option
@with_appcontext
def tasks(spider: str | None, status: str | None, limit: int, as_json: bool) -> None:
    """List tasks with their numbers: queued + leased + done + failed + skipped = discovered."""
    # One statement, so that the numbers are of one moment.
    leased = (
        sa.select(sa.func.coalesce(sa.func.sum(Slot.leased), 0))
        .where(Slot.task_id == Task.id)
        .correlate(Task)
        .scalar_subquery()
    )
    query = sa.select(Task, leased).order_by(Task.created_at.desc(), Task.id).limit(limit)
    if spider is not None:
        query = query.where(Task.spider == spider)
    if status is not None:
        query = query.where(Task.status == status)
    with open_pool() as (_, session):
        found = [_numbers(task, int(held)) for task, held in session.execute(query)]
    if as_json:
        print_json(found)
        return
    rows = [
        (
            str(one["task_id"]),
            *(one[name] for name in COLUMNS[1:9]),
            one["created_at"],
            one["end_reason"],
        )
        for one in found
    ]
    print_table(
        COLUMNS, rows, empty=pasteable("no tasks yet; begin one with 'flask spiderpool start SPIDER'")
    )


def _numbers(task: Task, leased: int) -> dict[str, object]:
    settled = task.done + task.failed + task.skipped
    return {
        "task_id": task.id,
        "spider": task.spider,
        "status": task.status,
        "desired": task.desired,
        "discovered": task.discovered,
        "queued": task.discovered - settled - leased,
        "leased": leased,
        "done": task.done,
        "failed": task.failed,
        "skipped": task.skipped,
        "pages": task.pages,
        "unchanged": task.unchanged,
        "items": task.items,
        "created_at": task.created_at,
        "started_at": task.started_at,
        "ended_at": task.ended_at,
        "end_reason": task.end_reason,
    }
