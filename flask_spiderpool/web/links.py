"""Where to go from a task: the links in answers."""

from __future__ import annotations

from uuid import UUID

from flask import url_for

from flask_spiderpool.terms import Verb

_VERBS = (Verb.PAUSE, Verb.RESUME, Verb.STOP, Verb.RETRY)


def task_links(task_id: UUID) -> dict[str, str]:
    """Return the links of a task, below whatever prefix and script root the app has."""
    return {
        "status": url_for("spiderpool_spool.status", task_id=task_id),
        **{verb.value: url_for(f"spiderpool_spider.{verb.value}") for verb in _VERBS},
    }
