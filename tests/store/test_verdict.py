"""The verdict: finished, paused, stopped and failed are said when they are true (PROTOCOL, *Finish, pause, stop*)."""

from __future__ import annotations

import pytest

from flask_spiderpool.errors import Fenced, UnknownTask
from flask_spiderpool.store import settle, verdict
from flask_spiderpool.terms import Status, Verb
from tests.store.frontiers import Frontier, done, failed, links
from tests.store.test_settle import two_slots


def test_finish_race_of_two_last_slices(postgres_frontier: Frontier) -> None:
    """Two slices settle the last two requests at once; the one that commits last finishes the task."""
    f = postgres_frontier
    one, two = two_slots(f, 2)
    (first,), (second,) = f.take(one, 1), f.take(two, 1)
    with f.transaction() as tx:
        settle.settle(tx, f.context, one, [done(first)])
        # The other has nothing of the first's commit in its snapshot when it begins to count.
        other = f.waiting(f.store.settle, two, [done(second)])
    other.result()
    assert f.store.verdict(one.task_id) == Status.FINISHED
    f.check(one.task_id)


def test_verdict_reads_the_slots_after_it_has_the_task(postgres_frontier: Frontier) -> None:
    """A settle that is under way when the verdict begins is waited for and then seen: paused, in one call."""
    f = postgres_frontier
    ticket = f.claimed(3)
    (request,) = f.take(ticket, 1)
    f.verb(ticket.task_id, Verb.PAUSE)
    with f.transaction() as tx:
        settle.settle(tx, f.context, ticket, [done(request)])
        said = f.waiting(f.store.verdict, ticket.task_id)
    assert said.result() == Status.PAUSED


@pytest.mark.parametrize(
    ("verb", "between", "after"),
    [(Verb.PAUSE, Status.PAUSING, Status.PAUSED), (Verb.STOP, Status.STOPPING, Status.STOPPED)],
)
def test_nothing_is_said_while_something_is_leased(
    frontier: Frontier, verb: Verb, between: Status, after: Status
) -> None:
    """Paused and stopped wait for the last leased request."""
    ticket = frontier.claimed(3)
    task_id = ticket.task_id
    one, two = frontier.take(ticket, 2)
    frontier.verb(task_id, verb)
    assert frontier.store.verdict(task_id) == between
    frontier.store.settle(ticket, [done(one)])
    assert frontier.store.verdict(task_id) == between
    frontier.release(ticket, [two])
    assert frontier.store.verdict(task_id) == after
    assert frontier.history(task_id) == ["pending", "running", between.value, after.value]
    ended = frontier.value("SELECT ended_at FROM spiderpool_task")
    assert (ended is not None) == (after is Status.STOPPED)


def test_stop_while_leased_by_a_dead_worker(frontier: Frontier) -> None:
    """With no worker alive the verdict itself returns what has expired, and says stopped."""
    ticket = frontier.claimed(3)
    frontier.take(ticket, 2)
    frontier.verb(ticket.task_id, Verb.STOP)
    frontier.advance(19)
    assert frontier.store.verdict(ticket.task_id) == Status.STOPPING
    frontier.advance(2)
    assert frontier.store.verdict(ticket.task_id) == Status.STOPPED
    assert frontier.slot(ticket.task_id).state == "idle"
    frontier.check(ticket.task_id)
    with pytest.raises(Fenced):
        frontier.lease(ticket)


def test_verdict_of_a_running_task_changes_nothing(frontier: Frontier) -> None:
    """A task with work left, within its limits, stays as it is."""
    message = frontier.start(3, max_pages=5, max_time_s=50)
    assert frontier.store.verdict(message.ticket.task_id) == Status.PENDING
    ticket = frontier.claim(message).ticket
    frontier.take(ticket, 1)
    assert frontier.store.verdict(ticket.task_id) == Status.RUNNING


def test_ended_and_paused_tasks_are_left_alone(frontier: Frontier) -> None:
    """A verdict on an ended or paused task says what it is and writes no history."""
    message = frontier.start(3)
    task_id = message.ticket.task_id
    for verb, status in ((Verb.PAUSE, Status.PAUSED), (Verb.STOP, Status.STOPPED)):
        frontier.verb(task_id, verb)
        for _ in range(2):
            assert frontier.store.verdict(task_id) == status
    assert frontier.history(task_id) == ["pending", "pausing", "paused", "stopping", "stopped"]


def test_task_without_seeds_is_finished(frontier: Frontier) -> None:
    """A task that has nothing to do is finished at once."""
    message = frontier.start([])
    assert frontier.store.verdict(message.ticket.task_id) == Status.FINISHED


def test_runner_that_is_not_sliced_is_complete_when_it_lets_go(frontier: Frontier) -> None:
    """A Scrapy run finds its requests as it goes: nothing open does not mean finished while it holds its slot."""
    ticket = frontier.claimed([], options={"runner": "scrapy"})
    assert frontier.store.verdict(ticket.task_id) == Status.RUNNING
    frontier.store.hand_on(ticket, next_in_s=None)
    assert frontier.status(ticket.task_id) == Status.FINISHED


def test_limit_waits_for_what_is_under_way(frontier: Frontier) -> None:
    """A task at its page limit is finished only when no slot holds anything, and the reason names the limit."""
    one, two = two_slots(frontier, 5)
    frontier.sql("UPDATE spiderpool_task SET max_pages = 2")
    (first,), (second,) = frontier.take(one, 1), frontier.take(two, 1)
    frontier.store.settle(one, [done(first)])
    frontier.sql("UPDATE spiderpool_task SET max_pages = 1")
    assert frontier.store.verdict(one.task_id) == Status.RUNNING
    frontier.store.settle(two, [failed(second)])
    assert frontier.store.verdict(one.task_id) == Status.FINISHED
    assert frontier.store.numbers(one.task_id)["end_reason"] == "max_pages"


def test_complete_wins_over_the_limit(frontier: Frontier) -> None:
    """A task that is done with everything is complete, also when its last page was its limit's last."""
    ticket = frontier.claimed(1, max_pages=1)
    frontier.store.settle(ticket, [done(*frontier.take(ticket))])
    frontier.store.verdict(ticket.task_id)
    assert frontier.store.numbers(ticket.task_id)["end_reason"] == "complete"


def test_unknown_task(frontier: Frontier) -> None:
    """A verdict on no task is an error of the caller."""
    ticket = frontier.claimed()
    with pytest.raises(UnknownTask):
        frontier.store.verdict(ticket.task_id.__class__(int=0))


def test_verdict_and_hand_on_do_not_deadlock(postgres_frontier: Frontier) -> None:
    """A verdict locks the task and reads slots; a slice locks its slot, then the task: neither waits for the other."""
    f = postgres_frontier
    ticket = f.claimed(links(3))
    with f.transaction() as tx:
        verdict.verdict(tx, ticket.task_id)
        handed = f.waiting(f.store.hand_on, ticket, next_in_s=None)
        # Would wait for ever if it wanted the slot's lock.
        assert verdict.verdict(tx, ticket.task_id) == Status.RUNNING
    assert len(handed.result()) == 1
