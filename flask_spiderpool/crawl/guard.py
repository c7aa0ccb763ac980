"""The lease of a slice as its process sees it: may it still send?"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from flask_spiderpool.crawl.request import Renewal, Ticket


def boot_clock() -> float:
    """Return seconds since boot, suspended time in: a frozen process or machine cannot miss them."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class LeaseGuard:
    """What a slice may do until when (PROTOCOL, *A slice that may be dead sends nothing*).

    The deadline counts from *before* the claiming or renewing statement was sent, less a margin, by a
    boot-time clock. The renewal thread writes, the loop thread reads. ``changed`` is called, in the
    writer's thread, whenever ``desired`` or ``fenced`` changes.
    """

    def __init__(
        self,
        ticket: Ticket,
        *,
        asked_at: float,
        lease_s: float,
        margin_s: float,
        desired: str = "run",
        clock: Callable[[], float] = boot_clock,
    ) -> None:
        self.ticket = ticket
        self.desired = desired
        self.fenced = False
        self.changed: Callable[[], None] = lambda: None
        self._clock = clock
        self._margin_s = margin_s
        self._send_until = asked_at + lease_s - margin_s
        self._lock = threading.Lock()

    def may_send(self) -> bool:
        """Tell whether a request may be written to the wire at this moment."""
        return not self.fenced and self.desired == "run" and self._clock() < self._send_until

    def renewed(self, asked_at: float, renewal: Renewal) -> None:
        """Take in a renewal that was asked for at ``asked_at`` on the boot clock."""
        with self._lock:
            self._send_until = max(self._send_until, asked_at + renewal.lease_s - self._margin_s)
        self.want(renewal.desired)

    def want(self, desired: str) -> None:
        """Take in what a person wants, from a renewal or a bus command."""
        if desired != self.desired:
            self.desired = desired
            self.changed()

    def lose(self) -> None:
        """Another epoch has begun: nothing may be written or sent any more."""
        if not self.fenced:
            self.fenced = True
            self.changed()
