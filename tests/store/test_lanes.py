"""Lanes: locked in the order of their hosts, kept by arithmetic."""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

import pytest

from flask_spiderpool.store import lanes
from flask_spiderpool.store.sql import Statement, Tx
from tests.store.frontiers import Frontier, link


def add(tx: Tx, task_id: UUID, hosts: list[int]) -> None:
    """Count one request in for each host, in the order given."""
    lanes.add(tx, task_id, dict.fromkeys(hosts, 1), 0.0)


def take(tx: Tx, task_id: UUID, hosts: list[int]) -> None:
    """Count one request out for each host, in the order given; the planner joins them as they lie."""
    for plan in ("nestloop", "mergejoin", "indexscan", "bitmapscan"):
        tx.run(Statement(f"SET LOCAL enable_{plan} = off"))
    lanes.take(tx, task_id, dict.fromkeys(hosts, 1), 0.0, rests={})


@pytest.mark.parametrize("change", [add, take])
def test_lanes_are_locked_in_the_order_of_their_hosts(
    postgres_frontier: Frontier, change: Callable[[Tx, UUID, list[int]], None]
) -> None:
    """A transaction that waits for the first host's lane holds none of the later ones."""
    f = postgres_frontier
    ticket = f.claimed(1)
    first, *later = range(1, 301)
    # The rows lie in the other order: whoever locks them as they lie holds all the later ones first.
    f.sql("DELETE FROM spiderpool_lane")
    f.sql(
        "INSERT INTO spiderpool_lane (task_id, host_id, ready_at, queued, has_work)"
        " SELECT :t, host, 0, 1, TRUE FROM generate_series(300, 1, -1) AS host",
        t=ticket.task_id,
    )
    f.sql("ANALYZE spiderpool_lane")
    with f.transaction() as tx:
        add(tx, ticket.task_id, [first])
        other = f.waiting(f.store.write, lambda tx: change(tx, ticket.task_id, [*later[8::-1], first]))
        f.sql("SELECT 1 FROM spiderpool_lane WHERE host_id <> :h FOR UPDATE NOWAIT", h=first)
    other.result(10)


def test_arithmetic(frontier: Frontier) -> None:
    """Counts go up and down, has_work follows, a taken lane goes to the end, a resting one waits."""
    ticket = frontier.claimed([link(1), link(2)])
    (host,) = frontier.sql("SELECT host_id FROM spiderpool_lane")[0]

    def lane() -> tuple[int, bool, float]:
        row = frontier.sql(
            "SELECT queued, has_work, ready_at FROM spiderpool_lane WHERE host_id = :h", h=host
        )[0]
        return row.queued, bool(row.has_work), row.ready_at

    def call(counts: dict[int, int], now: float, rests: dict[int, float]) -> None:
        frontier.store.write(lambda tx: lanes.take(tx, ticket.task_id, counts, now, rests=rests))

    call({host: 1}, 100.0, {})
    assert lane() == (1, True, 100.0)
    call({host: 1}, 101.0, {host: 150.0})
    assert lane() == (0, False, 150.0)
    frontier.store.write(lambda tx: lanes.add(tx, ticket.task_id, {host: 3, host + 1: 2, host + 2: 0}, 7.0))
    assert lane() == (3, True, 150.0)
    assert frontier.value("SELECT count(*) FROM spiderpool_lane") == 2
    call({}, 102.0, {host: 120.0})
    assert lane() == (3, True, 150.0)
