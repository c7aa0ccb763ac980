"""Readers of tasks and documents."""

from __future__ import annotations

import pytest
from sqlalchemy.orm import Session

from flask_spiderpool.errors import UnknownTask
from flask_spiderpool.store import results
from flask_spiderpool.terms import Verb
from tests.store.frontiers import Frontier, done, failed, link, page


def test_documents_of_a_task(frontier: Frontier) -> None:
    """Each document once, in the order of requests, whatever the size of a read; failures are no rows."""
    ticket = frontier.claimed(9)
    taken = sorted(frontier.take(ticket), key=lambda request: request.id)
    outcomes = [
        done(request, page=page(request.url, request.url, title=f"T{number}", text="x", meta={"n": number}))
        for number, request in enumerate(taken[:6])
    ]
    outcomes.append(done(taken[6], page=page(taken[0].url, "another body")))
    outcomes += [failed(taken[7]), done(taken[8], page=None)]
    frontier.store.settle(ticket, outcomes)
    with Session(frontier.host) as session:
        for at_once in (1, 2, 4, 100):
            rows = list(results.iter_documents(session, ticket.task_id, at_once=at_once))
            assert [row.url for row in rows] == [request.url for request in taken[:6]]
        assert [(row.title, row.metadata, row.text) for row in rows][:2] == [
            ("T0", {"n": 0}, "x"),
            ("T1", {"n": 1}, "x"),
        ]
        rest = list(results.iter_documents(session, ticket.task_id, after=taken[3].id))
        assert [row.url for row in rest] == [taken[4].url, taken[5].url, taken[0].url]


def test_version_of_the_task(frontier: Frontier) -> None:
    """A task's documents are those it stored or found unchanged, not what a later task found."""
    tickets = []
    for body in ("one", "one", "two"):
        ticket = frontier.claimed(1)
        (request,) = frontier.take(ticket)
        frontier.store.settle(ticket, [done(request, page=page(request.url, body, text=body))])
        tickets.append(ticket)
    with Session(frontier.host) as session:
        texts = [next(results.iter_documents(session, ticket.task_id)).text for ticket in tickets]
    assert texts[0] == "one"
    assert texts[2] == "two"


def test_lists_and_details(frontier: Frontier) -> None:
    """Tasks newest first, by key; one with its queue; its history oldest first."""
    tickets = []
    for number in range(5):
        tickets.append(frontier.claimed(4, spider="even" if number % 2 == 0 else "odd", owner=f"o{number}"))
        frontier.advance(1)
    frontier.take(tickets[0], 1)
    frontier.verb(tickets[1].task_id, Verb.STOP, by="ann", reason="enough")
    frontier.store.verdict(tickets[1].task_id)
    ids = [ticket.task_id for ticket in reversed(tickets)]
    with Session(frontier.host) as session:
        first = results.list_tasks(session, limit=2)
        assert [task.id for task in first] == ids[:2]
        more = results.list_tasks(session, before=(first[-1].created_at, first[-1].id))
        assert [task.id for task in more] == ids[2:]
        assert [task.id for task in results.list_tasks(session, spider="odd")] == [ids[1], ids[3]]
        assert [task.id for task in results.list_tasks(session, status="stopped")] == [ids[3]]
        assert [task.id for task in results.list_tasks(session, owner="o0")] == [ids[4]]
        detail = results.task_detail(session, tickets[0].task_id)
        assert (detail.queued, detail.leased, detail.task.spider) == (3, 1, "even")
        steps = results.history(session, tickets[1].task_id)
        assert [(step.to_status, step.by, step.note) for step in steps][2:] == [
            ("stopping", "ann", "enough"),
            ("stopped", None, None),
        ]
        with pytest.raises(UnknownTask):
            results.task_detail(session, ids[0].__class__(int=3))


def test_found_on_leads_to_the_page_that_named_it(frontier: Frontier) -> None:
    """A document's row says which request named it first."""
    ticket = frontier.claimed(1)
    (seed,) = frontier.take(ticket)
    frontier.store.settle(ticket, [done(seed, [link("child")])])
    (child,) = frontier.take(ticket)
    frontier.store.settle(ticket, [done(child)])
    with Session(frontier.host) as session:
        rows = list(results.iter_documents(session, ticket.task_id))
    assert [(row.found_on, row.depth) for row in rows] == [(None, 1), (seed.id, 1)]
