"""What a runner that is not sliced has fetched."""

from __future__ import annotations

import pytest

from flask_spiderpool.crawl.request import LeasedRequest, NewRequest, Ticket
from flask_spiderpool.errors import Fenced
from flask_spiderpool.terms import Status
from tests.store.frontiers import Frontier, again, done, failed, link


def fetched(new: NewRequest) -> LeasedRequest:
    """Return a request as a runner knows it: no id, no host id."""
    return LeasedRequest(0, new.host_key, 0, new.url, new.fingerprint, new.depth, new.priority, 0, 0)


@pytest.fixture
def ticket(frontier: Frontier) -> Ticket:
    """Return the slot of a Scrapy run with one seed."""
    return frontier.claimed([link("seed")], options={"runner": "scrapy"})


def test_new_requests_enter_with_their_outcome(frontier: Frontier, ticket: Ticket) -> None:
    """Requests that the frontier never saw are discovered and settled at once; the numbers reconcile."""
    outcomes = [done(fetched(link(number)), items=[{"n": number}]) for number in range(4)]
    outcomes.append(failed(fetched(link("bad", "b.example"))))
    assert frontier.store.record(ticket, outcomes).added == 5
    numbers = frontier.store.numbers(ticket.task_id)
    assert (numbers["done"], numbers["failed"], numbers["discovered"], numbers["items"]) == (4, 1, 6, 4)
    assert (numbers["queued"], numbers["leased"]) == (1, 0)
    frontier.check(ticket.task_id)


def test_seed_gets_its_outcome(frontier: Frontier, ticket: Ticket) -> None:
    """A queued seed is taken from its lane and settled."""
    frontier.store.record(ticket, [done(fetched(link("seed")))])
    numbers = frontier.store.numbers(ticket.task_id)
    assert (numbers["done"], numbers["discovered"], numbers["queued"]) == (1, 1, 0)
    frontier.check(ticket.task_id)
    assert frontier.store.verdict(ticket.task_id) == Status.RUNNING
    frontier.store.hand_on(ticket, next_in_s=None)
    assert frontier.status(ticket.task_id) == Status.FINISHED


def test_outcome_is_kept(frontier: Frontier, ticket: Ticket) -> None:
    """A batch recorded twice (its answer was lost) counts once."""
    outcomes = [done(fetched(link(1))), failed(fetched(link(2)))]
    frontier.store.record(ticket, outcomes)
    assert frontier.store.record(ticket, outcomes).added == 0
    numbers = frontier.store.numbers(ticket.task_id)
    assert (numbers["done"], numbers["failed"]) == (1, 1)
    frontier.check(ticket.task_id)


def test_waiting_retry_is_settled_by_a_later_record(frontier: Frontier, ticket: Ticket) -> None:
    """A request that rests for another attempt may be recorded again, with its own outcome."""
    frontier.store.record(ticket, [again(fetched(link(1)))])
    frontier.check(ticket.task_id)
    frontier.store.record(ticket, [done(fetched(link(1)))])
    assert frontier.store.numbers(ticket.task_id)["done"] == 1
    frontier.check(ticket.task_id)


def test_record_is_fenced(frontier: Frontier, ticket: Ticket) -> None:
    """A runner whose slot is another's records nothing."""
    frontier.advance(21)
    frontier.store.keep("k")
    with pytest.raises(Fenced):
        frontier.store.record(ticket, [done(fetched(link(1)))])
    assert frontier.store.numbers(ticket.task_id)["discovered"] == 1
