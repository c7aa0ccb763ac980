"""``/spool``: how the pool is."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import sqlalchemy as sa
from flask import Blueprint as FlaskBlueprint
from flask_smorest import Blueprint
from sqlalchemy.orm import Session

from flask_spiderpool.errors import UnknownTask
from flask_spiderpool.models import Keeper, Slot, Task
from flask_spiderpool.pulse.base import Pulse, WorkerPulse
from flask_spiderpool.state import PoolState
from flask_spiderpool.store.clock import POSTGRES_NOW, SQLITE_NOW
from flask_spiderpool.terms import Role, Status
from flask_spiderpool.web.access import requires
from flask_spiderpool.web.links import task_links
from flask_spiderpool.web.schemas import PoolStatus, StatusArguments, TaskStatus

NAME = "spiderpool_spool"
ALIVE_S = 15.0  #: a worker beats every 3 s
SETTLING = (Status.PAUSING.value, Status.STOPPING.value)
#: Tasks on their way to a halt that one call brings to a verdict; the keeper does the rest.
MAX_VERDICTS = 50


def make_spool_blueprint(state: PoolState) -> FlaskBlueprint:
    """Make the routes below ``/spool`` for one app."""
    blueprint = Blueprint(NAME, __name__, description="How the pool is")

    @blueprint.get("/status")
    @requires(Role.VIEWER)
    @blueprint.arguments(StatusArguments, location="query")
    @blueprint.response(200, PoolStatus)
    @blueprint.alt_response(200, schema=TaskStatus, success=True, description="With task_id: that task")
    @blueprint.alt_response(404, "NOT_FOUND")
    def status(arguments: dict[str, Any]) -> Any:
        """Workers, tasks by status, throughput; or one task with its numbers

        Tasks that are pausing or stopping are brought to their verdict first, so that the answer is true
        even when no worker is alive.
        """
        task_id = arguments.get("task_id")
        if task_id is not None:
            return TaskStatus().dump(_task_status(state, task_id)), 200, {"Cache-Control": "no-store"}
        _say_verdicts(state)
        with state.session() as session:
            answer = pool_status(session, state.pulse())
        return answer, 200, {"Cache-Control": "no-store"}

    return blueprint


def _task_status(state: PoolState, task_id: UUID) -> dict[str, Any]:
    with state.session() as session:
        found = session.execute(sa.select(Task.status).where(Task.id == task_id)).scalar_one_or_none()
        # Ends the transaction: the verdict is written on the store's own connection.
        session.rollback()
    if found is None:
        raise UnknownTask(f"no task has the id {task_id}")
    if found in SETTLING:
        state.store().verdict(task_id)
    with state.session() as session:
        task = session.get(Task, task_id, populate_existing=True)
        if task is None:
            raise UnknownTask(f"no task has the id {task_id}")
        leased = session.scalar(
            sa.select(sa.func.coalesce(sa.func.sum(Slot.leased), 0)).where(Slot.task_id == task_id)
        )
        return _numbers(task, int(leased or 0))


def _numbers(task: Task, leased: int) -> dict[str, Any]:
    return {
        "task_id": task.id,
        "spider_name": task.spider,
        "status": task.status,
        "desired": task.desired,
        "end_reason": task.end_reason,
        "numbers": {
            "discovered": task.discovered,
            "queued": task.discovered - task.done - task.failed - task.skipped - leased,
            "leased": leased,
            "done": task.done,
            "failed": task.failed,
            "skipped": task.skipped,
            "retries": task.retries,
            "pages": task.pages,
            "unchanged": task.unchanged,
            "items": task.items,
            "wire_bytes": task.wire_bytes,
        },
        "max_pages": task.max_pages,
        "created_by": task.created_by,
        "created_at": task.created_at,
        "started_at": task.started_at,
        "ended_at": task.ended_at,
        "links": task_links(task.id),
    }


def _say_verdicts(state: PoolState) -> None:
    """Say ``paused`` and ``stopped`` where they have become true."""
    with state.session() as session:
        waiting = session.scalars(
            sa.select(Task.id).where(Task.status.in_(SETTLING)).limit(MAX_VERDICTS)
        ).all()
        session.rollback()
    for task_id in waiting:
        state.store().verdict(task_id)


def pool_status(session: Session, pulse: Pulse) -> dict[str, Any]:
    """Return the numbers of the whole pool. Costs a grouped count of the tasks and the beats of the workers."""
    counted = session.execute(sa.select(Task.status, sa.func.count()).group_by(Task.status))
    tasks = dict.fromkeys((status.value for status in Status), 0)
    tasks.update(dict(counted.tuples().all()))
    leased = session.scalar(sa.select(sa.func.coalesce(sa.func.sum(Slot.leased), 0)).where(Slot.leased > 0))
    unsettled = session.scalar(
        sa.select(
            sa.func.coalesce(sa.func.sum(Task.discovered - Task.done - Task.failed - Task.skipped), 0)
        ).where(
            Task.status.in_([Status.PENDING, Status.RUNNING, Status.PAUSING, Status.PAUSED, Status.STOPPING])
        )
    )
    workers = pulse.workers(ALIVE_S)
    return {
        "tasks": tasks,
        "requests": {"queued": int(unsettled or 0) - int(leased or 0), "leased": int(leased or 0)},
        "workers": [_worker(worker) for worker in workers],
        "threads": sum(worker.threads for worker in workers),
        "slices": sum(worker.slices for worker in workers),
        "keeper": {"last_pass_age_s": _keeper_age_s(session)},
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
    """Return pages a minute, from the minute that is over and the one under way, and the share of failures."""
    totals = pulse.totals(2)
    begun = pulse.totals(1)
    pages = totals.get("done", 0)
    failed = totals.get("failed", 0)
    settled = pages + failed
    return {
        "pages_last_minute": pages - begun.get("done", 0),
        "pages_this_minute": begun.get("done", 0),
        "failure_rate": round(failed / settled, 4) if settled else 0.0,
    }


def _keeper_age_s(session: Session) -> float | None:
    """Return the seconds since the keeper's last pass, by the store's clock; None before the first."""
    now = POSTGRES_NOW if session.get_bind(mapper=Keeper).dialect.name == "postgresql" else SQLITE_NOW
    age_s = session.scalar(
        sa.select(sa.literal_column(now, sa.Double) - Keeper.passed_at).where(Keeper.id == 1)
    )
    return None if age_s is None else round(max(0.0, age_s), 3)
