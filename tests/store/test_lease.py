"""Lease: hosts in turn, limits kept, what is parked costs nothing (PROTOCOL, *Lease*)."""

from __future__ import annotations

import pytest

from flask_spiderpool.crawl.request import Lease
from flask_spiderpool.errors import Fenced
from flask_spiderpool.store import expire, lease
from flask_spiderpool.store.hosts import host_id
from flask_spiderpool.store.sql import Statement
from flask_spiderpool.terms import Status, Verb
from tests.store.frontiers import Frontier, done, link, links


def hosts_of(taken: Lease) -> list[str]:
    """Return the hosts of what was taken, in order."""
    return [request.host_key for request in taken.requests]


def test_hosts_take_turns(frontier: Frontier) -> None:
    """Each host gives up to its cap, the best of each first; the host served last comes last."""
    ticket = frontier.claimed(links(6, "a.example") + links(6, "b.example"))
    first = frontier.lease(ticket, 3, default=2)
    assert sorted(hosts_of(first)) in (
        ["a.example", "a.example", "b.example"],
        ["a.example", "b.example", "b.example"],
    )
    assert hosts_of(first)[0] != hosts_of(first)[1]
    served = []
    for _ in range(4):
        frontier.advance(1)
        served += hosts_of(frontier.lease(ticket, 1, default=1))
    assert served[0] != served[1] != served[2] != served[3]
    frontier.check(ticket.task_id)


def test_best_priority_first(frontier: Frontier) -> None:
    """Within a host the smaller priority goes first, then the older request."""
    seeds = [link(name, priority=priority) for name, priority in (("x", 5), ("y", -1), ("z", 5))]
    ticket = frontier.claimed(seeds)
    names = [request.url.rsplit("/", 1)[1] for request in frontier.take(ticket)]
    assert names[0] == "y"
    ids = [request.id for request in frontier.take(ticket)]
    assert ids == []


def test_better_priority_is_found_behind_the_cursor(frontier: Frontier) -> None:
    """A request that enters with a better priority than those taken before is not lost behind the cursor."""
    ticket = frontier.claimed([link(name) for name in range(60)])
    first = frontier.take(ticket, 5)
    frontier.store.settle(ticket, [done(first[0], [link("urgent", priority=-9)])])
    rest = [request.url for request in frontier.take(ticket, 100)]
    assert len(rest) == 56
    assert "http://a.example/urgent" in rest


def test_released_request_is_found_again(frontier: Frontier) -> None:
    """A request given back stands behind the lane's cursor and is leased again all the same."""
    ticket = frontier.claimed(30)
    taken = frontier.take(ticket, 10)
    frontier.release(ticket, taken[:3])
    rest = {request.id for request in frontier.take(ticket, 100)}
    assert rest >= {request.id for request in taken[:3]}
    assert len(rest) == 23
    frontier.check(ticket.task_id)


def test_dead_rows_at_the_head_are_not_read_again(postgres_frontier: Frontier) -> None:
    """While a long snapshot (a dump) keeps dead rows, a lease begins behind what its slice took before."""
    f = postgres_frontier
    ticket = f.claimed(700)
    read = Statement("SELECT pg_stat_get_xact_tuples_returned('ix_spiderpool_request_queued'::regclass)")
    dump = f.host.execution_options(isolation_level="REPEATABLE READ")
    with dump.begin() as connection:
        connection.exec_driver_sql("SELECT count(*) FROM spiderpool_request")
        for _ in range(10):
            assert len(f.take(ticket, 50)) == 50
        with f.transaction() as tx:
            taken = lease.lease(tx, f.context, ticket, lease.Ask(50, {}, 50, False, {}))
            assert len(taken.requests) == 50
            row = tx.one(read)
    assert row is not None
    assert row[0] < 150


def test_caps_of_hosts(frontier: Frontier) -> None:
    """A host named in per_host gives at most its cap, 0 nothing; the others the default."""
    ticket = frontier.claimed(links(9, "a.example") + links(9, "b.example") + links(9, "c.example"))
    caps = {host_id("a.example"): 1, host_id("b.example"): 0}
    taken = frontier.lease(ticket, 50, per_host=caps, default=4)
    assert sorted(hosts_of(taken)) == ["a.example"] + ["c.example"] * 4


def test_rest_is_written_first(frontier: Frontier) -> None:
    """A host told to rest gives nothing until its time, and a longer rest is kept."""
    ticket = frontier.claimed(links(3, "a.example") + links(3, "b.example"))
    a = host_id("a.example")
    assert set(hosts_of(frontier.lease(ticket, 1, rest={a: 30.0}))) == {"b.example"}
    frontier.lease(ticket, 0, rest={a: 5.0})
    frontier.advance(10)
    assert set(hosts_of(frontier.lease(ticket))) == {"b.example"}
    frontier.advance(21)
    assert hosts_of(frontier.lease(ticket)) == ["a.example"] * 3


def test_rest_is_kept_when_nothing_is_leased(frontier: Frontier) -> None:
    """A rest told by a slice whose task is paused or at its limit is written all the same."""
    ticket = frontier.claimed(links(3), max_pages=1)
    (request,) = frontier.take(ticket)
    assert frontier.lease(ticket, rest={request.host_id: 50.0}).requests == []
    ready_at = frontier.value("SELECT ready_at FROM spiderpool_lane")
    assert ready_at - frontier.store.now() == pytest.approx(50, abs=2)


def test_parked_hosts_hide_nothing(frontier: Frontier) -> None:
    """Lanes that give nothing (all suspects) do not stand before the others for ever."""
    crowd = [link("x", f"h{number}.example") for number in range(60)]
    ticket = frontier.claimed([*crowd, link("good", "z.example")])
    frontier.sql("UPDATE spiderpool_request SET deaths = 1 WHERE url NOT LIKE '%good'")
    frontier.sql("UPDATE spiderpool_lane SET ready_at = 0")
    frontier.sql("UPDATE spiderpool_lane SET ready_at = 1 WHERE host_id = :h", h=host_id("z.example"))
    assert hosts_of(frontier.lease(ticket, suspects=False)) == ["z.example"]
    frontier.check(ticket.task_id)


def test_one_suspect_at_a_time(frontier: Frontier) -> None:
    """A lease takes no suspect when told so, and else exactly one, beside innocents."""
    ticket = frontier.claimed(10)
    frontier.sql("UPDATE spiderpool_request SET deaths = 1 WHERE id % 2 = 0")
    assert all(request.deaths == 0 for request in frontier.take(ticket, 3, suspects=False))
    taken = frontier.take(ticket, 100, suspects=True)
    assert sorted(request.deaths for request in taken) == [0, 0, 1]
    assert [request.deaths for request in frontier.take(ticket, 100, suspects=True)] == [1]
    assert frontier.take(ticket, 100, suspects=False) == []
    frontier.check(ticket.task_id)


def test_suspect_with_the_fewest_deaths_comes_first(frontier: Frontier) -> None:
    """Workers that are killed again and again from outside do not hit the same suspect each time."""
    ticket = frontier.claimed(3)
    frontier.sql("UPDATE spiderpool_request SET deaths = 1")
    frontier.sql(
        "UPDATE spiderpool_request SET deaths = 2 WHERE id = (SELECT min(id) FROM spiderpool_request)"
    )
    assert [frontier.take(ticket, 1, suspects=True)[0].deaths for _ in range(3)] == [1, 1, 2]


def test_resting_host_gives_no_suspect(frontier: Frontier) -> None:
    """A suspect obeys the rest and the cap of its host as others do."""
    ticket = frontier.claimed(1)
    frontier.sql("UPDATE spiderpool_request SET deaths = 1")
    a = host_id("a.example")
    assert frontier.take(ticket, per_host={a: 0}) == []
    assert frontier.take(ticket, rest={a: 9.0}) == []
    assert frontier.take(ticket) == []
    frontier.advance(10)
    assert len(frontier.take(ticket)) == 1


def test_page_limit_counts_done_and_leased(frontier: Frontier) -> None:
    """No more is leased than the limit leaves over what is done and under way; failures make room again."""
    ticket = frontier.claimed(10, max_pages=4)
    taken = frontier.take(ticket, 3)
    lease_of_one = frontier.lease(ticket)
    assert len(lease_of_one.requests) == 1
    full = frontier.lease(ticket)
    assert (full.requests, full.limit_reached) == ([], False)
    assert full.next_ready_in_s is not None
    frontier.store.settle(ticket, [done(request) for request in taken])
    frontier.release(ticket, lease_of_one.requests)
    (last,) = frontier.take(ticket)
    frontier.store.settle(ticket, [done(last)])
    over = frontier.lease(ticket)
    assert (over.requests, over.limit_reached) == ([], True)
    assert frontier.store.hand_on(ticket, next_in_s=None) == []
    assert frontier.status(ticket.task_id) == Status.FINISHED
    numbers = frontier.store.numbers(ticket.task_id)
    assert (numbers["done"], numbers["queued"], numbers["end_reason"]) == (4, 6, "max_pages")


def test_siblings_do_not_overshoot_the_page_limit(postgres_frontier: Frontier) -> None:
    """While one slot leases of a limited task the other waits, and then sees what was taken."""
    f = postgres_frontier
    message = f.start(20, max_pages=6, max_parallel=2)
    one = f.claim(message).ticket
    f.sql("UPDATE spiderpool_slot SET state = 'sent', epoch = 1 WHERE n = 1")
    two = f.store.claim(one.task_id, 1, 1, "w2")
    assert two is not None
    ask = lease.Ask(4, {}, 100, True, {})
    with f.transaction() as tx:
        first = lease.lease(tx, f.context, one, ask)
        second = f.waiting(f.lease, two.ticket, 4)
    assert len(first.requests) == 4
    assert len(second.result().requests) == 2
    f.check(one.task_id)


def test_siblings_of_an_unlimited_task_do_not_wait(postgres_frontier: Frontier) -> None:
    """Two slots lease side by side, and take different requests of one host."""
    f = postgres_frontier
    message = f.start(links(20) + links(20, "b.example"), max_parallel=2)
    one = f.claim(message).ticket
    f.sql("UPDATE spiderpool_slot SET state = 'sent', epoch = 1 WHERE n = 1")
    two = f.store.claim(one.task_id, 1, 1, "w2")
    assert two is not None
    with f.transaction() as tx:
        rows = lease.pick(
            tx, one, lease.Wanted(n=5, caps={}, default_cap=5, skip=[], suspects=False, cursors={})
        )
        with f.transaction() as other:
            wanted = lease.Wanted(n=10, caps={}, default_cap=10, skip=[], suspects=False, cursors={})
            others = lease.pick(other, two.ticket, wanted)
    assert len(rows) == 5
    assert len(others) == 10
    assert not {row[0] for row in rows} & {row[0] for row in others}


@pytest.mark.parametrize(("verb", "desired"), [(Verb.PAUSE, "pause"), (Verb.STOP, "stop")])
def test_unwanted_task_leases_nothing(frontier: Frontier, verb: Verb, desired: str) -> None:
    """After the verb a lease brings nothing but what is desired."""
    ticket = frontier.claimed(5)
    frontier.verb(ticket.task_id, verb)
    assert frontier.lease(ticket) == Lease([], desired, None)


def test_time_limit_ends_leasing(frontier: Frontier) -> None:
    """Past its time a task leases nothing more and is finished when nothing is under way."""
    ticket = frontier.claimed(5, max_time_s=15.0)
    (request, *_) = frontier.take(ticket, 1)
    frontier.advance(16)
    over = frontier.lease(ticket)
    assert (over.requests, over.limit_reached) == ([], True)
    assert frontier.store.verdict(ticket.task_id) == Status.RUNNING
    frontier.store.settle(ticket, [done(request)])
    assert frontier.store.verdict(ticket.task_id) == Status.FINISHED
    assert frontier.store.numbers(ticket.task_id)["end_reason"] == "max_time"


def test_verdict_waits_for_a_lease_under_way(postgres_frontier: Frontier) -> None:
    """A lease holds the task FOR KEY SHARE: a verdict cannot end the task between its look and its commit."""
    f = postgres_frontier
    ticket = f.claimed(5, max_time_s=15.0)
    with f.transaction() as tx:
        taken = lease.lease(tx, f.context, ticket, lease.Ask(1, {}, 100, True, {}))
        assert len(taken.requests) == 1
        f.advance(16)
        verdict = f.waiting(f.store.verdict, ticket.task_id)
    assert verdict.result() == Status.RUNNING
    f.check(ticket.task_id)


def test_lease_does_not_stand_in_a_siblings_settle(postgres_frontier: Frontier) -> None:
    """KEY SHARE lets a sibling count its settle while a lease is under way (FOR SHARE would block it)."""
    f = postgres_frontier
    message = f.start(links(4), max_parallel=2)
    one = f.claim(message).ticket
    f.sql("UPDATE spiderpool_slot SET state = 'sent', epoch = 1 WHERE n = 1")
    two = f.store.claim(one.task_id, 1, 1, "w2")
    assert two is not None
    (request,) = f.take(two.ticket, 1)
    with f.transaction() as tx:
        # On another host than the lease took: lanes are locked too, in their own order.
        tx.one(lease._TASK, task=one.task_id)
        assert f.thread(f.store.settle, two.ticket, [done(request)]).result(10).added == 0


def test_turn_given_by_a_sibling_meanwhile_hides_nothing(postgres_frontier: Frontier) -> None:
    """A lane to which a sibling gave its turn while this lease stood before a lock is ready all the same."""
    f = postgres_frontier
    message = f.start(8, max_parallel=2, max_pages=100)
    one = f.claim(message).ticket
    f.sql("UPDATE spiderpool_slot SET state = 'sent', epoch = 1 WHERE n = 1")
    two = f.store.claim(one.task_id, 1, 1, "w2")
    assert two is not None
    with f.transaction() as tx:
        lease._left(tx, one, 1, 100)
        second = f.waiting(f.lease, two.ticket, 4)
        lease.lease(tx, f.context, one, lease.Ask(1, {}, 100, True, {}))
    assert len(second.result().requests) == 4


def test_next_ready(frontier: Frontier) -> None:
    """A lease that found less than asked says when more ripens; with nothing left it says None."""
    ticket = frontier.claimed(2)
    assert frontier.lease(ticket, 1).next_ready_in_s == 0.0
    assert frontier.lease(ticket, 9).next_ready_in_s is None
    assert frontier.lease(ticket, 9).requests == []


def test_leased_request_carries_everything(frontier: Frontier) -> None:
    """What was queued comes back as it was, payload and fingerprint too."""
    seed = link(
        "p", "b.example:8080", depth=3, priority=2, payload={"callback": "parse", "meta": {"x": [1, None]}}
    )
    ticket = frontier.claimed([seed])
    (request,) = frontier.take(ticket)
    assert (request.url, request.fingerprint, request.host_key) == (seed.url, seed.fingerprint, seed.host_key)
    assert (request.depth, request.priority, request.payload) == (3, 2, seed.payload)
    assert (request.attempts, request.deaths, request.is_seed) == (0, 0, True)


def test_ripe_retries_are_leased(frontier: Frontier) -> None:
    """A lease promotes its own task's ripe retries, and counts them in its lanes."""
    ticket = frontier.claimed(2)
    taken = frontier.take(ticket)
    frontier.sql("UPDATE spiderpool_request SET state = 2, ready_at = 5, slot = NULL, epoch = NULL")
    frontier.sql("UPDATE spiderpool_slot SET leased = 0")
    frontier.check(ticket.task_id)
    assert len(frontier.take(ticket)) == len(taken)
    frontier.check(ticket.task_id)


def test_expired_slot_leases_nothing_after_it_was_returned(frontier: Frontier) -> None:
    """Once an expired slot was returned its old ticket is fenced."""
    ticket = frontier.claimed(2)
    frontier.advance(21)
    slot = (ticket.task_id, ticket.n, ticket.epoch)
    assert frontier.store.write(lambda tx: expire.expire(tx, frontier.context, slot)) == 0
    assert frontier.store.write(lambda tx: expire.expire(tx, frontier.context, slot)) is None
    with pytest.raises(Fenced):
        frontier.lease(ticket)
