"""What a worker process says of itself: a heartbeat every few seconds, counters once a second."""

from __future__ import annotations

import os
import platform
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

from flask_spiderpool.crawl.request import Outcome, Settled, Ticket, Verdict
from flask_spiderpool.pulse.base import Pulse, WorkerPulse
from flask_spiderpool.tasks.periodic import Periodic

FLUSH_S = 1.0  #: counters are written this often
BEAT_S = 3.0  #: heartbeats are written this often

#: Verdict -> name of the counter of a minute. A release is no event.
_COUNTED = {
    Verdict.DONE: "done",
    Verdict.FAILED: "failed",
    Verdict.SKIPPED: "skipped",
    Verdict.RETRY: "retried",
}


class Beat:
    """Heartbeats and counters of one process, written by a thread of its own.

    Counters: ``done``, ``failed``, ``skipped``, ``retried`` (requests), ``items``, ``wire_bytes``,
    ``discovered``. What cannot be written is kept and added to the next second's.
    """

    def __init__(
        self,
        pulse: Pulse,
        name: str,
        *,
        threads: int,
        running: Callable[[], int],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._pulse = pulse
        self._name = name
        self._threads = threads
        self._running = running
        self._clock = clock
        self._counts: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._beat_at = -BEAT_S
        self._started_at = datetime.now(UTC)
        self._thread = Periodic("spiderpool-beat", FLUSH_S, self.flush)

    def start(self) -> None:
        """Begin to beat."""
        self._thread.start()

    def stop(self) -> None:
        """Write the last counters and say good-bye."""
        self._thread.stop()
        self.add_counts()
        self._pulse.leave(self._name)

    def count(self, ticket: Ticket, outcomes: Sequence[Outcome], settled: Settled) -> None:
        """Count what a settle has written. Cheap; called on the loop."""
        if settled.repeated:
            return
        counts: Counter[str] = Counter()
        for outcome in outcomes:
            name = _COUNTED.get(outcome.verdict)
            if name is not None:
                counts[name] += 1
                counts["items"] += len(outcome.items)
                counts["wire_bytes"] += outcome.wire_bytes
        counts["discovered"] = settled.added
        with self._lock:
            self._counts.update(counts)

    def flush(self) -> None:
        """Write what has been counted, and a heartbeat when one is due."""
        now = self._clock()
        if now - self._beat_at >= BEAT_S:
            self._pulse.beat(self._worker())
            self._beat_at = now
        self.add_counts()

    def add_counts(self) -> None:
        """Write what has been counted since the last time."""
        with self._lock:
            counts, self._counts = self._counts, Counter()
        counts = +counts
        if not counts:
            return
        try:
            self._pulse.add(counts)
        except Exception:
            with self._lock:
                self._counts.update(counts)
            raise

    def _worker(self) -> WorkerPulse:
        return WorkerPulse(
            name=self._name,
            seen_at=datetime.now(UTC),
            threads=self._threads,
            slices=self._running(),
            info={
                "pid": os.getpid(),
                "host": platform.node(),
                "python": platform.python_version(),
                "rss_bytes": _rss_bytes(),
                "started_at": self._started_at.isoformat(timespec="seconds"),
            },
        )


def _rss_bytes() -> int | None:
    """Return the memory that this process occupies, where /proc tells it."""
    try:
        pages = Path("/proc/self/statm").read_text(encoding="ascii").split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return None
