"""What a runner that is not sliced has fetched enters the frontier with its outcome."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from flask_spiderpool.crawl.request import NewRequest, Outcome, Settled, Ticket
from flask_spiderpool.store import lanes, requests
from flask_spiderpool.store.context import Context
from flask_spiderpool.store.fence import hold
from flask_spiderpool.store.settle import settle
from flask_spiderpool.store.sql import Statement, Tx

_TAKE = Statement(
    """
    UPDATE spiderpool_request SET state = 1, slot = :n, epoch = :epoch
    WHERE task_id = :task AND fingerprint = :fingerprint AND state IN (0, 2)
    RETURNING id, host_id, is_seed
    """
)
_BEFORE = Statement(
    """
    SELECT state FROM spiderpool_request WHERE task_id = :task AND fingerprint = :fingerprint FOR UPDATE
    """
)
_COUNT_LEASED = Statement("UPDATE spiderpool_slot SET leased = leased + :k WHERE task_id = :task AND n = :n")
_DISCOVER = Statement("UPDATE spiderpool_task SET discovered = discovered + :k WHERE id = :task")


def record(tx: Tx, context: Context, ticket: Ticket, outcomes: Sequence[Outcome]) -> Settled:
    """Insert the requests that are new, lease all that have no outcome to the ticket, and settle them."""
    held = hold(tx, ticket)
    by_fingerprint = {outcome.request.fingerprint: outcome for outcome in outcomes}
    found = [requests.Found(_link(outcome), None) for outcome in by_fingerprint.values()]
    new = requests.insert(tx, ticket.task_id, found)
    lanes.add(tx, ticket.task_id, new, held.now)
    taken: list[Outcome] = []
    from_lanes: dict[int, int] = {}
    for fingerprint in sorted(by_fingerprint):
        before = tx.one(_BEFORE, task=ticket.task_id, fingerprint=fingerprint)
        row: Any = tx.one(_TAKE, task=ticket.task_id, n=ticket.n, epoch=ticket.epoch, fingerprint=fingerprint)
        if row is None or before is None:
            continue
        id_, host_id, is_seed = row
        if before[0] == 0:
            from_lanes[host_id] = from_lanes.get(host_id, 0) + 1
        outcome = by_fingerprint[fingerprint]
        request = replace(outcome.request, id=id_, host_id=host_id, is_seed=bool(is_seed))
        taken.append(replace(outcome, request=request))
    lanes.take(tx, ticket.task_id, from_lanes, held.now, rests={})
    tx.run(_COUNT_LEASED, k=len(taken), task=ticket.task_id, n=ticket.n)
    settled = settle(tx, context, ticket, taken)
    tx.run(_DISCOVER, k=sum(new.values()), task=ticket.task_id)
    return replace(settled, added=settled.added + sum(new.values()), repeated=False)


def _link(outcome: Outcome) -> NewRequest:
    request = outcome.request
    return NewRequest(
        url=request.url,
        fingerprint=request.fingerprint,
        host_key=request.host_key,
        depth=request.depth,
        priority=request.priority,
    )
