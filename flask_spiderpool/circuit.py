"""Keeping callers off a backing service that has just failed."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

FIRST_REST_S = 0.5
LONGEST_REST_S = 5.0


class Circuit:
    """After a failure callers stay away for a rest that doubles from 0.5 s to 5 s; then one of them tries.

    Thread-safe; costs a lock and no IO. ``clock`` gives seconds and never goes back.
    """

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._rest_s = 0.0  # 0: closed, the service answered last time
        self._retry_at = 0.0

    def enter(self) -> float:
        """Return 0.0 if the caller may try now, else the seconds until somebody may."""
        if self._rest_s == 0.0:
            return 0.0
        with self._lock:
            left_s = self._retry_at - self._clock()
            if self._rest_s == 0.0:
                return 0.0
            if left_s > 0:
                return left_s
            # This caller probes; the others wait for what it finds.
            self._retry_at = self._clock() + self._rest_s
            return 0.0

    def left_s(self) -> float:
        """Return the seconds until somebody may try again, without becoming that somebody."""
        with self._lock:
            return max(0.0, self._retry_at - self._clock()) if self._rest_s else 0.0

    def failed(self) -> bool:
        """Note a failure; return True if it is the first of a row (the one to log)."""
        with self._lock:
            first = self._rest_s == 0.0
            self._rest_s = FIRST_REST_S if first else min(self._rest_s * 2, LONGEST_REST_S)
            self._retry_at = self._clock() + self._rest_s
            return first

    def succeeded(self) -> bool:
        """Note an answer; return True if it ends a row of failures (the one to log)."""
        if self._rest_s == 0.0:
            return False
        with self._lock:
            ended = self._rest_s != 0.0
            self._rest_s = 0.0
            return ended
