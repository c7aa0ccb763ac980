"""A host's open transaction holds up its own tasks at most: other tasks' slices and the keeper pass it by."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from flask_spiderpool.store import verbs
from flask_spiderpool.store.engine import LOCK_S
from flask_spiderpool.terms import Status, Verb
from tests.store.frontiers import Frontier, again, done, failed, link

SOON_S = LOCK_S - 0.5  #: less than the store waits for a lock


@contextmanager
def open_transaction(f: Frontier) -> Iterator[Session]:
    """A host's transaction that is not committed while the test looks."""
    with Session(f.host) as session:
        yield session
        session.rollback()


def soon(future: Future[Any]) -> Any:
    """Return the result of what waits for nobody."""
    return future.result(SOON_S)


def start(session: Session, *hosts: str, spider: str = "news") -> None:
    """Start a task with a seed on each host, not committed."""
    verbs.create_task(
        session, spider=spider, options={}, seeds=[link("x", host) for host in hosts], queue="q"
    )


def test_settle_of_another_task_that_links_to_the_same_new_host(postgres_frontier: Frontier) -> None:
    """A start that is not committed, on a host that nobody knew, holds up no settle that finds that host."""
    f = postgres_frontier
    ticket = f.claimed(2)
    one, _ = f.take(ticket)
    with open_transaction(f) as session:
        start(session, "new.example")
        settled = soon(f.thread(f.store.settle, ticket, [done(one, [link("y", "new.example")])]))
        assert settled.added == 1
        lease = soon(f.thread(f.lease, ticket))
        assert [request.host_key for request in lease.requests] == ["new.example"]
    f.check(ticket.task_id)


def test_two_starts_on_the_same_new_hosts(postgres_frontier: Frontier) -> None:
    """Two transactions of hosts that start tasks on the same new hosts, the other way round, both go through."""
    f = postgres_frontier
    with open_transaction(f) as first, open_transaction(f) as second:
        start(first, "a.example")
        soon(f.thread(start, second, "b.example", spider="other"))
        soon(f.thread(start, first, "b.example", spider="other"))
        soon(f.thread(start, second, "a.example"))
        first.commit()
        second.commit()
    assert f.value("SELECT count(*) FROM spiderpool_task") == 4


def test_dispatch_of_a_spider_that_is_being_started(postgres_frontier: Frontier) -> None:
    """A first start of a spider that is not committed, or an edit of its row, keeps no slot from being sent."""
    f = postgres_frontier
    messages = [f.start(spider="news") for _ in range(2)]
    f.sql("UPDATE spiderpool_slot SET state = 'due', due_at = 0")
    with open_transaction(f) as session:
        start(session, "new.example", spider="news")
        assert len(soon(f.thread(f.store.dispatch, 1))) == 1
    with open_transaction(f) as session:
        session.execute(sa.text("UPDATE spiderpool_spider SET weight = 2"))
        assert len(soon(f.thread(f.store.dispatch, 1))) == 1
    assert {f.slot(message.ticket.task_id).state for message in messages} == {"sent"}


def test_dispatch_passes_by_the_slot_of_an_open_verb(postgres_frontier: Frontier) -> None:
    """A pause that is not committed keeps its own task's slot, and nobody else's, from being sent."""
    f = postgres_frontier
    held, free = (f.start().ticket.task_id for _ in range(2))
    f.sql("UPDATE spiderpool_slot SET state = 'due', due_at = 0")
    with open_transaction(f) as session:
        verbs.change(session, held, Verb.PAUSE)
        sent = soon(f.thread(f.store.dispatch, 10))
        assert [message.ticket.task_id for message in sent] == [free]
    assert [message.ticket.task_id for message in f.store.dispatch(10)] == [held]


def test_keeper_passes_by_an_open_verb(postgres_frontier: Frontier) -> None:
    """The keeper promotes, judges and sends for the other tasks while a verb of one is not committed."""
    f = postgres_frontier
    tickets = [f.claimed(1) for _ in range(4)]
    # Of each two: a ripe retry without a slot awake, and a task that is complete but not said to be.
    for ticket in tickets[:2]:
        f.store.settle(ticket, [again(request) for request in f.take(ticket)])
    for ticket in tickets[2:]:
        f.store.settle(ticket, [failed(request) for request in f.take(ticket)])
    f.sql("UPDATE spiderpool_slot SET state = 'idle', until = NULL, worker = NULL")
    f.advance(100)
    with open_transaction(f) as session:
        verbs.change(session, tickets[0].task_id, Verb.PAUSE)
        verbs.change(session, tickets[2].task_id, Verb.PAUSE)
        sent = soon(f.thread(f.store.keep, "k"))
        assert [message.ticket.task_id for message in sent] == [tickets[1].task_id]
        assert f.status(tickets[3].task_id) == Status.FAILED
        assert f.status(tickets[2].task_id) == Status.RUNNING
    assert [message.ticket.task_id for message in f.store.keep("k")] == [tickets[0].task_id]
    assert f.status(tickets[2].task_id) == Status.FAILED
