"""A task's queue for each host: kept by arithmetic, never by looking (PROTOCOL, *Lease*).

Rows are always locked in the order of their hosts, so that two transactions never wait for each other.
"""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

from flask_spiderpool.store.sql import Statement, Tx

_ADD = Statement(
    """
    INSERT INTO spiderpool_lane (task_id, host_id, ready_at, queued, has_work)
    SELECT :task, c.host, :now, c.k, TRUE FROM unnest(:hosts::bigint[], :counts::bigint[]) AS c(host, k)
    ORDER BY c.host
    ON CONFLICT (task_id, host_id) DO UPDATE SET
        queued = spiderpool_lane.queued + excluded.queued,
        has_work = spiderpool_lane.queued + excluded.queued > 0
    """
)
_ADD_ONE = Statement(
    "",
    sqlite="""
    INSERT INTO spiderpool_lane (task_id, host_id, ready_at, queued, has_work) VALUES (:task, :host, :now, :k, 1)
    ON CONFLICT (task_id, host_id) DO UPDATE SET
        queued = queued + excluded.queued, has_work = queued + excluded.queued > 0
    """,
)
_LOCK = Statement(
    """
    SELECT host_id FROM spiderpool_lane WHERE task_id = :task AND host_id = ANY(:hosts::bigint[])
    ORDER BY host_id FOR UPDATE
    """
)
_TAKE = Statement(
    """
    UPDATE spiderpool_lane AS l
    SET queued = l.queued - c.k, has_work = l.queued - c.k > 0,
        ready_at = CASE WHEN c.rest THEN GREATEST(l.ready_at, c.at) ELSE c.at END
    FROM unnest(:hosts::bigint[], :counts::bigint[], :ats::float8[], :rests::bool[]) AS c(host, k, at, rest)
    WHERE l.task_id = :task AND l.host_id = c.host
    """
)
_TAKE_ONE = Statement(
    "",
    sqlite="""
    UPDATE spiderpool_lane SET queued = queued - :k, has_work = queued - :k > 0,
        ready_at = CASE WHEN :rest THEN max(ready_at, :at) ELSE :at END
    WHERE task_id = :task AND host_id = :host
    """,
)


def add(tx: Tx, task_id: UUID, counts: Mapping[int, int], now: float) -> None:
    """Count ``counts[host_id]`` requests in that have become queued; new lanes begin at the end of the turn."""
    hosts = sorted(host for host, k in counts.items() if k)
    if not hosts:
        return
    if tx.postgres:
        tx.run(_ADD, task=task_id, now=now, hosts=hosts, counts=[counts[host] for host in hosts])
        return
    task = tx.key(task_id)
    tx.many(_ADD_ONE, [{"task": task, "host": host, "now": now, "k": counts[host]} for host in hosts])


def take(tx: Tx, task_id: UUID, counts: Mapping[int, int], now: float, *, rests: Mapping[int, float]) -> None:
    """Count leased requests out; the hosts taken go to the end of the turn, those in ``rests`` rest until then.

    ``rests`` gives epoch seconds; a longer rest that stands already is kept.
    """
    hosts = sorted(counts.keys() | rests.keys())
    if not hosts:
        return
    if tx.postgres:
        tx.all(_LOCK, task=task_id, hosts=hosts)
        tx.run(
            _TAKE,
            task=task_id,
            hosts=hosts,
            counts=[counts.get(host, 0) for host in hosts],
            ats=[rests.get(host, now) for host in hosts],
            rests=[host in rests for host in hosts],
        )
        return
    task = tx.key(task_id)
    tx.many(
        _TAKE_ONE,
        [
            {
                "task": task,
                "host": host,
                "k": counts.get(host, 0),
                "at": rests.get(host, now),
                "rest": host in rests,
            }
            for host in hosts
        ],
    )
