"""Settle: everything that a batch came to, once (PROTOCOL, *Settle*)."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime
from typing import Any

import pytest

from flask_spiderpool.crawl.request import Outcome, Settled, Ticket, Verdict
from flask_spiderpool.errors import Fenced, Unavailable
from flask_spiderpool.store import Store, requests, settle
from flask_spiderpool.terms import RequestState, Status
from tests.store.frontiers import Frontier, again, done, failed, key_of, link, links, page


def two_slots(frontier: Frontier, seeds: int = 2) -> tuple[Ticket, Ticket]:
    """Return tickets of two slots of one task, each running."""
    message = frontier.start(seeds, max_parallel=2)
    one = frontier.claim(message).ticket
    frontier.sql("UPDATE spiderpool_slot SET state = 'sent', epoch = 1 WHERE n = 1")
    two = frontier.store.claim(one.task_id, 1, 1, "w2")
    assert two is not None
    return one, two.ticket


def test_done_with_its_page(frontier: Frontier) -> None:
    """A page is stored as a document and its first version, and the request points to the document."""
    ticket = frontier.claimed(1)
    (request,) = frontier.take(ticket)
    fetched = datetime(2030, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
    body = page(
        "http://a.example/final",
        "hello",
        title="Title",
        text="Text",
        markdown="# Text",
        meta={"author": "A", "tags": ["x"]},
        etag='"e"',
        last_modified="Mon, 01 Jan 2030 00:00:00 GMT",
        fetched_at=fetched,
    )
    assert frontier.store.settle(ticket, [done(request, page=body, elapsed_ms=12)]) == Settled(0, "run")
    (stored,) = frontier.sql("SELECT * FROM spiderpool_page")
    (document,) = frontier.sql("SELECT * FROM spiderpool_document")
    row = frontier.request(ticket.task_id, request.fingerprint)
    assert (stored.url, stored.title, stored.text, stored.markdown) == (body.url, "Title", "Text", "# Text")
    assert (stored.etag, stored.last_modified, stored.body_bytes) == (body.etag, body.last_modified, 5)
    meta = stored.meta if isinstance(stored.meta, dict) else json.loads(stored.meta)
    assert meta == body.meta
    assert str(stored.fetched_at)[:26] == "2030-01-02 03:04:05.678901"
    assert (document.page_id, bytes(document.content_hash), document.url) == (
        stored.id,
        key_of("hello"),
        body.url,
    )
    assert (document.times_seen, document.times_changed) == (1, 0)
    assert (row.state, row.document_id, row.status_code, row.elapsed_ms) == (
        RequestState.DONE,
        document.id,
        200,
        12,
    )
    assert row.settled_at == pytest.approx(frontier.store.now(), abs=5)
    numbers = frontier.store.numbers(ticket.task_id)
    assert (numbers["done"], numbers["pages"], numbers["unchanged"], numbers["wire_bytes"]) == (1, 1, 0, 10)


def test_unchanged_document_stores_no_page(frontier: Frontier) -> None:
    """A second task that finds the document as it was counts it, and stores nothing."""
    for expected in ((1, 0), (0, 1)):
        ticket = frontier.claimed(1)
        frontier.store.settle(ticket, [done(*frontier.take(ticket))])
        numbers = frontier.store.numbers(ticket.task_id)
        assert (numbers["pages"], numbers["unchanged"]) == expected
        assert numbers["done"] == 1
    assert frontier.value("SELECT count(*) FROM spiderpool_page") == 1
    assert frontier.sql("SELECT times_seen, times_changed FROM spiderpool_document") == [(2, 0)]


def test_changed_document_has_a_new_version(frontier: Frontier) -> None:
    """A later task that finds another body stores a version, and the document points to it."""
    for body in ("one", "two"):
        ticket = frontier.claimed(1)
        (request,) = frontier.take(ticket)
        frontier.store.settle(ticket, [done(request, page=page(request.url, body))])
        assert frontier.store.numbers(ticket.task_id)["pages"] == 1
    assert frontier.value("SELECT count(*) FROM spiderpool_page") == 2
    (document,) = frontier.sql("SELECT * FROM spiderpool_document")
    assert document.page_id == frontier.value("SELECT max(id) FROM spiderpool_page")
    assert bytes(document.content_hash) == key_of("two")
    assert document.times_changed == 1


def test_documents_of_two_spiders_are_two(frontier: Frontier) -> None:
    """A document belongs to a spider."""
    for spider in ("one", "two"):
        ticket = frontier.claimed(1, spider=spider)
        frontier.store.settle(ticket, [done(*frontier.take(ticket))])
        assert frontier.store.numbers(ticket.task_id)["pages"] == 1
    assert frontier.value("SELECT count(*) FROM spiderpool_document") == 2


@pytest.mark.parametrize("together", [True, False])
@pytest.mark.parametrize("bodies", [("same", "same"), ("one", "two")])
def test_two_requests_of_one_document_store_it_once(
    frontier: Frontier, bodies: tuple[str, str], together: bool
) -> None:
    """Two requests of a task that end at one document: both done, both point to it, one page, one unchanged."""
    ticket = frontier.claimed(2)
    outcomes = [
        done(request, page=page("http://a.example/same", body))
        for request, body in zip(frontier.take(ticket), bodies, strict=True)
    ]
    if together:
        frontier.store.settle(ticket, outcomes)
    else:
        for outcome in outcomes:
            frontier.store.settle(ticket, [outcome])
    numbers = frontier.store.numbers(ticket.task_id)
    assert (numbers["done"], numbers["pages"], numbers["unchanged"]) == (2, 1, 1)
    assert frontier.value("SELECT count(*) FROM spiderpool_page") == 1
    assert frontier.value("SELECT count(DISTINCT document_id) FROM spiderpool_request") == 1
    assert frontier.value("SELECT times_seen FROM spiderpool_document") == 2


def test_a_document_is_stored_once_though_another_task_has_changed_it(frontier: Frontier) -> None:
    """A second request of a task for its document stores no page, whatever a task beside it has stored since."""
    one, two = frontier.claimed(2), frontier.claimed(1)
    first, second = frontier.take(one)
    (other,) = frontier.take(two)
    for ticket, request, body in ((one, first, "a"), (two, other, "b"), (one, second, "c")):
        frontier.store.settle(ticket, [done(request, page=page("http://a.example/same", body))])
    numbers = frontier.store.numbers(one.task_id)
    assert (numbers["done"], numbers["pages"], numbers["unchanged"]) == (2, 1, 1)
    assert frontier.store.numbers(two.task_id)["pages"] == 1
    assert frontier.value("SELECT count(*) FROM spiderpool_page") == 2


def test_two_tasks_on_one_new_document(postgres_frontier: Frontier) -> None:
    """Two tasks of a spider that find a new document at once: one waits, and stores it again only if it differs."""
    f = postgres_frontier
    one, two = f.claimed(1), f.claimed(1)
    (first,), (second,) = f.take(one), f.take(two)
    with f.transaction() as tx:
        settle.settle(tx, f.context, one, [done(first)])
        other = f.waiting(f.store.settle, two, [done(second)])
    other.result()
    assert f.value("SELECT count(*) FROM spiderpool_page") == 1
    assert f.store.numbers(two.task_id)["unchanged"] == 1


def test_failed_and_skipped(frontier: Frontier) -> None:
    """What failed or was skipped keeps its reason and what was said."""
    ticket = frontier.claimed(2)
    one, two = frontier.take(ticket)
    outcomes = [
        Outcome(one, Verdict.FAILED, reason="http_404", message="Not Found", status_code=404),
        Outcome(two, Verdict.SKIPPED, reason="robots"),
    ]
    frontier.store.settle(ticket, outcomes)
    row = frontier.request(ticket.task_id, one.fingerprint)
    assert (row.state, row.reason, row.message, row.status_code) == (4, "http_404", "Not Found", 404)
    row = frontier.request(ticket.task_id, two.fingerprint)
    assert (row.state, row.reason) == (5, "robots")
    frontier.check(ticket.task_id)
    numbers = frontier.store.numbers(ticket.task_id)
    assert (numbers["failed"], numbers["skipped"], numbers["seeds_failed"]) == (1, 1, 1)


def test_done_without_a_page(frontier: Frontier) -> None:
    """A request that is done with nothing to store counts as done."""
    ticket = frontier.claimed(1)
    frontier.store.settle(ticket, [done(*frontier.take(ticket), page=None)])
    assert frontier.store.numbers(ticket.task_id)["done"] == 1
    assert frontier.value("SELECT count(*) FROM spiderpool_document") == 0


def test_backoff_doubles_with_jitter(frontier: Frontier) -> None:
    """Another attempt waits 4 s x 2^n +- 50 %, uncounted in the lane, until the attempts are used up."""
    ticket = frontier.claimed(1, options={"attempts": 3})
    for pause_s in (4.0, 8.0):
        (request,) = frontier.take(ticket)
        frontier.store.settle(ticket, [again(request)])
        row = frontier.request(ticket.task_id, request.fingerprint)
        assert row.state == RequestState.WAITING
        assert pause_s * 0.5 - 0.1 <= row.ready_at - frontier.store.now() + 0.1 <= pause_s * 1.5 + 0.2
        frontier.check(ticket.task_id)
        assert frontier.take(ticket) == []
        frontier.advance(pause_s * 1.5 + 1)
    (request,) = frontier.take(ticket)
    assert request.attempts == 2
    frontier.store.settle(ticket, [again(request)])
    row = frontier.request(ticket.task_id, request.fingerprint)
    assert (row.state, row.reason, row.attempts) == (RequestState.FAILED, "timeout_total", 3)
    numbers = frontier.store.numbers(ticket.task_id)
    assert (numbers["failed"], numbers["retries"]) == (1, 2)


def test_retry_after_is_obeyed(frontier: Frontier) -> None:
    """A site's Retry-After is the least pause."""
    ticket = frontier.claimed(1)
    (request,) = frontier.take(ticket)
    frontier.store.settle(ticket, [again(request, retry_after_s=500)])
    row = frontier.request(ticket.task_id, request.fingerprint)
    assert row.ready_at - frontier.store.now() == pytest.approx(500, abs=2)


def test_settings_of_retries_come_from_the_pool(frontier: Frontier) -> None:
    """A task without an opinion takes the pool's attempts."""
    ticket = frontier.claimed(1)
    for _ in range(frontier.store.settings.attempts):
        frontier.advance(100)
        (request,) = frontier.take(ticket)
        frontier.store.settle(ticket, [again(request)])
    assert frontier.store.numbers(ticket.task_id)["failed"] == 1


def test_release_by_outcome_is_uncounted(frontier: Frontier) -> None:
    """A cancelled request is queued again, with no attempt counted."""
    ticket = frontier.claimed(1)
    (request,) = frontier.take(ticket)
    frontier.store.settle(ticket, [Outcome(request, Verdict.RELEASE, reason="cancelled")])
    frontier.check(ticket.task_id)
    (request,) = frontier.take(ticket)
    assert request.attempts == 0


def test_links_enter_once(frontier: Frontier) -> None:
    """Links are counted when they really entered; the request that named one first, and the least depth, stay."""
    ticket = frontier.claimed(2)
    one, two = frontier.take(ticket)
    deep, shallow = link("x", depth=5), link("x", depth=2)
    settled = frontier.store.settle(ticket, [done(one, [deep, link(0)]), done(two, [shallow, link("y")])])
    assert settled.added == 2
    row = frontier.request(ticket.task_id, deep.fingerprint)
    assert (row.depth, row.found_on, row.is_seed) == (2, two.id, False)
    again_seen = frontier.take(ticket)
    assert frontier.store.settle(ticket, [done(again_seen[0], [deep])]).added == 0
    frontier.check(ticket.task_id)
    assert frontier.store.numbers(ticket.task_id)["discovered"] == 4


def test_links_enter_in_the_order_of_their_fingerprints(frontier: Frontier) -> None:
    """Unsorted inserts of two settles wait for each other; sorted ones cannot."""
    ticket = frontier.claimed(1)
    (seed,) = frontier.take(ticket)
    frontier.store.settle(ticket, [done(seed, links(200, start=1))])
    rows = frontier.sql("SELECT fingerprint FROM spiderpool_request WHERE found_on IS NOT NULL ORDER BY id")
    keys = [bytes(row[0]) for row in rows]
    if frontier.host.dialect.name == "postgresql":
        assert keys == sorted(keys)
    assert len(keys) == 200


def test_settles_with_links_in_opposite_orders_do_not_deadlock(postgres_frontier: Frontier) -> None:
    """Two slots that name the same links and hosts in opposite orders: neither is ever a deadlock's victim."""
    f = postgres_frontier
    one, two = two_slots(f, 60)
    # A store that repeats nothing: a deadlock would be raised.
    stores = [Store(f.another_store()._transactions.engine, f.store.settings, retry_s=0) for _ in range(2)]
    mine = [f.take(one, 30), f.take(two, 30)]
    for number in range(30):
        names = [link(f"{number}/{k}", f"h{k}.example") for k in range(60)]
        futures = [
            f.thread(stores[0].settle, one, [done(mine[0][number], names)]),
            f.thread(stores[1].settle, two, [done(mine[1][number], names[::-1])]),
        ]
        added = [future.result(30).added for future in futures]
        assert sum(added) == 60
    f.check(one.task_id)


def test_items_and_logs(frontier: Frontier) -> None:
    """Items point to request and document and are counted; log lines keep their order and level."""
    ticket = frontier.claimed(1)
    (request,) = frontier.take(ticket)
    items = [{"name": "Äpfel\x00", "price": 1.5, "n": None}, {"list": [1, {"a": "\ud800"}]}]
    logs = [("WARNING", "first"), ("info", "second\x00"), ("odd", "third")]
    frontier.store.settle(ticket, [done(request, items=items, logs=logs)])
    rows = frontier.sql("SELECT * FROM spiderpool_item ORDER BY id")
    data = [row.data if isinstance(row.data, dict) else json.loads(row.data) for row in rows]
    assert data == [{"name": "Äpfel\ufffd", "price": 1.5, "n": None}, {"list": [1, {"a": "\ufffd"}]}]
    assert rows[0].document_id == frontier.value("SELECT id FROM spiderpool_document")
    lines = frontier.sql("SELECT level, message FROM spiderpool_log ORDER BY id")
    assert lines == [(logging.WARNING, "first"), (logging.INFO, "second\ufffd"), (logging.INFO, "third")]
    assert frontier.store.numbers(ticket.task_id)["items"] == 2


def test_text_is_cleaned(frontier: Frontier) -> None:
    """NUL and lone surrogates, which no database keeps, are replaced wherever a page may carry them."""
    ticket = frontier.claimed(1)
    (request,) = frontier.take(ticket)
    bad = "a\x00b\udfffc"
    body = page(
        "http://a.example/\x00\n\ud834", title=bad, text=bad, markdown=bad, meta={bad: [bad]}, etag=bad
    )
    new = [link(f"new\x00\n{bad}")]
    outcome = done(request, new, page=body, message=bad)
    assert frontier.store.settle(ticket, [outcome]).added == 1
    (row,) = frontier.sql("SELECT title, text, markdown, url, etag FROM spiderpool_page")
    clean = "a\ufffdb\ufffdc"
    assert tuple(row) == (clean, clean, clean, "http://a.example/\ufffd%0A\ufffd", clean)
    frontier.check(ticket.task_id)


class Unstorable:
    """Nothing that JSON can hold."""


@pytest.mark.parametrize(
    "fault",
    [
        {"items": [{"x": Unstorable()}]},
        {"items": [{"x": float("nan")}]},
        {"page": page("http://a.example/x", meta={"x": Unstorable()})},
        {"elapsed_ms": 2**80},
        {"links": [link("bad", depth=2**80)]},
        {"links": [link("bad", payload={"x": Unstorable()})]},
    ],
)
def test_one_bad_page_does_not_sink_the_batch(frontier: Frontier, fault: dict[str, Any]) -> None:
    """The page whose data cannot be stored becomes failed(store_error); all links are kept that can be."""
    ticket = frontier.claimed(4)
    outcomes = [done(request, [link(f"new/{request.id}")]) for request in frontier.take(ticket)]
    for name, value in fault.items():
        setattr(outcomes[1], name, value)
    settled = frontier.store.settle(ticket, outcomes)
    assert (settled.added, settled.repeated) == (3 if "links" in fault else 4, False)
    numbers = frontier.store.numbers(ticket.task_id)
    assert (numbers["done"], numbers["failed"], numbers["pages"], numbers["leased"]) == (3, 1, 3, 0)
    row = frontier.request(ticket.task_id, outcomes[1].request.fingerprint)
    assert (row.state, row.reason) == (RequestState.FAILED, "store_error")
    frontier.check(ticket.task_id)


def test_fault_of_the_code_is_not_blamed_on_pages(frontier: Frontier) -> None:
    """A table that is missing is no page's fault: it is raised, and nothing is failed."""
    ticket = frontier.claimed(1)
    (request,) = frontier.take(ticket)
    frontier.sql("DROP TABLE spiderpool_item")
    with pytest.raises(Exception, match="spiderpool_item"):
        frontier.store.settle(ticket, [done(request, items=[{"a": 1}])])
    assert frontier.store.numbers(ticket.task_id)["leased"] == 1


def test_lost_answer(frontier: Frontier) -> None:
    """A settle repeated because its answer was lost finds nothing leased: success, and everything counted once."""
    ticket = frontier.claimed(3)
    outcomes = [done(request, [link(f"new/{request.id}")]) for request in frontier.take(ticket)]
    assert frontier.store.settle(ticket, outcomes) == Settled(3, "run")
    before = frontier.store.numbers(ticket.task_id)
    assert frontier.store.settle(ticket, outcomes) == Settled(0, "run", repeated=True)
    assert frontier.store.numbers(ticket.task_id) == before
    frontier.check(ticket.task_id)


def test_partly_settled_batch(frontier: Frontier) -> None:
    """Of a batch that was settled in part (page by page, then the worker lost its database) the rest is settled."""
    ticket = frontier.claimed(3)
    outcomes = [done(request) for request in frontier.take(ticket)]
    frontier.store.settle(ticket, outcomes[:1])
    assert frontier.store.settle(ticket, outcomes) == Settled(0, "run")
    assert frontier.store.numbers(ticket.task_id)["done"] == 3


def test_one_outcome_twice_in_a_batch(frontier: Frontier) -> None:
    """A request that stands twice in a batch is settled once."""
    ticket = frontier.claimed(1)
    (request,) = frontier.take(ticket)
    frontier.store.settle(ticket, [done(request), done(request)])
    frontier.check(ticket.task_id)


def test_fenced_settle_writes_nothing(frontier: Frontier) -> None:
    """A slice that was away too long writes nothing, although its requests are leased again by another."""
    ticket = frontier.claimed(2)
    taken = frontier.take(ticket)
    frontier.advance(21)
    (message,) = frontier.store.keep("k")
    newer = frontier.claim(message, "w2").ticket
    held = []
    while more := frontier.take(newer):
        held += more
    assert {request.id for request in held} <= {request.id for request in taken}
    with pytest.raises(Fenced):
        frontier.store.settle(ticket, [done(request, links(5, "late.example")) for request in taken])
    assert frontier.value("SELECT count(*) FROM spiderpool_page") == 0
    frontier.check(ticket.task_id)
    assert frontier.store.numbers(ticket.task_id)["leased"] == len(held)


def test_settle_of_requests_that_are_anothers(frontier: Frontier) -> None:
    """A ticket settles its own requests only."""
    one, two = two_slots(frontier)
    (request,) = frontier.take(one, 1)
    assert frontier.store.settle(two, [done(request)]).repeated
    assert frontier.store.numbers(one.task_id)["done"] == 0


def test_desired_comes_back_with_a_settle(frontier: Frontier) -> None:
    """A slice learns from its settle that the task is not wanted any more."""
    ticket = frontier.claimed(2)
    (request,) = frontier.take(ticket, 1)
    frontier.sql("UPDATE spiderpool_task SET desired = 'pause', status = 'pausing'")
    assert frontier.store.settle(ticket, [done(request)]).desired == "pause"


def test_every_seed_failed(frontier: Frontier) -> None:
    """A task all of whose seeds failed has failed; one whose last seed was done is finished."""
    for last, status in ((failed, Status.FAILED), (done, Status.FINISHED)):
        ticket = frontier.claimed(2)
        one, two = frontier.take(ticket)
        frontier.store.settle(ticket, [failed(one), last(two)])
        frontier.store.hand_on(ticket, next_in_s=None)
        assert frontier.status(ticket.task_id) == status


def test_database_that_stays_away(postgres_frontier: Frontier) -> None:
    """A database that does not answer is Unavailable after the store's patience, and nothing else."""
    store = Store.open("postgresql+psycopg://nobody@127.0.0.1:1/none", postgres_frontier.store.settings)
    store._transactions._retry_s = 0.05
    with pytest.raises(Unavailable, match="cannot be used just now"):
        store.now()
    store.close()


def test_inserts_of_one_transaction_are_seen_by_the_next(postgres_frontier: Frontier) -> None:
    """A link that a sibling's open transaction has inserted is waited for, and not counted twice."""
    f = postgres_frontier
    one, two = two_slots(f)
    (request,) = f.take(two, 1)
    with f.transaction() as tx:
        new = requests.insert(tx, one.task_id, [requests.Found(link("n", "n.example"), None)])
        assert sum(new.values()) == 1
        other = f.waiting(f.store.settle, two, [done(request, [link("n", "n.example")])])
    assert other.result().added == 0
