"""Items and log lines, as a settle writes them."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from uuid import UUID

from flask_spiderpool.crawl.request import Outcome
from flask_spiderpool.store.sql import Statement, Tx, json_text
from flask_spiderpool.store.text import clean, clean_json

_MESSAGE_LENGTH = 10_000

_ITEMS = Statement(
    """
    INSERT INTO spiderpool_item (task_id, request_id, document_id, data, created_at)
    SELECT :task, c.request, c.document, c.data::jsonb, :at
    FROM unnest(:requests::bigint[], :documents::bigint[], :data::text[]) AS c(request, document, data)
    """
)
_ITEM = Statement(
    "",
    sqlite="""
    INSERT INTO spiderpool_item (task_id, request_id, document_id, data, created_at)
    VALUES (:task, :request, :document, :data, :at)
    """,
)
_LOGS = Statement(
    """
    INSERT INTO spiderpool_log (task_id, request_id, at, level, message)
    SELECT :task, c.request, :at, c.level, c.message
    FROM unnest(:requests::bigint[], :levels::int[], :messages::text[]) AS c(request, level, message)
    """
)
_LOG = Statement(
    "",
    sqlite="""
    INSERT INTO spiderpool_log (task_id, request_id, at, level, message)
    VALUES (:task, :request, :at, :level, :message)
    """,
)


def write_items(
    tx: Tx, task_id: UUID, outcomes: Sequence[Outcome], documents: Mapping[int, int], now: float
) -> int:
    """Write what ``parse`` yielded and return how many. Raises for data that JSON cannot hold."""
    rows = [
        (outcome.request.id, documents.get(outcome.request.id), json_text(clean_json(item)))
        for outcome in outcomes
        for item in outcome.items
    ]
    if not rows:
        return 0
    at = tx.moment(now)
    if tx.postgres:
        requests, document_ids, data = (list(column) for column in zip(*rows, strict=True))
        tx.run(_ITEMS, task=task_id, at=at, requests=requests, documents=document_ids, data=data)
    else:
        names = ("request", "document", "data")
        task = tx.key(task_id)
        tx.many(_ITEM, [dict(zip(names, row, strict=True), task=task, at=at) for row in rows])
    return len(rows)


def write_logs(tx: Tx, task_id: UUID, outcomes: Sequence[Outcome], now: float) -> None:
    """Write the log lines of a batch, in their order."""
    rows = [
        (outcome.request.id, _level(level), clean(message[:_MESSAGE_LENGTH]))
        for outcome in outcomes
        for level, message in outcome.logs
    ]
    if not rows:
        return
    at = tx.moment(now)
    if tx.postgres:
        requests, levels, messages = (list(column) for column in zip(*rows, strict=True))
        tx.run(_LOGS, task=task_id, at=at, requests=requests, levels=levels, messages=messages)
    else:
        names = ("request", "level", "message")
        task = tx.key(task_id)
        tx.many(_LOG, [dict(zip(names, row, strict=True), task=task, at=at) for row in rows])


def _level(name: str) -> int:
    level = logging.getLevelName(name.upper())
    return level if isinstance(level, int) else logging.INFO
