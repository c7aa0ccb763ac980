"""The limiter of a pool with one worker process."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from typing import Protocol

from flask_spiderpool.limiter.base import Grant
from flask_spiderpool.limiter.bucket import Bucket, block, shape, take
from flask_spiderpool.limiter.process_lock import ProcessLock

_SWEEP_AT_LEAST = 4096
#: How soon to ask again while it is not sure that nobody else counts.
UNSURE_S = 0.5


class Hold(Protocol):
    """What says that no process elsewhere counts for itself, such as a lock in a database."""

    @property
    def held(self) -> bool:
        """Tell whether it is sure just now. Costs next to nothing."""
        ...

    @property
    def turns(self) -> int:
        """Grows whenever another process may have counted meanwhile."""
        ...

    def release(self) -> None:
        """Give it back. Idempotent."""
        ...


class MemoryLimiter:
    """Token buckets in this process's memory; see :class:`~flask_spiderpool.limiter.base.Limiter`.

    ``lock_path`` makes sure that no second process counts for itself: it is held for the process's life,
    and the constructor raises :class:`~flask_spiderpool.errors.SetupError` if another process has it. In a
    forked child the limiter begins anew: empty, newly born, and asking for the lock again. ``hold`` makes
    something that does the same for more than one machine; nothing is granted while it is not held.

    A call costs about 5 us. Full buckets are forgotten, so memory grows with the hosts asked lately only.
    """

    def __init__(
        self,
        *,
        clock: Callable[[], float] = time.monotonic,
        lock_path: str | os.PathLike[str] | None = None,
        hold: Callable[[], Hold] | None = None,
    ) -> None:
        self._clock = clock
        self._lock_path = lock_path
        self._make_hold = hold
        self._process_lock: ProcessLock | None = None
        self._hold: Hold | None = None
        self._pid = 0
        self._begin()

    def acquire(self, key: str, rate: float, burst: int, n: int = 1) -> Grant:
        """Take up to ``n`` tokens of ``key``."""
        self._check_process()
        with self._guard:
            if not self._counts_alone():
                return Grant(0, UNSURE_S)
            now = self._clock()
            grant, bucket = take(self._buckets.get(key), shape(rate, burst), n, now, self._birth)
            self._keep(key, bucket, now)
        return grant

    def block(self, key: str, for_s: float) -> None:
        """Grant nothing for ``key`` in the next ``for_s`` seconds; then its bucket fills from empty."""
        if for_s <= 0:
            return
        self._check_process()
        with self._guard:
            now = self._clock()
            self._keep(key, block(self._buckets.get(key), for_s, now), now)

    def close(self) -> None:
        """Give back the process lock and the hold."""
        if self._hold is not None:
            self._hold.release()
            self._hold = None
        if self._process_lock is not None:
            self._process_lock.release()
            self._process_lock = None

    def _begin(self) -> None:
        self._guard = threading.Lock()
        self._buckets: dict[str, Bucket] = {}
        self._sweep_above = _SWEEP_AT_LEAST
        self._process_lock = ProcessLock(self._lock_path) if self._lock_path is not None else None
        self._hold, self._turns = None, 0
        if self._make_hold is not None:
            try:
                self._hold = self._make_hold()
            except BaseException:
                self.close()
                raise
        self._birth = self._clock()
        self._pid = os.getpid()  # at last: a child that was refused is refused again

    def _counts_alone(self) -> bool:
        if self._hold is None:
            return True
        if not self._hold.held:
            return False
        if self._hold.turns != self._turns:
            self._turns = self._hold.turns
            self._buckets, self._birth = {}, self._clock()
        return True

    def _check_process(self) -> None:
        if self._pid != os.getpid():
            self._begin()

    def _keep(self, key: str, bucket: Bucket | None, now: float) -> None:
        if bucket is None:
            self._buckets.pop(key, None)
            return
        self._buckets[key] = bucket
        if len(self._buckets) > self._sweep_above:
            self._buckets = {k: b for k, b in self._buckets.items() if b.full > now}
            self._sweep_above = max(_SWEEP_AT_LEAST, 2 * len(self._buckets))
