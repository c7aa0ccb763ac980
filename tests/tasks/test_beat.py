from __future__ import annotations

from collections.abc import Mapping
from uuid import uuid4

import pytest

from flask_spiderpool.crawl.request import LeasedRequest, Outcome, Settled, Ticket, Verdict
from flask_spiderpool.errors import Unavailable
from flask_spiderpool.pulse.base import WorkerPulse
from flask_spiderpool.tasks.beat import BEAT_S, Beat

TICKET = Ticket(uuid4(), 0, 1)


class MemoryPulse:
    def __init__(self) -> None:
        self.beats: list[WorkerPulse] = []
        self.added: list[dict[str, int]] = []
        self.left: list[str] = []
        self.away = False

    def beat(self, worker: WorkerPulse) -> None:
        self.beats.append(worker)

    def add(self, counters: Mapping[str, int]) -> None:
        if self.away:
            raise Unavailable("away")
        self.added.append(dict(counters))

    def leave(self, name: str) -> None:
        self.left.append(name)


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def outcome(verdict: Verdict, **more: object) -> Outcome:
    request = LeasedRequest(1, "h", 1, "http://h/", b"x" * 16, 0, 0, 0, 0)
    return Outcome(request, verdict, **more)


@pytest.fixture
def pulse() -> MemoryPulse:
    return MemoryPulse()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def beat(pulse: MemoryPulse, clock: Clock) -> Beat:
    return Beat(pulse, "h:1:2", threads=64, running=lambda: 3, clock=clock)


def test_what_a_settle_wrote_is_counted_by_verdict(beat: Beat, pulse: MemoryPulse):
    """A release is no event; items, bytes and new requests are counted beside."""
    outcomes = [
        outcome(Verdict.DONE, items=[{}, {}], wire_bytes=10),
        outcome(Verdict.DONE, wire_bytes=5),
        outcome(Verdict.FAILED),
        outcome(Verdict.SKIPPED),
        outcome(Verdict.RETRY),
        outcome(Verdict.RELEASE),
    ]
    beat.count(TICKET, outcomes, Settled(added=7, desired="run"))
    beat.flush()
    assert pulse.added == [
        {"done": 2, "failed": 1, "skipped": 1, "retried": 1, "items": 2, "wire_bytes": 15, "discovered": 7}
    ]


def test_a_repeated_settle_counts_nothing(beat: Beat, pulse: MemoryPulse):
    """Its rows were counted when they were written."""
    beat.count(TICKET, [outcome(Verdict.DONE)], Settled(added=0, desired="run", repeated=True))
    beat.flush()
    assert pulse.added == []


def test_counters_survive_a_database_that_is_away(beat: Beat, pulse: MemoryPulse):
    """What could not be written is written with the next second's."""
    beat.count(TICKET, [outcome(Verdict.DONE)], Settled(added=0, desired="run"))
    pulse.away = True
    with pytest.raises(Unavailable):
        beat.flush()
    pulse.away = False
    beat.count(TICKET, [outcome(Verdict.DONE)], Settled(added=0, desired="run"))
    beat.flush()
    assert pulse.added == [{"done": 2}]


def test_beats_come_every_few_seconds_not_with_every_flush(beat: Beat, pulse: MemoryPulse, clock: Clock):
    """The row says what the process does."""
    beat.flush()
    clock.now += BEAT_S / 2
    beat.flush()
    clock.now += BEAT_S / 2
    beat.flush()
    assert len(pulse.beats) == 2
    shown = pulse.beats[0]
    assert (shown.name, shown.threads, shown.slices) == ("h:1:2", 64, 3)
    assert shown.info["rss_bytes"] > 0


def test_the_end_writes_what_is_left_and_says_good_bye(beat: Beat, pulse: MemoryPulse):
    """A worker that ended in order is not shown as alive for another quarter of a minute."""
    beat.count(TICKET, [outcome(Verdict.DONE)], Settled(added=0, desired="run"))
    beat.stop()
    assert pulse.added == [{"done": 1}]
    assert pulse.left == ["h:1:2"]
