"""Choose and mark the requests of a lease (PROTOCOL, *Lease*)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from flask_spiderpool.crawl.request import Ticket
from flask_spiderpool.store.cursors import Position
from flask_spiderpool.store.sql import Statement, Tx

LANES = 50  #: lanes looked at by one lease
_HEAD: Position = (-(2**31), -1)

_COLUMNS = "id, host_id, url, fingerprint, depth, priority, attempts, deaths, is_seed, payload"
_TAKEN = (
    "r.id, r.host_id, r.url, r.fingerprint, r.depth, r.priority, r.attempts, r.deaths, r.is_seed, r.payload"
)

# The clock of this very statement: a sibling may have given a lane its turn since the lease began.
_PICK = Statement(
    f"""
    WITH v AS MATERIALIZED (
        SELECT host_id, ready_at FROM spiderpool_lane
        WHERE task_id = :task AND has_work AND ready_at <= @now AND host_id <> ALL(:skip::bigint[])
        ORDER BY ready_at LIMIT {LANES}
    ), l AS MATERIALIZED (
        SELECT v.host_id, v.ready_at, COALESCE(c.cap, :default_cap) AS cap,
               COALESCE(c.priority, {_HEAD[0]}) AS priority, COALESCE(c.id, {_HEAD[1]}) AS id
        FROM v LEFT JOIN unnest(:hosts::bigint[], :caps::int[], :priorities::int[], :ids::bigint[])
             AS c(host_id, cap, priority, id) ON c.host_id = v.host_id
    ), p AS MATERIALIZED (
        SELECT r.id FROM (SELECT * FROM l ORDER BY ready_at) AS l CROSS JOIN LATERAL (
            SELECT q.id FROM spiderpool_request q
            WHERE q.task_id = :task AND q.host_id = l.host_id AND q.state = 0 AND q.deaths = 0
              AND (q.priority, q.id) > (l.priority, l.id)
            ORDER BY q.priority, q.id LIMIT l.cap FOR UPDATE SKIP LOCKED
        ) AS r LIMIT :n
    )
    UPDATE spiderpool_request AS r SET state = 1, slot = :slot, epoch = :epoch
    FROM p WHERE r.id = p.id
    RETURNING {_TAKEN}
    """
)
# At most one suspect is in flight in a process (PROTOCOL, *Deaths*): the slice says when it has none. The fewest
# deaths first: where workers are killed from outside, the same innocent must not stand in front each time.
_SUSPECT = Statement(
    f"""
    UPDATE spiderpool_request AS r SET state = 1, slot = :slot, epoch = :epoch
    WHERE r.id = (
        SELECT q.id FROM spiderpool_request q
        JOIN spiderpool_lane l ON l.task_id = q.task_id AND l.host_id = q.host_id
        WHERE q.task_id = :task AND q.state = 0 AND q.deaths > 0 AND l.ready_at <= @now
          AND q.host_id <> ALL(:skip::bigint[])
        ORDER BY q.deaths, q.id LIMIT 1 FOR UPDATE OF q SKIP LOCKED
    )
    RETURNING {_TAKEN}
    """,
    sqlite=f"""
    UPDATE spiderpool_request SET state = 1, slot = :slot, epoch = :epoch
    WHERE id = (
        SELECT q.id FROM spiderpool_request q
        JOIN spiderpool_lane l ON l.task_id = q.task_id AND l.host_id = q.host_id
        WHERE q.task_id = :task AND q.state = 0 AND q.deaths > 0 AND l.ready_at <= @now
          AND q.host_id NOT IN (SELECT value FROM json_each(:skip))
        ORDER BY q.deaths, q.id LIMIT 1
    )
    RETURNING {_COLUMNS}
    """,
)
_LANES_READY = Statement(
    f"""
    SELECT host_id FROM spiderpool_lane
    WHERE task_id = :task AND has_work AND ready_at <= @now AND host_id <> ALL(:skip::bigint[])
    ORDER BY ready_at LIMIT {LANES}
    """,
    sqlite=f"""
    SELECT host_id FROM spiderpool_lane
    WHERE task_id = :task AND has_work AND ready_at <= @now
      AND host_id NOT IN (SELECT value FROM json_each(:skip))
    ORDER BY ready_at LIMIT {LANES}
    """,
)
_BEST = Statement(
    "",
    sqlite=f"""
    SELECT {_COLUMNS} FROM spiderpool_request
    WHERE task_id = :task AND host_id = :host AND state = 0 AND deaths = 0
    ORDER BY priority, id LIMIT :cap
    """,
)
_MARK = Statement(
    "", sqlite="UPDATE spiderpool_request SET state = 1, slot = :slot, epoch = :epoch WHERE id = :id"
)


@dataclass(frozen=True, slots=True)
class Wanted:
    """How many requests, of which hosts at most how many, of which none."""

    n: int
    caps: Mapping[int, int]
    default_cap: int
    skip: list[int]
    suspects: bool
    cursors: Mapping[int, Position]

    def less(self, rows: list[tuple[Any, ...]]) -> Wanted:
        """Return what is still wanted after ``rows``, beginning at the head of every lane."""
        caps = dict(self.caps)
        for row in rows:
            caps[row[1]] = caps.get(row[1], self.default_cap) - 1
        full = {host for host, cap in caps.items() if cap <= 0}
        return replace(
            self,
            n=self.n - len(rows),
            caps={host: cap for host, cap in caps.items() if cap > 0},
            skip=sorted({*self.skip, *full}),
            suspects=False,
            cursors={},
        )


def pick(tx: Tx, ticket: Ticket, wanted: Wanted) -> list[tuple[Any, ...]]:
    """Mark up to ``wanted.n`` requests as leased by the ticket and return their rows."""
    rows: list[tuple[Any, ...]] = []
    if wanted.suspects:
        rows += _pick_suspect(tx, ticket, wanted)
        if rows:
            wanted = replace(wanted.less(rows), cursors=wanted.cursors)
    if wanted.n <= 0:
        return rows
    return rows + (_pick_postgres if tx.postgres else _pick_sqlite)(tx, ticket, wanted)


def lanes_ready(tx: Tx, ticket: Ticket, skip: list[int]) -> list[int]:
    """Return the hosts of the lanes that a lease would look at, longest unserved first."""
    values: Any = skip if tx.postgres else str(skip)
    return [host for (host,) in tx.all(_LANES_READY, task=ticket.task_id, skip=values)]


def _pick_suspect(tx: Tx, ticket: Ticket, wanted: Wanted) -> list[tuple[Any, ...]]:
    skip: Any = wanted.skip if tx.postgres else str(wanted.skip)
    return tx.all(_SUSPECT, task=ticket.task_id, slot=ticket.n, epoch=ticket.epoch, skip=skip)


def _pick_postgres(tx: Tx, ticket: Ticket, wanted: Wanted) -> list[tuple[Any, ...]]:
    hosts = sorted(wanted.caps.keys() | wanted.cursors.keys())
    places = [wanted.cursors.get(host, _HEAD) for host in hosts]
    return tx.all(
        _PICK,
        task=ticket.task_id,
        slot=ticket.n,
        epoch=ticket.epoch,
        n=wanted.n,
        default_cap=wanted.default_cap,
        skip=wanted.skip,
        hosts=hosts,
        caps=[wanted.caps.get(host, wanted.default_cap) for host in hosts],
        priorities=[priority for priority, _ in places],
        ids=[id_ for _, id_ in places],
    )


def _pick_sqlite(tx: Tx, ticket: Ticket, wanted: Wanted) -> list[tuple[Any, ...]]:
    rows: list[tuple[Any, ...]] = []
    for host in lanes_ready(tx, ticket, wanted.skip):
        cap = max(0, min(wanted.caps.get(host, wanted.default_cap), wanted.n - len(rows)))
        if len(rows) >= wanted.n:
            break
        rows += tx.all(_BEST, task=ticket.task_id, host=host, cap=cap)
    tx.many(_MARK, [{"slot": ticket.n, "epoch": ticket.epoch, "id": row[0]} for row in rows])
    return rows
