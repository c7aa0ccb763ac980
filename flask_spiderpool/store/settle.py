"""Settle: what a batch of leased requests came to, in one transaction.

Lock order (PROTOCOL): slot, requests, documents and inserts by fingerprint, lanes by host, task counters last.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from flask_spiderpool.crawl.request import Outcome, Settled, Ticket
from flask_spiderpool.crawl.request import Verdict as Came
from flask_spiderpool.store import lanes, requests, slots
from flask_spiderpool.store.context import Context
from flask_spiderpool.store.documents import Stored, store_pages
from flask_spiderpool.store.extras import write_items, write_logs
from flask_spiderpool.store.facts import Facts
from flask_spiderpool.store.fence import hold
from flask_spiderpool.store.sql import Statement, Tx
from flask_spiderpool.store.text import clean_or_none
from flask_spiderpool.terms import RequestState

_LEASED = Statement(
    """
    SELECT id, attempts FROM spiderpool_request
    WHERE task_id = :task AND slot = :slot AND epoch = :epoch AND state = 1
    """
)
_UPDATE = Statement(
    """
    UPDATE spiderpool_request AS r
    SET state = c.state, attempts = c.attempts, ready_at = c.ready_at, document_id = c.document_id,
        status_code = c.status_code, reason = c.reason, message = c.message, wire_bytes = c.wire_bytes,
        elapsed_ms = c.elapsed_ms, settled_at = CASE WHEN c.state >= 3 THEN :now::float8 END
    FROM unnest(:id::bigint[], :state::int[], :attempts::int[], :ready_at::float8[], :document_id::bigint[],
                :status_code::int[], :reason::text[], :message::text[], :wire_bytes::bigint[],
                :elapsed_ms::int[])
         AS c(id, state, attempts, ready_at, document_id, status_code, reason, message, wire_bytes, elapsed_ms)
    WHERE r.id = c.id
    """
)
_UPDATE_ONE = Statement(
    "",
    sqlite="""
    UPDATE spiderpool_request
    SET state = :state, attempts = :attempts, ready_at = :ready_at, document_id = :document_id,
        status_code = :status_code, reason = :reason, message = :message, wire_bytes = :wire_bytes,
        elapsed_ms = :elapsed_ms, settled_at = CASE WHEN :state >= 3 THEN :now END
    WHERE id = :id
    """,
)
_UNLEASE = Statement("UPDATE spiderpool_slot SET leased = leased - :k WHERE task_id = :task AND n = :n")
_COUNT = Statement(
    """
    UPDATE spiderpool_task SET
        discovered = discovered + :discovered, done = done + :done, failed = failed + :failed,
        skipped = skipped + :skipped, pages = pages + :pages, unchanged = unchanged + :unchanged,
        items = items + :items, retries = retries + :retries, wire_bytes = wire_bytes + :wire_bytes,
        seeds_failed = seeds_failed + :seeds_failed
    WHERE id = :task
    RETURNING desired
    """
)
_DESIRED = Statement("SELECT desired FROM spiderpool_task WHERE id = :task")

_STATES = {
    Came.DONE: RequestState.DONE,
    Came.FAILED: RequestState.FAILED,
    Came.SKIPPED: RequestState.SKIPPED,
    Came.RELEASE: RequestState.QUEUED,
}


def settle(tx: Tx, context: Context, ticket: Ticket, outcomes: Sequence[Outcome]) -> Settled:
    """Write the outcomes of those requests that the ticket still holds; none held: it was settled before."""
    held = hold(tx, ticket)
    attempts = dict(tx.all(_LEASED, task=ticket.task_id, slot=ticket.n, epoch=ticket.epoch))
    mine = sorted(
        {outcome.request.id: outcome for outcome in outcomes if outcome.request.id in attempts}.values(),
        key=lambda outcome: outcome.request.id,
    )
    if not mine:
        row = tx.one(_DESIRED, task=ticket.task_id)
        return Settled(0, row[0] if row else "stop", repeated=bool(outcomes))
    facts = context.facts(tx, ticket.task_id)
    return write(tx, context, Batch(ticket, facts, mine, attempts, held.now))


class Batch(NamedTuple):
    """Outcomes whose requests are leased by the ticket, whose slot is locked."""

    ticket: Ticket
    facts: Facts
    outcomes: list[Outcome]  #: sorted by request id
    attempts: Mapping[int, int]  #: request id -> attempts before this one
    now: float


def write(tx: Tx, context: Context, batch: Batch) -> Settled:
    """Write a batch, in the lock order of the head of this file."""
    ticket, facts, mine, attempts, now = batch
    task_id = ticket.task_id
    rows = [_row(context, facts, outcome, attempts[outcome.request.id], now) for outcome in mine]
    paged = [one for one in mine if one.verdict is Came.DONE and one.page is not None]
    stored = store_pages(tx, task_id, facts.spider, paged, now)
    for row in rows:
        row["document_id"] = stored.document_ids.get(row["id"])
    _update(tx, rows, now)
    items = write_items(tx, task_id, mine, stored.document_ids, now)
    write_logs(tx, task_id, mine, now)
    found = [requests.Found(link, outcome.request.id) for outcome in mine for link in outcome.links]
    new = requests.insert(tx, task_id, found)
    queued = dict(new)
    for outcome, row in zip(mine, rows, strict=True):
        if row["state"] == RequestState.QUEUED:
            queued[outcome.request.host_id] = queued.get(outcome.request.host_id, 0) + 1
    lanes.add(tx, task_id, queued, now)
    tx.run(_UNLEASE, k=len(mine), task=task_id, n=ticket.n)
    counts = _counts(mine, rows, stored) | {"discovered": sum(new.values()), "items": items}
    # Before the counters, since slots are locked before tasks; it waits for no lock (SKIP LOCKED).
    if new and facts.max_parallel > 1:
        slots.wake_siblings(tx, context, task_id, now)
    wanted = tx.one(_COUNT, task=task_id, **counts)
    return Settled(counts["discovered"], wanted[0] if wanted else "stop")


def _row(context: Context, facts: Facts, outcome: Outcome, attempts: int, now: float) -> dict[str, Any]:
    state, ready_at = _STATES.get(outcome.verdict), None
    if outcome.verdict is Came.RETRY:
        state = RequestState.FAILED
        if attempts + 1 < facts.attempts:
            state = RequestState.WAITING
            pause_s = facts.backoff_s * 2**attempts * context.rng.uniform(0.5, 1.5)
            ready_at = now + max(outcome.retry_after_s or 0.0, pause_s)
    return {
        "id": outcome.request.id,
        "state": int(state or 0),
        "attempts": attempts + (outcome.verdict is not Came.RELEASE),
        "ready_at": ready_at,
        "document_id": None,
        "status_code": outcome.status_code,
        "reason": clean_or_none(outcome.reason, 40),
        "message": clean_or_none(outcome.message, 2000),
        "wire_bytes": outcome.wire_bytes,
        "elapsed_ms": outcome.elapsed_ms,
    }


def _update(tx: Tx, rows: list[dict[str, Any]], now: float) -> None:
    if tx.postgres:
        tx.run(_UPDATE, now=now, **{name: [row[name] for row in rows] for name in rows[0]})
    else:
        tx.many(_UPDATE_ONE, [row | {"now": now} for row in rows])


def _counts(mine: list[Outcome], rows: list[dict[str, Any]], stored: Stored) -> dict[str, int]:
    states = [row["state"] for row in rows]
    return {
        "done": states.count(RequestState.DONE),
        "failed": states.count(RequestState.FAILED),
        "skipped": states.count(RequestState.SKIPPED),
        "retries": states.count(RequestState.WAITING),
        "pages": stored.new,
        "unchanged": stored.unchanged,
        "wire_bytes": sum(outcome.wire_bytes for outcome in mine),
        "seeds_failed": sum(
            outcome.request.is_seed and state == RequestState.FAILED
            for outcome, state in zip(mine, states, strict=True)
        ),
    }
