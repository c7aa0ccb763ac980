"""``/spool``: how the pool is."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import sqlalchemy as sa
from flask import Blueprint as FlaskBlueprint
from flask import jsonify
from flask_smorest import Blueprint

from flask_spiderpool.control import translated
from flask_spiderpool.models import Task
from flask_spiderpool.pulse.base import Pulse, WorkerPulse
from flask_spiderpool.state import PoolState
from flask_spiderpool.store import Store
from flask_spiderpool.terms import Role, Status
from flask_spiderpool.web.access import requires
from flask_spiderpool.web.links import task_links
from flask_spiderpool.web.query import takes_query
from flask_spiderpool.web.schemas import PoolStatus, StatusArguments, TaskStatus
from flask_spiderpool.web.transaction import look

NAME = "spiderpool_spool"
ALIVE_S = 15.0  #: a worker beats every 3 s
#: On their way to a halt: what they are is said anew, so that the answer is true with no worker alive.
SETTLING = (Status.PAUSING, Status.STOPPING)
MAX_VERDICTS = 50  #: in one call; the keeper does the rest

_NUMBERS = (
    "discovered",
    "queued",
    "leased",
    "done",
    "failed",
    "skipped",
    "retries",
    "pages",
    "unchanged",
    "items",
    "wire_bytes",
)
_EITHER = {"oneOf": [{"$ref": f"#/components/schemas/{name}"} for name in ("PoolStatus", "TaskStatus")]}
_NEVER_STORED = {"Cache-Control": "no-store"}


def make_spool_blueprint(state: PoolState) -> FlaskBlueprint:
    """Make the routes below ``/spool`` for one app."""
    blueprint: Any = Blueprint(NAME, __name__, description="How the pool is")

    @blueprint.get("/status")
    @requires(Role.VIEWER)
    @takes_query("task_id")
    @blueprint.arguments(StatusArguments, location="query")
    @blueprint.response(200, _EITHER, description="The pool; with task_id that task")
    @blueprint.alt_response(404, "NOT_FOUND")
    def status(arguments: dict[str, Any]) -> Any:
        """Workers, tasks by status, throughput; or one task with its numbers"""
        task_id = arguments.get("task_id")
        if task_id is None:
            _say_verdicts(state)
            with translated():
                answer = pool_status(state.store(), state.pulse())
            return jsonify(PoolStatus().dump(answer)), 200, _NEVER_STORED
        if task_status(state, task_id)["status"] in SETTLING:
            with translated():
                state.store().verdict(task_id)
        return jsonify(TaskStatus().dump(task_status(state, task_id))), 200, _NEVER_STORED

    made: FlaskBlueprint = blueprint
    return made


def _say_verdicts(state: PoolState) -> None:
    waiting = look(
        state,
        lambda session: session.scalars(
            sa.select(Task.id).where(Task.status.in_(SETTLING)).limit(MAX_VERDICTS)
        ).all(),
    )
    with translated():
        for task_id in waiting:
            state.store().verdict(task_id)


def task_status(state: PoolState, task_id: UUID) -> dict[str, Any]:
    """Return one task and its numbers; raises :class:`~flask_spiderpool.errors.UnknownTask`."""
    with translated():
        numbers = state.store().numbers(task_id)
    return {
        "task_id": task_id,
        **{name: numbers[name] for name in ("status", "desired", "end_reason", "max_pages")},
        **look(state, lambda session: _described(state.task(task_id, session=session))),
        "numbers": {name: numbers[name] for name in _NUMBERS},
        "links": task_links(task_id),
    }


def _described(task: Task) -> dict[str, Any]:
    return {
        "spider_name": task.spider,
        "created_by": task.created_by,
        "created_at": task.created_at,
        "started_at": task.started_at,
        "ended_at": task.ended_at,
    }


def pool_status(store: Store, pulse: Pulse) -> dict[str, Any]:
    """Return the numbers of the whole pool. Costs a grouped count of the tasks and the beats of the workers."""
    numbers = store.pool_numbers()
    workers = pulse.workers(ALIVE_S)
    age_s = numbers["keeper_age_s"]
    return {
        "tasks": {**dict.fromkeys(map(str, Status), 0), **store.status_counts()},
        "requests": {"queued": numbers["queued"], "leased": numbers["leased"]},
        "slots": {name: numbers[f"slots_{name}"] for name in ("due", "sent", "running")},
        "workers": [_worker(worker) for worker in workers],
        "threads": sum(worker.threads for worker in workers),
        "slices": sum(worker.slices for worker in workers),
        "keeper": {"last_pass_age_s": None if age_s is None else round(max(0.0, age_s), 3)},
        **_throughput(pulse),
    }


def _worker(worker: WorkerPulse) -> dict[str, Any]:
    return {
        "name": worker.name,
        "seen_at": worker.seen_at,
        "threads": worker.threads,
        "slices": worker.slices,
        "info": worker.info,
    }


def _throughput(pulse: Pulse) -> dict[str, Any]:
    """Return pages of the minute that is over and of the one under way, and the share of failures in both."""
    both, begun = pulse.totals(2), pulse.totals(1)
    pages, failed = both.get("done", 0), both.get("failed", 0)
    return {
        "pages_last_minute": pages - begun.get("done", 0),
        "pages_this_minute": begun.get("done", 0),
        "failure_rate": round(failed / (pages + failed), 4) if pages + failed else 0.0,
    }
