"""``flask spiderpool status``: how the pool is, or one task."""

from __future__ import annotations

from typing import Any

import click
from flask.cli import with_appcontext

from flask_spiderpool.cli.app import find_task_id, open_pool
from flask_spiderpool.cli.output import json_option, print_json, print_table
from flask_spiderpool.cli.remedy import pasteable
from flask_spiderpool.pulse.base import WorkerPulse
from flask_spiderpool.state import PoolState

ALIVE_S = 15.0  #: a worker beats every 3 s


@click.command(short_help="Show how the pool is, or one task.")
@click.argument("task_id", required=False)
@json_option
@with_appcontext
def status(task_id: str | None, as_json: bool) -> None:
    """Show workers, tasks by status and throughput; with TASK_ID that task's numbers."""
    with open_pool() as (state, session):
        if task_id is not None:
            found = find_task_id(session, task_id)
            # The verdict is written on the store's own connection: this one must not hold a snapshot.
            session.rollback()
            state.store().verdict(found)
            answer = {"task_id": found, **state.store().numbers(found)}
        else:
            answer = _pool(state)
    if as_json:
        print_json(answer)
    elif task_id is not None:
        width = max(map(len, answer))
        for name, value in answer.items():
            click.echo(f"{name:<{width}}  {'-' if value is None else value}")
    else:
        _show_pool(answer)


def _pool(state: PoolState) -> dict[str, Any]:
    store, pulse = state.store(), state.pulse()
    begun, both = pulse.totals(1), pulse.totals(2)
    settled = both.get("done", 0) + both.get("failed", 0)
    return {
        "tasks": store.status_counts(),
        **store.pool_numbers(),
        "pages_last_minute": both.get("done", 0) - begun.get("done", 0),
        "pages_this_minute": begun.get("done", 0),
        "failure_rate": round(both.get("failed", 0) / settled, 4) if settled else 0.0,
        "workers": [_worker(worker) for worker in pulse.workers(ALIVE_S)],
    }


def _worker(worker: WorkerPulse) -> dict[str, Any]:
    return {
        "name": worker.name,
        "seen_at": worker.seen_at,
        "threads": worker.threads,
        "slices": worker.slices,
        **worker.info,
    }


def _show_pool(answer: dict[str, Any]) -> None:
    tasks = ", ".join(f"{count} {name}" for name, count in sorted(answer["tasks"].items()) if count)
    click.echo(f"tasks     {tasks or 'none yet'}")
    click.echo(f"requests  {answer['queued']} queued, {answer['leased']} leased")
    click.echo(
        f"pages     {answer['pages_last_minute']} in the last minute, {answer['pages_this_minute']} in this one,"
        f" {answer['failure_rate']:.1%} failed"
    )
    age_s = answer["keeper_age_s"]
    click.echo(f"keeper    {'has never run' if age_s is None else f'passed {age_s:.0f} s ago'}")
    rows = [
        (worker["name"], worker["slices"], worker["threads"], _mib(worker.get("rss_bytes")))
        for worker in answer["workers"]
    ]
    click.echo("")
    print_table(
        ("worker", "slices", "threads", "memory"),
        rows,
        empty=pasteable("no worker is alive; run 'flask spiderpool up', or 'flask spiderpool worker'"),
    )


def _mib(size: int | None) -> str:
    return "-" if size is None else f"{size / 2**20:.0f} MiB"
