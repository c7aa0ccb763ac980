"""A task's whole way, from start to finished."""

from __future__ import annotations

from flask_spiderpool.crawl.request import Settled
from flask_spiderpool.terms import Status, Verb
from tests.store.frontiers import Frontier, again, done, failed, link, links


def test_task_runs_to_its_end(frontier: Frontier) -> None:
    """Claimed, leased, settled with links, handed on, claimed again, finished; the numbers reconcile throughout."""
    message = frontier.start([link("seed")])
    task_id = message.ticket.task_id
    assert frontier.status(task_id) == Status.PENDING
    ticket = frontier.claim(message).ticket
    assert frontier.status(task_id) == Status.RUNNING
    (seed,) = frontier.take(ticket)
    assert seed.is_seed
    frontier.check(task_id)
    settled = frontier.store.settle(ticket, [done(seed, links(10) + links(5, "b.example"))])
    assert settled == Settled(15, "run")
    frontier.check(task_id)
    first = frontier.take(ticket, 8, default=4)
    assert [request.host_key for request in first[:2]] in (
        ["a.example", "b.example"],
        ["b.example", "a.example"],
    )
    frontier.store.settle(ticket, [done(first[0]), failed(first[1]), again(first[2])])
    frontier.release(ticket, first[3:5])
    frontier.check(task_id)
    (message,) = frontier.store.hand_on(ticket, next_in_s=None)
    frontier.check(task_id)
    ticket = frontier.claim(message).ticket
    rest = frontier.take(ticket)
    assert len(rest) == 12
    frontier.store.settle(ticket, [done(request) for request in rest])
    assert frontier.store.hand_on(ticket, next_in_s=None) == []
    frontier.advance(10)
    (message,) = frontier.store.keep("k")
    ticket = frontier.claim(message).ticket
    (last,) = frontier.take(ticket)
    assert last.attempts == 1
    frontier.store.settle(ticket, [done(last)])
    assert frontier.store.hand_on(ticket, next_in_s=None) == []
    assert frontier.status(task_id) == Status.FINISHED
    frontier.check(task_id)
    assert frontier.history(task_id) == ["pending", "running", "finished"]
    numbers = frontier.store.numbers(task_id)
    assert (numbers["done"], numbers["failed"], numbers["discovered"], numbers["pages"]) == (15, 1, 16, 15)


def test_pause_resume_stop_retry(frontier: Frontier) -> None:
    """A task is paused, resumed, stopped and retried, each said when it is true."""
    ticket = frontier.claimed(5)
    task_id = ticket.task_id
    requests = frontier.take(ticket, 2)
    frontier.verb(task_id, Verb.PAUSE, by="me")
    assert frontier.store.verdict(task_id) == Status.PAUSING
    assert frontier.lease(ticket).desired == "pause"
    frontier.store.settle(ticket, [done(request) for request in requests])
    frontier.store.hand_on(ticket, next_in_s=None)
    assert frontier.status(task_id) == Status.PAUSED
    (message,) = frontier.verb(task_id, Verb.RESUME)
    assert frontier.status(task_id) == Status.RUNNING
    frontier.verb(task_id, Verb.STOP)
    assert frontier.store.claim(*message.ticket, "w") is None
    assert frontier.store.verdict(task_id) == Status.STOPPED
    (message,) = frontier.verb(task_id, Verb.RETRY)
    ticket = frontier.claim(message).ticket
    assert len(frontier.take(ticket)) == 3
    frontier.check(task_id)
