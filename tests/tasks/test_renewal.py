from __future__ import annotations

from collections.abc import Sequence
from uuid import uuid4

import pytest

from flask_spiderpool.crawl.guard import LeaseGuard
from flask_spiderpool.crawl.request import Renewal, Ticket
from flask_spiderpool.errors import Unavailable
from flask_spiderpool.tasks.renewal import Renewals


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Store:
    """A store whose answer takes ``takes_s`` seconds."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.takes_s = 0.0
        self.desired = "run"
        self.known: set[Ticket] = set()
        self.away = False
        self.calls: list[list[Ticket]] = []

    def renew(self, tickets: Sequence[Ticket]) -> dict[Ticket, Renewal]:
        self.calls.append(list(tickets))
        self.clock.now += self.takes_s
        if self.away:
            raise Unavailable("away")
        return {ticket: Renewal(self.desired, 20.0) for ticket in tickets if ticket in self.known}


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(clock: Clock) -> Store:
    return Store(clock)


@pytest.fixture
def renewals(store: Store, clock: Clock) -> Renewals:
    return Renewals(store, 5.0, clock=clock)


def guard_of(store: Store, clock: Clock) -> LeaseGuard:
    ticket = Ticket(uuid4(), 0, 1)
    store.known.add(ticket)
    return LeaseGuard(ticket, asked_at=clock.now, lease_s=20.0, margin_s=1.0, clock=clock)


def test_all_slots_are_renewed_in_one_statement(renewals: Renewals, store: Store, clock: Clock):
    """Three slices, one call."""
    guards = [guard_of(store, clock) for _ in range(3)]
    for guard in guards:
        renewals.add(guard)
    renewals.renew_once()
    assert [set(call) for call in store.calls] == [{guard.ticket for guard in guards}]


def test_nothing_is_asked_without_slices(renewals: Renewals, store: Store):
    """An idle worker does not trouble the database."""
    renewals.renew_once()
    assert store.calls == []


def test_the_lease_counts_from_before_the_statement(renewals: Renewals, store: Store, clock: Clock):
    """An answer that took 15 s proves a lease that began 15 s ago, not one that begins now."""
    guard = guard_of(store, clock)
    renewals.add(guard)
    store.takes_s = 15.0
    renewals.renew_once()  # asked at 100, answered at 115: may send until 119
    assert guard.may_send()
    clock.now = 119.5
    assert not guard.may_send()


def test_a_ticket_that_is_not_in_the_answer_is_lost(renewals: Renewals, store: Store, clock: Clock):
    """Another epoch has begun: that slice may send nothing, the others go on."""
    lost, kept = guard_of(store, clock), guard_of(store, clock)
    renewals.add(lost)
    renewals.add(kept)
    store.known.discard(lost.ticket)
    renewals.renew_once()
    assert lost.fenced
    assert not lost.may_send()
    assert kept.may_send()


def test_while_the_database_is_away_the_guards_expire_by_themselves(
    renewals: Renewals, store: Store, clock: Clock
):
    """A failed renewal neither fences nor prolongs; when the database is back the slice lives on."""
    guard = guard_of(store, clock)
    renewals.add(guard)
    store.away = True
    clock.now = 110.0
    with pytest.raises(Unavailable):
        renewals.renew_once()
    assert guard.may_send()
    clock.now = 119.5
    assert not guard.may_send()
    store.away = False
    renewals.renew_once()
    assert guard.may_send()


def test_a_renewal_brings_what_is_desired(renewals: Renewals, store: Store, clock: Clock):
    """Without any bus a stop reaches the slice with the next renewal."""
    guard = guard_of(store, clock)
    renewals.add(guard)
    store.desired = "stop"
    renewals.renew_once()
    assert guard.desired == "stop"
    assert not guard.may_send()


def test_a_slice_that_ended_is_renewed_no_more(renewals: Renewals, store: Store, clock: Clock):
    """Its slot may belong to another process by now."""
    guard = guard_of(store, clock)
    renewals.add(guard)
    renewals.discard(guard)
    renewals.renew_once()
    assert store.calls == []
    assert renewals.of_task(guard.ticket.task_id) == []
