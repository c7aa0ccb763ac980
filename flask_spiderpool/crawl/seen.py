"""Which URLs a task is known to have: a bounded hint that keeps most duplicates away from SQL."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable
from uuid import UUID


class SeenSet:
    """Fingerprints that stand in the frontier for certain, per task.

    Only what a settle has committed is learned, so a hit means "the row exists"; a miss means nothing.
    Shared by all slices of a process. When the total passes ``size``, the sets of the tasks that were
    used longest ago are dropped whole, at last the set of the only task. Costs about 100 bytes a
    fingerprint.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._sets: OrderedDict[UUID, set[bytes]] = OrderedDict()
        self._lock = threading.Lock()

    def of(self, task_id: UUID) -> set[bytes]:
        """Return the live set of a task; read it freely, write by :meth:`learn` only."""
        with self._lock:
            known = self._sets.get(task_id)
            if known is None:
                known = self._sets[task_id] = set()
            self._sets.move_to_end(task_id)
            return known

    def learn(self, task_id: UUID, fingerprints: Iterable[bytes]) -> None:
        """Add fingerprints whose rows have been committed."""
        known = self.of(task_id)
        with self._lock:
            known.update(fingerprints)
            while sum(map(len, self._sets.values())) > self._size:
                if len(self._sets) == 1:
                    known.clear()
                    return
                self._sets.popitem(last=False)

    def forget(self, task_id: UUID) -> None:
        """Drop a task that has ended."""
        with self._lock:
            self._sets.pop(task_id, None)
