"""Renewal: all of a process's slots in one call, and never held up by one of them."""

from __future__ import annotations

import threading
from uuid import UUID

import pytest

from flask_spiderpool.crawl.request import Renewal
from flask_spiderpool.store.fence import hold
from flask_spiderpool.terms import EndReason, Verb
from tests.store.frontiers import Frontier


def left_s(frontier: Frontier, task_id: UUID) -> float:
    """Return the seconds that a slot's lease has left."""
    return float(frontier.slot(task_id).until - frontier.store.now())


def test_all_slots_are_prolonged(frontier: Frontier) -> None:
    """Each ticket gets its answer and its slot the whole lease from now."""
    tickets = [frontier.claimed(2) for _ in range(3)]
    frontier.advance(15)
    renewed = frontier.store.renew(tickets)
    assert renewed == {ticket: Renewal("run", 20.0) for ticket in tickets}
    for ticket in tickets:
        assert left_s(frontier, ticket.task_id) == pytest.approx(20, abs=1)


def test_no_tickets(frontier: Frontier) -> None:
    """A process without slices renews nothing."""
    assert frontier.store.renew([]) == {}


def test_missing_ticket_is_fenced(frontier: Frontier) -> None:
    """A slot that is another's, handed on, or expired and returned has no answer."""
    kept, handed, expired = (frontier.claimed(2) for _ in range(3))
    frontier.store.hand_on(handed, next_in_s=None)
    frontier.sql("UPDATE spiderpool_slot SET until = 0 WHERE task_id = :t", t=frontier.key(expired.task_id))
    frontier.store.keep("k")
    older = kept._replace(epoch=kept.epoch - 1)
    assert set(frontier.store.renew([kept, handed, expired, older])) == {kept}


def test_what_is_desired_comes_back(frontier: Frontier) -> None:
    """A renewal tells what is desired, so that a lost bus message costs 5 s at most."""
    paused, failed, running = (frontier.claimed(2) for _ in range(3))
    frontier.verb(paused.task_id, Verb.PAUSE)
    frontier.sql(
        "UPDATE spiderpool_task SET status = 'finished' WHERE id = :t", t=frontier.key(failed.task_id)
    )
    renewed = frontier.store.renew([paused, failed, running])
    assert [renewed[ticket].desired for ticket in (paused, failed, running)] == ["pause", "stop", "run"]


def test_locked_slot_does_not_hold_up_the_others(postgres_frontier: Frontier) -> None:
    """While a host's slow verb holds one task's slots the others are renewed; that one's answer is what is left."""
    f = postgres_frontier
    held, free = f.claimed(2), f.claimed(2)
    f.advance(12)
    with f.transaction() as tx:
        hold(tx, held)
        renewed = f.thread(f.store.renew, [held, free]).result(10)
    assert renewed[free].lease_s == 20.0
    assert renewed[held].lease_s == pytest.approx(8, abs=1)
    assert f.store.renew([held])[held].lease_s == 20.0


def test_renewal_goes_first_in_the_writers_queue(sqlite_frontier: Frontier) -> None:
    """On SQLite a renewal overtakes what is queued for the writer."""
    f = sqlite_frontier
    ticket = f.claimed(2)
    order: list[str] = []
    began, go = threading.Event(), threading.Event()

    def slow() -> None:
        began.set()
        go.wait(10)

    blocker = f.store.submit(slow)
    began.wait(10)
    queued = [f.store.submit(order.append, f"call {number}") for number in range(3)]
    renewal = f.store.submit(lambda: order.append(str(len(f.store.renew([ticket])))), first=True)
    go.set()
    for future in (blocker, renewal, *queued):
        future.result(10)
    assert order == ["1", "call 0", "call 1", "call 2"]


def test_renewal_has_its_own_connection(postgres_frontier: Frontier) -> None:
    """With every pooled connection in use a renewal does not wait."""
    f = postgres_frontier
    ticket = f.claimed(2)
    go = threading.Event()
    began = threading.Barrier(f.store.settings.store_threads + 1)

    def hold_a_connection(tx: object) -> None:
        began.wait(10)
        go.wait(30)

    busy = [f.store.submit(f.store.write, hold_a_connection) for _ in range(f.store.settings.store_threads)]
    began.wait(10)
    try:
        assert ticket in f.thread(f.store.renew, [ticket]).result(10)
    finally:
        go.set()
    for future in busy:
        future.result(10)


def test_failed_task_wants_nothing(frontier: Frontier) -> None:
    """A slice whose task was failed by another is fenced by its next renewal."""
    ticket = frontier.claimed(2)
    frontier.store.fail_task(ticket.task_id, EndReason.SPIDER_BROKEN)
    assert frontier.store.renew([ticket]) == {}
