"""What every pulse does. A backend's test module subclasses :class:`PulseContract` and gives ``new_pulse``."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

import pytest

from flask_spiderpool.pulse.base import Pulse, WorkerPulse

#: Within the minute, far from its ends.
NOON = datetime(2030, 5, 17, 12, 0, 30, tzinfo=UTC)


class PulseBench(NamedTuple):
    """Pulses of several processes, and the clock that they all read."""

    new: Callable[[], Pulse]
    set_clock: Callable[[datetime], None]


def worker(name: str, seen_at: datetime, *, slices: int = 3, **info: object) -> WorkerPulse:
    """Return what a worker says of itself."""
    return WorkerPulse(name, seen_at, threads=64, slices=slices, info=info)


class PulseContract:
    """The promises of :class:`~flask_spiderpool.pulse.base.Pulse`, for the backend that ``bench`` gives."""

    @pytest.fixture
    def bench(self) -> PulseBench:
        """Return pulses that share a store, and its clock, standing at :data:`NOON`."""
        raise NotImplementedError

    def test_nobody_has_spoken(self, bench: PulseBench) -> None:
        """A new store knows no worker and has counted nothing."""
        pulse = bench.new()
        assert pulse.workers(60) == []
        assert pulse.totals(60) == {}

    def test_a_beat_is_seen_by_others(self, bench: PulseBench) -> None:
        """What one process says of itself another reads whole."""
        said = worker("host:1:a", NOON, pid=1, version="0.1.0")
        bench.new().beat(said)
        assert bench.new().workers(60) == [said]

    def test_the_last_beat_counts(self, bench: PulseBench) -> None:
        """A worker is one row, with what it said last."""
        pulse = bench.new()
        pulse.beat(worker("host:1:a", NOON, slices=3))
        bench.set_clock(NOON + timedelta(seconds=5))
        pulse.beat(worker("host:1:a", NOON + timedelta(seconds=5), slices=7))
        assert [(seen.name, seen.slices) for seen in pulse.workers(60)] == [("host:1:a", 7)]

    def test_a_silent_worker_is_not_alive(self, bench: PulseBench) -> None:
        """A worker whose beat is older than asked is not named; the others are."""
        pulse = bench.new()
        pulse.beat(worker("host:1:a", NOON))
        bench.set_clock(NOON + timedelta(seconds=50))
        pulse.beat(worker("host:2:b", NOON + timedelta(seconds=50)))
        bench.set_clock(NOON + timedelta(seconds=61))
        assert [seen.name for seen in pulse.workers(60)] == ["host:2:b"]
        assert {seen.name for seen in pulse.workers(90)} == {"host:1:a", "host:2:b"}

    def test_leaving(self, bench: PulseBench) -> None:
        """A worker that ended in order is gone at once; leaving twice is allowed."""
        pulse = bench.new()
        pulse.beat(worker("host:1:a", NOON))
        pulse.beat(worker("host:2:b", NOON))
        pulse.leave("host:1:a")
        pulse.leave("host:1:a")
        assert [seen.name for seen in bench.new().workers(60)] == ["host:2:b"]

    def test_counters_add_up(self, bench: PulseBench) -> None:
        """Counters of several processes and minutes are summed by name; old minutes fall out."""
        one, two = bench.new(), bench.new()
        one.add({"pages": 10, "bytes": 5_000_000_000})
        two.add({"pages": 5})
        bench.set_clock(NOON + timedelta(minutes=1))
        one.add({"pages": 1, "errors": 2})
        assert two.totals(1) == {"pages": 1, "errors": 2}
        assert two.totals(2) == {"pages": 16, "bytes": 5_000_000_000, "errors": 2}
        bench.set_clock(NOON + timedelta(minutes=2))
        assert one.totals(2) == {"pages": 1, "errors": 2}

    def test_adding_nothing(self, bench: PulseBench) -> None:
        """An empty addition counts nothing."""
        pulse = bench.new()
        pulse.add({})
        assert pulse.totals(5) == {}

    def test_counters_are_exact_over_threads(self, bench: PulseBench) -> None:
        """Additions at the same time lose nothing, whatever the order of their names."""
        pulses = [bench.new() for _ in range(4)]

        def count(pulse: Pulse, *, backwards: bool) -> None:
            names = ["done", "failed", "skipped"]
            for _ in range(25):
                pulse.add(dict.fromkeys(reversed(names) if backwards else names, 1))

        threads = [
            threading.Thread(target=count, args=(pulse,), kwargs={"backwards": number % 2 == 1})
            for number, pulse in enumerate(pulses)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert pulses[0].totals(1) == {"done": 100, "failed": 100, "skipped": 100}
