"""PORT: which workers are alive, and what was done minute by minute."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class WorkerPulse:
    """One worker process as it last spoke."""

    name: str  #: ``hostname:pid:boot`` - unique for one life of one process
    seen_at: datetime  #: UTC
    threads: int  #: how many slices it can run at once
    slices: int  #: how many it runs now
    info: dict[str, Any] = field(default_factory=dict)  #: pid, host, rss_bytes, version, settings_version ...


class Pulse(Protocol):
    """Heartbeats and counters.

    A worker is alive while its last beat is younger than ``alive_s``. Counters are added per minute and
    name and are exact over all processes; reading them costs the number of minutes asked, not of requests.
    """

    def beat(self, worker: WorkerPulse) -> None:
        """Write one heartbeat; one row a worker process."""
        ...

    def workers(self, alive_s: float) -> list[WorkerPulse]:
        """Return the workers whose beat is younger than ``alive_s`` seconds."""
        ...

    def add(self, counters: Mapping[str, int]) -> None:
        """Add to the counters of the current minute."""
        ...

    def totals(self, minutes: int) -> dict[str, int]:
        """Return the sums of the last ``minutes`` whole-or-begun minutes, by name."""
        ...

    def leave(self, name: str) -> None:
        """Forget a worker that ended in order."""
        ...
