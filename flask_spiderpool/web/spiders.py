"""``/spider``: start, pause, resume, stop, retry."""

from __future__ import annotations

from typing import Any

from flask import Blueprint as FlaskBlueprint
from flask_smorest import Blueprint
from sqlalchemy.orm import Session

from flask_spiderpool import control
from flask_spiderpool.models import Task
from flask_spiderpool.state import PoolState
from flask_spiderpool.terms import Effect, Role, Verb
from flask_spiderpool.web.access import caller, requires
from flask_spiderpool.web.links import task_links
from flask_spiderpool.web.schemas import Changed, RetryArguments, StartArguments, Started, VerbArguments
from flask_spiderpool.web.transaction import transact

NAME = "spiderpool_spider"

_RENAMED = {"target_url": "start_urls", "crawl_delay": "delay_s"}


def make_spider_blueprint(state: PoolState) -> FlaskBlueprint:
    """Make the routes below ``/spider`` for one app."""
    blueprint: Any = Blueprint(NAME, __name__, description="Start and steer tasks")

    @blueprint.post("/start")
    @requires(Role.OPERATOR)
    @blueprint.arguments(StartArguments)
    @blueprint.response(202, Started)
    def start(arguments: dict[str, Any]) -> tuple[dict[str, Any], int, dict[str, str]]:
        """Start a task of a spider

        The task is written and its first slice is called for; follow it by the link `status`.
        """
        name = arguments.pop("spider_name")
        params = {_RENAMED.get(key, key): value for key, value in arguments.items()}
        who = caller()

        def begin(session: Session) -> dict[str, Any]:
            task = control.start(session, state, name, by=who.name, owner=who.owner, **params)
            return {
                "task_id": task.id,
                "spider_name": task.spider,
                "status": task.status,
                "links": task_links(task.id),
            }

        answer = transact(state, begin)
        return answer, 202, {"Location": answer["links"]["status"]}

    _add_verb(blueprint, state, Verb.PAUSE, "Pause a task: what was started finishes, nothing more starts")
    _add_verb(blueprint, state, Verb.RESUME, "Go on with a paused task, where it was")
    _add_verb(blueprint, state, Verb.STOP, "End a task: what was started finishes")

    @blueprint.post("/retry")
    @requires(Role.OPERATOR)
    @blueprint.arguments(RetryArguments)
    @blueprint.response(202, Changed)
    @blueprint.alt_response(404, "NOT_FOUND")
    @blueprint.alt_response(409, "CONFLICT")
    def retry(arguments: dict[str, Any]) -> tuple[dict[str, Any], int]:
        """Go on with an ended task: failed requests are asked for again"""
        who = caller().name

        def change(session: Session) -> tuple[dict[str, Any], int]:
            task, effect = control.retry(
                session,
                state,
                arguments["task_id"],
                by=who,
                note=arguments.get("reason"),
                max_pages=arguments.get("max_pages"),
            )
            return _changed(task, Verb.RETRY, effect)

        return transact(state, change)

    made: FlaskBlueprint = blueprint
    return made


def _add_verb(blueprint: Blueprint, state: PoolState, verb: Verb, summary: str) -> None:
    @requires(Role.OPERATOR)
    @blueprint.arguments(VerbArguments)
    @blueprint.response(202, Changed)
    @blueprint.alt_response(200, schema=Changed, description="The task already is, or already goes, there")
    @blueprint.alt_response(404, "NOT_FOUND")
    @blueprint.alt_response(409, "CONFLICT")
    @blueprint.doc(summary=summary)
    def view(arguments: dict[str, Any]) -> tuple[dict[str, Any], int]:
        who = caller().name

        def change(session: Session) -> tuple[dict[str, Any], int]:
            task, effect = control.change(
                session, state, verb, arguments["task_id"], by=who, note=arguments.get("reason")
            )
            return _changed(task, verb, effect)

        return transact(state, change)

    blueprint.add_url_rule(f"/{verb}", verb.value, view, methods=["POST"])


def _changed(task: Task, verb: Verb, effect: Effect) -> tuple[dict[str, Any], int]:
    answer = {
        "task_id": task.id,
        "verb": verb.value,
        "effect": effect.value,
        "status": task.status,
        "desired": task.desired,
        "links": task_links(task.id),
    }
    return answer, 202 if effect is Effect.ACCEPTED else 200
