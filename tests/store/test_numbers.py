"""Numbers are true at every moment."""

from __future__ import annotations

import threading

import pytest

from flask_spiderpool.errors import UnknownTask
from tests.store.frontiers import Frontier, again, done, failed, link


def test_numbers_reconcile_while_slices_work(frontier: Frontier) -> None:
    """In any snapshot taken while two slots lease, settle and release, counters and rows agree."""
    message = frontier.start(200, max_parallel=2)
    one = frontier.claim(message).ticket
    frontier.sql("UPDATE spiderpool_slot SET state = 'sent', epoch = 1 WHERE n = 1")
    two = frontier.store.claim(one.task_id, 1, 1, "w2")
    assert two is not None
    stopped = threading.Event()

    def work(ticket: object, seed: int) -> int:
        rounds = 0
        while not stopped.is_set() and rounds < 400:
            taken = frontier.take(ticket, 6)  # type: ignore[arg-type]
            if not taken:
                break
            new = [link(f"{seed}/{rounds}/{number}") for number in range(4)]
            outcomes = [done(taken[0], new), *(failed(request) for request in taken[1:2])]
            outcomes += [again(request) for request in taken[2:3]]
            frontier.store.settle(ticket, outcomes)  # type: ignore[arg-type]
            frontier.release(ticket, taken[3:])  # type: ignore[arg-type]
            rounds += 1
        return rounds

    workers = [frontier.thread(work, one, 1), frontier.thread(work, two.ticket, 2)]
    try:
        for _ in range(40):
            frontier.check(one.task_id)
            numbers = frontier.store.numbers(one.task_id)
            assert numbers["queued"] >= 0
            parts = ("queued", "leased", "done", "failed", "skipped")
            assert sum(numbers[part] for part in parts) == numbers["discovered"]
    finally:
        stopped.set()
    assert all(worker.result(60) > 0 for worker in workers)
    frontier.check(one.task_id)


@pytest.mark.parametrize(
    ("damage", "named"),
    [
        ("UPDATE spiderpool_task SET done = done + 1, discovered = discovered + 1", {"done", "discovered"}),
        ("UPDATE spiderpool_slot SET leased = leased + 1", {"leased", "queued"}),
        ("UPDATE spiderpool_lane SET queued = queued - 1", {"lanes"}),
        ("UPDATE spiderpool_lane SET has_work = FALSE", {"lanes_wrong"}),
        ("UPDATE spiderpool_request SET state = 5 WHERE state = 1", {"leased", "skipped"}),
    ],
)
def test_damage_is_named(frontier: Frontier, damage: str, named: set[str]) -> None:
    """A counter that is wrong is found and named."""
    ticket = frontier.claimed(5)
    frontier.take(ticket, 1)
    assert frontier.store.reconcile(ticket.task_id)["ok"]
    frontier.sql(damage)
    told = frontier.store.reconcile(ticket.task_id)
    assert not told["ok"]
    assert set(told["faults"]) == named


def test_unknown_task(frontier: Frontier) -> None:
    """Numbers of no task are an error of the caller."""
    nobody = frontier.claimed().task_id.__class__(int=1)
    with pytest.raises(UnknownTask):
        frontier.store.numbers(nobody)
    with pytest.raises(UnknownTask):
        frontier.store.reconcile(nobody)


def test_pool_numbers(frontier: Frontier) -> None:
    """The pool's queue, slots and the age of the keeper's last pass."""
    assert frontier.store.pool_numbers()["keeper_age_s"] is None
    ticket = frontier.claimed(5)
    frontier.start(2)
    frontier.take(ticket, 2)
    frontier.store.keep("k")
    frontier.advance(4)
    told = frontier.store.pool_numbers()
    assert (told["queued"], told["leased"], told["slots_running"], told["slots_sent"]) == (5, 2, 1, 1)
    assert told["keeper_age_s"] == pytest.approx(4, abs=1)
    assert frontier.store.status_counts() == {"running": 1, "pending": 1}
