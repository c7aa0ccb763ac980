"""The slot: messages, claims, handing on (PROTOCOL, *The slot is outbox, ticket, lease and fence in one row*)."""

from __future__ import annotations

import pytest

from flask_spiderpool.crawl.request import Ticket
from flask_spiderpool.errors import Fenced
from flask_spiderpool.store import slots
from flask_spiderpool.store.hosts import host_id
from flask_spiderpool.terms import EndReason, Status, Verb
from tests.store.frontiers import Frontier, again, done, links


def test_doubled_message_is_claimed_once(frontier: Frontier) -> None:
    """The second copy of a message finds its epoch gone and claims nothing."""
    message = frontier.start()
    ticket = frontier.claim(message, "w1").ticket
    assert ticket.epoch == message.ticket.epoch + 1
    assert frontier.store.claim(*message.ticket, "w2") is None
    slot = frontier.slot(ticket.task_id)
    assert (slot.state, slot.worker, slot.epoch) == ("running", "w1", ticket.epoch)


def test_doubled_message_claimed_at_once(postgres_frontier: Frontier) -> None:
    """Two workers that claim one message at the same moment: one waits for the other and gets nothing."""
    message = postgres_frontier.start()
    with postgres_frontier.transaction() as tx:
        first = slots.claim(tx, postgres_frontier.context, message.ticket, "w1")
        second = postgres_frontier.waiting(postgres_frontier.store.claim, *message.ticket, "w2")
    assert first is not None
    assert second.result() is None


def test_old_message_claims_nothing(frontier: Frontier) -> None:
    """A message that was sent again in the meantime is old: only the newer one is claimed."""
    message = frontier.start()
    frontier.advance(31)
    (newer,) = frontier.store.keep("k")
    assert newer.ticket.epoch == message.ticket.epoch + 1
    assert frontier.store.claim(*message.ticket, "w1") is None
    frontier.claim(newer)


def test_declined_message_is_due_again_at_once(frontier: Frontier) -> None:
    """A worker that winds up puts the slot back: sent again now, not after the re-send; an old copy changes nothing."""
    message = frontier.start()
    frontier.store.decline(message.ticket)
    assert frontier.slot(message.ticket.task_id).state == "due"
    (newer,) = frontier.store.keep("k")
    assert newer.ticket.epoch == message.ticket.epoch + 1
    frontier.store.decline(message.ticket)
    frontier.claim(newer)
    frontier.store.decline(newer.ticket)
    assert frontier.slot(message.ticket.task_id).state == "running"


def test_first_claim_begins_the_task(frontier: Frontier) -> None:
    """Pending becomes running at the first claim, and only then; the time limit counts from there."""
    message = frontier.start(3, max_time_s=100.0)
    task_id = message.ticket.task_id
    frontier.advance(10)
    claim = frontier.claim(message)
    assert claim.deadline_in_s == pytest.approx(100, abs=1)
    assert frontier.status(task_id) == Status.RUNNING
    frontier.advance(30)
    (message,) = frontier.store.hand_on(claim.ticket, next_in_s=None)
    claim = frontier.claim(message)
    assert claim.deadline_in_s == pytest.approx(70, abs=2)
    assert frontier.history(task_id) == ["pending", "running"]


def test_claim_tells_what_the_slice_needs(frontier: Frontier) -> None:
    """A claim carries the spider, its options, the limits and the owner."""
    message = frontier.start(1, options={"delay_s": 2}, max_pages=7, owner="ann", spider="shop")
    claim = frontier.claim(message)
    assert (claim.spider, claim.options, claim.max_pages, claim.owner) == ("shop", {"delay_s": 2}, 7, "ann")
    assert (claim.desired, claim.lease_s, claim.deadline_in_s) == ("run", 20.0, None)


@pytest.mark.parametrize("verb", [Verb.PAUSE, Verb.STOP])
def test_pause_and_stop_with_only_a_sent_slot(frontier: Frontier, verb: Verb) -> None:
    """A task whose only slot is sent rests at once, and the message under way claims nothing."""
    message = frontier.start()
    task_id = message.ticket.task_id
    frontier.verb(task_id, verb)
    assert frontier.slot(task_id).state == "idle"
    assert frontier.store.verdict(task_id) == (Status.PAUSED if verb is Verb.PAUSE else Status.STOPPED)
    assert frontier.store.claim(*message.ticket, "w") is None
    assert frontier.slot(task_id).state == "idle"


def test_claim_lays_an_unwanted_slot_to_rest(frontier: Frontier) -> None:
    """A claim that finds the task not wanted rests its slot and says the verdict."""
    message = frontier.start()
    task_id = message.ticket.task_id
    # As a verb leaves it that committed between the claim's message and the claim.
    frontier.sql(
        "UPDATE spiderpool_task SET desired = 'stop', status = 'stopping' WHERE id = :id",
        id=frontier.key(task_id),
    )
    assert frontier.store.claim(*message.ticket, "w") is None
    assert frontier.slot(task_id).state == "idle"
    assert frontier.status(task_id) == Status.STOPPED


def test_claim_with_nothing_queued_rests_and_finishes(frontier: Frontier) -> None:
    """A claim of a complete task rests the slot and says that the task is finished."""
    ticket = frontier.claimed(1)
    frontier.store.settle(ticket, [done(*frontier.take(ticket))])
    frontier.sql("UPDATE spiderpool_slot SET state = 'sent'")
    assert frontier.store.claim(*ticket, "w") is None
    assert frontier.slot(ticket.task_id).state == "idle"
    assert frontier.status(ticket.task_id) == Status.FINISHED


def test_claim_rests_while_siblings_hold_everything(frontier: Frontier) -> None:
    """When all that is left is leased by another slot there is nothing to claim for."""
    message = frontier.start(2, max_parallel=2)
    ticket = frontier.claim(message).ticket
    frontier.take(ticket)
    frontier.sql("UPDATE spiderpool_slot SET state = 'sent', epoch = 5 WHERE n = 1")
    assert frontier.store.claim(ticket.task_id, 1, 5, "w") is None
    assert frontier.slot(ticket.task_id, 1).state == "idle"
    assert frontier.status(ticket.task_id) == Status.RUNNING


def test_message_of_a_task_that_is_gone(frontier: Frontier) -> None:
    """A message that outlived its task claims nothing and raises nothing."""
    message = frontier.start()
    frontier.sql("DELETE FROM spiderpool_slot")
    frontier.sql("DELETE FROM spiderpool_history")
    frontier.sql("DELETE FROM spiderpool_request")
    frontier.sql("DELETE FROM spiderpool_lane")
    frontier.sql("DELETE FROM spiderpool_task")
    assert frontier.store.claim(*message.ticket, "w") is None


def test_hand_on_returns_what_is_left(frontier: Frontier) -> None:
    """Leases that the slice did not settle are queued again, without a death, and a new slice takes them."""
    ticket = frontier.claimed(5)
    taken = frontier.take(ticket)
    (message,) = frontier.store.hand_on(ticket, next_in_s=None)
    frontier.check(ticket.task_id)
    ticket = frontier.claim(message).ticket
    again_taken = frontier.take(ticket)
    assert sorted(request.id for request in again_taken) == sorted(request.id for request in taken)
    assert {(request.deaths, request.attempts) for request in again_taken} == {(0, 0)}


def test_hand_on_is_fenced(frontier: Frontier) -> None:
    """A slice whose slot was taken from it cannot hand it on."""
    ticket = frontier.claimed(5)
    frontier.advance(21)
    (message,) = frontier.store.keep("k")
    newer = frontier.claim(message)
    with pytest.raises(Fenced):
        frontier.store.hand_on(ticket, next_in_s=None)
    assert frontier.slot(ticket.task_id).epoch == newer.ticket.epoch
    assert frontier.slot(ticket.task_id).state == "running"


def test_slot_is_due_when_the_next_retry_ripens(frontier: Frontier) -> None:
    """With nothing but a waiting retry the slot is due at its time, not now."""
    ticket = frontier.claimed(1)
    (request,) = frontier.take(ticket)
    frontier.store.settle(ticket, [again(request, retry_after_s=60)])
    assert frontier.store.hand_on(ticket, next_in_s=None) == []
    slot = frontier.slot(ticket.task_id)
    assert slot.state == "due"
    assert slot.due_at - frontier.store.now() == pytest.approx(60, abs=2)
    frontier.advance(58)
    assert frontier.store.dispatch(10) == []
    frontier.advance(3)
    (message,) = frontier.store.dispatch(10)
    assert len(frontier.take(frontier.claim(message).ticket)) == 1


def test_slot_is_due_when_the_next_lane_is_ready(frontier: Frontier) -> None:
    """With every host at rest the slot is due when the first is ready."""
    ticket = frontier.claimed(links(1) + links(1, "b.example"))
    hosts = [host_id("a.example"), host_id("b.example")]
    lease = frontier.lease(ticket, rest={hosts[0]: 120.0, hosts[1]: 90.0})
    assert lease.requests == []
    assert lease.next_ready_in_s == pytest.approx(90, abs=1)
    assert frontier.store.hand_on(ticket, next_in_s=lease.next_ready_in_s) == []
    assert frontier.slot(ticket.task_id).due_at - frontier.store.now() == pytest.approx(90, abs=2)


def test_slice_that_must_wait_is_not_sent_at_once(frontier: Frontier) -> None:
    """A slice that knows of a wait (the limiter) has its slot due after it."""
    ticket = frontier.claimed(3)
    assert frontier.store.hand_on(ticket, next_in_s=7.0) == []
    assert frontier.slot(ticket.task_id).due_at - frontier.store.now() == pytest.approx(7, abs=1)


def test_siblings_wake_when_there_is_work_for_them(frontier: Frontier) -> None:
    """A settle that adds much work makes idle siblings due in its own transaction, as many as have work."""
    ticket = frontier.claimed(1, max_parallel=4)
    (seed,) = frontier.take(ticket)
    frontier.store.settle(ticket, [done(seed, links(140))])
    states = [frontier.slot(ticket.task_id, n).state for n in range(4)]
    assert states == ["running", "due", "due", "idle"]
    assert len(frontier.store.dispatch(10)) == 2


def test_little_work_wakes_no_sibling(frontier: Frontier) -> None:
    """What one slice settles in a batch needs no second one."""
    ticket = frontier.claimed(1, max_parallel=4)
    (seed,) = frontier.take(ticket)
    frontier.store.settle(ticket, [done(seed, links(40))])
    assert frontier.slot(ticket.task_id, 1).state == "idle"


def test_failed_task_ends_every_slot(frontier: Frontier) -> None:
    """A task whose spider is missing is failed; what a sibling held is returned and the sibling is fenced."""
    message = frontier.start(3, max_parallel=2)
    ticket = frontier.claim(message).ticket
    frontier.take(ticket, 1)
    frontier.sql("UPDATE spiderpool_slot SET state = 'sent', epoch = 4 WHERE n = 1")
    sibling = frontier.store.claim(ticket.task_id, 1, 4, "w2")
    assert sibling is not None
    held = frontier.take(sibling.ticket, 1)
    frontier.store.fail_task(ticket, EndReason.SPIDER_MISSING, "no spider news")
    assert frontier.status(ticket.task_id) == Status.FAILED
    frontier.check(ticket.task_id)
    with pytest.raises(Fenced):
        frontier.store.settle(sibling.ticket, [done(held[0])])
    with pytest.raises(Fenced):
        frontier.store.fail_task(ticket, EndReason.SPIDER_MISSING)
    row = frontier.sql("SELECT end_reason FROM spiderpool_task")[0]
    assert row.end_reason == "spider_missing"


def test_failing_an_ended_task_changes_nothing(frontier: Frontier) -> None:
    """An ended task stays what it is."""
    message = frontier.start()
    frontier.verb(message.ticket.task_id, Verb.STOP)
    frontier.store.verdict(message.ticket.task_id)
    frontier.store.fail_task(message.ticket.task_id, EndReason.RUNNER_FAILED)
    assert frontier.status(message.ticket.task_id) == Status.STOPPED


def test_unknown_ticket_is_fenced(frontier: Frontier) -> None:
    """A ticket of an epoch that never was is fenced everywhere."""
    ticket = frontier.claimed()
    wrong = Ticket(ticket.task_id, ticket.n, ticket.epoch + 1)
    with pytest.raises(Fenced):
        frontier.lease(wrong)
    with pytest.raises(Fenced):
        frontier.release(wrong, [])
    with pytest.raises(Fenced):
        frontier.store.settle(wrong, [])
