"""Lease: hosts first, then the best requests of each, so that ten thousand parked hosts cost nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from flask_spiderpool.crawl.request import Lease, LeasedRequest, Ticket
from flask_spiderpool.store import lanes, ripe
from flask_spiderpool.store.context import Context
from flask_spiderpool.store.fence import hold
from flask_spiderpool.store.hosts import key_of
from flask_spiderpool.store.pick import LANES, Wanted, lanes_ready, pick
from flask_spiderpool.store.slots import next_due
from flask_spiderpool.store.sql import Statement, Tx, json_value
from flask_spiderpool.terms import ENDED, Desired

_SIBLING_WAIT_S = 1.0  #: the page limit is used up by what siblings have under way: look again then
_ROUNDS = 3  #: windows of lanes that one lease looks at when those before gave nothing

_TASK = Statement(
    "SELECT desired, status, max_pages, deadline_at, done FROM spiderpool_task WHERE id = :task FOR KEY SHARE"
)
# A statement of its own after the task's advisory lock: what a sibling committed before is in its snapshot.
_LOCK_LIMIT = Statement("SELECT pg_advisory_xact_lock(hashtextextended(:name::text, 0))", sqlite="SELECT 1")
_LEFT = Statement(
    """
    SELECT t.done, (SELECT COALESCE(sum(s.leased), 0) FROM spiderpool_slot s WHERE s.task_id = t.id)::bigint
    FROM spiderpool_task t WHERE t.id = :task
    """
)
_COUNT = Statement("UPDATE spiderpool_slot SET leased = leased + :k WHERE task_id = :task AND n = :n")


@dataclass(frozen=True, slots=True)
class Ask:
    """What a slice asks for; see :meth:`~flask_spiderpool.crawl.store.FrontierStore.lease`."""

    n: int
    per_host: Mapping[int, int]
    default_per_host: int
    suspects: bool
    rest_hosts: Mapping[int, float]


def lease(tx: Tx, context: Context, ticket: Ticket, ask: Ask) -> Lease:
    """Take queued requests for the ticket's slot, in one transaction."""
    held = hold(tx, ticket)
    task = tx.one(_TASK, task=ticket.task_id)
    rests = {host: held.now + rest_s for host, rest_s in ask.rest_hosts.items()}
    if task is None or task[0] != Desired.RUN or task[1] in ENDED:
        lanes.take(tx, ticket.task_id, {}, held.now, rests=rests)
        return Lease([], Desired.STOP if task is None or task[1] in ENDED else task[0], None)
    _, _, max_pages, deadline_at, _ = task
    n, reached = ask.n, deadline_at is not None and deadline_at <= held.now
    if max_pages is not None and not reached:
        n, reached = _left(tx, ticket, n, max_pages)
    if n <= 0 or reached:
        lanes.take(tx, ticket.task_id, {}, held.now, rests=rests)
        wait_s = None if reached else _SIBLING_WAIT_S
        return Lease([], Desired.RUN, wait_s, limit_reached=reached)
    ripe.promote(tx, ticket.task_id, held.now)
    rows, barren = _pick(tx, context, ticket, ask, n)
    counts: dict[int, int] = dict.fromkeys(barren, 0)
    for row in rows:
        counts[row[1]] = counts.get(row[1], 0) + 1
    lanes.take(tx, ticket.task_id, counts, held.now, rests=rests)
    if rows:
        tx.run(_COUNT, k=len(rows), task=ticket.task_id, n=ticket.n)
    wait_s = 0.0 if len(rows) >= n else next_ready_in(tx, ticket, held.now)
    return Lease(_in_turn(rows), Desired.RUN, wait_s)


def next_ready_in(tx: Tx, ticket: Ticket, now: float) -> float | None:
    """Return the seconds until something of the task ripens; None: nothing is queued or waiting."""
    at = next_due(tx, ticket.task_id)
    return None if at is None else max(0.0, at - now)


def _left(tx: Tx, ticket: Ticket, n: int, max_pages: int) -> tuple[int, bool]:
    """Cut ``n`` to what the page limit leaves over all that is leased; siblings wait for each other here."""
    tx.all(_LOCK_LIMIT, name=str(ticket.task_id))
    row = tx.one(_LEFT, task=ticket.task_id)
    done, leased = row if row is not None else (max_pages, 0)
    return min(n, max_pages - done - leased), done >= max_pages


def _pick(
    tx: Tx, context: Context, ticket: Ticket, ask: Ask, n: int
) -> tuple[list[tuple[Any, ...]], set[int]]:
    """Return the rows taken, and the lanes that gave nothing although they were looked at."""
    cursors = context.cursors.of(ticket) if tx.postgres else {}
    skip = [host for host, most in ask.per_host.items() if most <= 0]
    wanted = Wanted(
        n=n,
        caps={host: most for host, most in ask.per_host.items() if most > 0},
        default_cap=ask.default_per_host,
        skip=sorted({*skip, *ask.rest_hosts}),
        suspects=ask.suspects,
        cursors=cursors,
    )
    rows = pick(tx, ticket, wanted)
    if len(rows) < n and cursors:
        # Something may stand before the cursors: begin at the head again, for what is still wanted.
        context.cursors.forget(ticket)
        context.cursors.of(ticket)
        rows += pick(tx, ticket, wanted.less(rows))
    barren: set[int] = set()
    # Lanes whose rows are all suspects, or locked by a sibling, must not stand before the others for ever.
    for _ in range(_ROUNDS):
        rest = wanted.less(rows)
        if len(rows) >= n:
            break
        seen = lanes_ready(tx, ticket, rest.skip)
        if len(seen) < LANES:
            break
        barren.update(seen)
        wanted = replace(wanted, skip=sorted({*wanted.skip, *seen}), suspects=False, cursors={})
        rows += pick(tx, ticket, wanted.less(rows))
    if tx.postgres:
        for row in rows:
            context.cursors.advance(ticket, row[1], (row[5], row[0]))
    return rows, barren


def _in_turn(rows: list[tuple[Any, ...]]) -> list[LeasedRequest]:
    """Order what was taken: the best of each host, hosts in turn."""
    place: dict[int, int] = {}
    turns = []
    for row in sorted(rows, key=lambda row: (row[5], row[0])):
        turn = place.get(row[1], 0)
        place[row[1]] = turn + 1
        turns.append((turn, row))
    turns.sort(key=lambda pair: pair[0])
    return [
        LeasedRequest(
            id=id_,
            host_key=key_of(url),
            host_id=host_id,
            url=url,
            fingerprint=bytes(fingerprint),
            depth=depth,
            priority=priority,
            attempts=attempts,
            deaths=deaths,
            is_seed=bool(is_seed),
            payload=json_value(payload),
        )
        for _, (id_, host_id, url, fingerprint, depth, priority, attempts, deaths, is_seed, payload) in turns
    ]
