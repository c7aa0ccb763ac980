"""The guard: a slice that may be dead sends nothing."""

from __future__ import annotations

from uuid import UUID

from flask_spiderpool.crawl.guard import LeaseGuard, boot_clock
from flask_spiderpool.crawl.request import Renewal, Ticket

TICKET = Ticket(UUID(int=1), 0, 1)


class Clock:
    """A clock that a test moves."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


def _guard(clock: Clock) -> LeaseGuard:
    return LeaseGuard(TICKET, asked_at=clock.now, lease_s=20, margin_s=1, clock=clock)


def test_nothing_is_sent_in_the_margin_before_the_lease_ends() -> None:
    """Sending ends one margin before the lease, counted from before the claim was asked for."""
    clock = Clock()
    guard = _guard(clock)
    clock.now = 118.99
    assert guard.may_send()
    clock.now = 119.0
    assert not guard.may_send()


def test_a_renewal_counts_from_before_it_was_asked() -> None:
    """A renewal whose answer took long prolongs the lease only from the moment of the question."""
    clock = Clock()
    guard = _guard(clock)
    asked_at = 105.0
    clock.now = 123.0  # the process was frozen between question and answer
    guard.renewed(asked_at, Renewal("run", 20))
    assert guard.may_send()
    clock.now = 124.0
    assert not guard.may_send()


def test_an_older_renewal_never_shortens_a_lease() -> None:
    """Answers that arrive out of order leave the later deadline standing."""
    clock = Clock()
    guard = _guard(clock)
    guard.renewed(110.0, Renewal("run", 20))
    guard.renewed(105.0, Renewal("run", 20))
    clock.now = 128.9
    assert guard.may_send()


def test_a_wish_to_pause_or_a_lost_slot_closes_it_at_once_and_tells() -> None:
    """Whoever waits is told once for each change."""
    clock = Clock()
    guard = _guard(clock)
    told: list[tuple[str, bool]] = []
    guard.changed = lambda: told.append((guard.desired, guard.fenced))
    guard.want("pause")
    guard.want("pause")
    assert not guard.may_send()
    guard.want("run")
    assert guard.may_send()
    guard.lose()
    guard.lose()
    assert not guard.may_send()
    assert told == [("pause", False), ("run", False), ("run", True)]


def test_the_boot_clock_moves_on() -> None:
    """The default clock is the machine's, suspended time in."""
    assert boot_clock() <= boot_clock()
