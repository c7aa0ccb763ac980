"""What a slice's transactions need to know of a task and never changes while it lives."""

from __future__ import annotations

from typing import Any, NamedTuple
from uuid import UUID

from flask_spiderpool.config import Settings
from flask_spiderpool.errors import Fenced
from flask_spiderpool.store.sql import Statement, Tx, json_value

_REMEMBERED = 4096

_SELECT = Statement("SELECT spider, options, max_parallel FROM spiderpool_task WHERE id = :task")


class Facts(NamedTuple):
    """One task's unchanging side."""

    spider: str
    attempts: int
    backoff_s: float
    max_parallel: int


class FactsOf:
    """A bounded memory of tasks' facts. A ``retry`` that changes none of them needs no forgetting."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._facts: dict[UUID, Facts] = {}

    def __call__(self, tx: Tx, task_id: UUID) -> Facts:
        """Return the facts of a task, read at the first call."""
        known = self._facts.get(task_id)
        if known is not None:
            return known
        row = tx.one(_SELECT, task=task_id)
        if row is None:
            raise Fenced("the task is gone")
        options: dict[str, Any] = json_value(row[1]) or {}
        facts = Facts(
            row[0],
            int(options.get("attempts") or self._settings.attempts),
            float(options["backoff_s"]) if options.get("backoff_s") is not None else self._settings.backoff_s,
            row[2],
        )
        if len(self._facts) >= _REMEMBERED:
            self._facts.clear()
        self._facts[task_id] = facts
        return facts
