"""Heartbeats and counters a minute, in the pool's database."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime

from flask_spiderpool.pulse.base import WorkerPulse
from flask_spiderpool.store.frontier import Store
from flask_spiderpool.store.sql import Statement, Tx, json_text, json_value

_BEAT = Statement(
    """
    INSERT INTO spiderpool_worker (name, seen_at, threads, slices, info)
    VALUES (:name, :now, :threads, :slices, :info::jsonb)
    ON CONFLICT (name) DO UPDATE SET
        seen_at = excluded.seen_at, threads = excluded.threads, slices = excluded.slices, info = excluded.info
    """
)
_ALIVE = Statement(
    """
    SELECT name, seen_at, threads, slices, info FROM spiderpool_worker
    WHERE seen_at > :now::float8 - :alive_s ORDER BY name
    """
)
_LEAVE = Statement("DELETE FROM spiderpool_worker WHERE name = :name")
_ADD = Statement(
    """
    INSERT INTO spiderpool_counter AS c (minute, name, value) VALUES (:minute, :name, :value)
    ON CONFLICT (minute, name) DO UPDATE SET value = c.value + excluded.value
    """
)
_TOTALS = Statement(
    """
    SELECT name, sum(value)::bigint FROM spiderpool_counter WHERE minute > :minute::bigint - :minutes
    GROUP BY name ORDER BY name
    """
)
_NOW = Statement("SELECT @now")


class DatabasePulse:
    """See :class:`~flask_spiderpool.pulse.base.Pulse`. Times are the database's, so that skewed workers do no harm.

    ``clock`` (epoch seconds) replaces the database's in tests. Raises
    :class:`~flask_spiderpool.errors.Unavailable` when the database stays away.
    """

    def __init__(self, store: Store, *, clock: Callable[[], float] | None = None) -> None:
        self._store = store
        self._clock = clock

    def beat(self, worker: WorkerPulse) -> None:
        """Write one heartbeat."""
        info = json_text(worker.info)
        self._store.write(
            lambda tx: tx.run(
                _BEAT,
                name=worker.name[:200],
                now=self._now(tx),
                threads=worker.threads,
                slices=worker.slices,
                info=info,
            )
        )

    def workers(self, alive_s: float) -> list[WorkerPulse]:
        """Return the workers whose beat is younger than ``alive_s`` seconds, by name."""
        rows = self._store.read(lambda tx: tx.all(_ALIVE, now=self._now(tx), alive_s=float(alive_s)))
        return [
            WorkerPulse(name, datetime.fromtimestamp(seen_at, UTC), threads, slices, json_value(info) or {})
            for name, seen_at, threads, slices, info in rows
        ]

    def add(self, counters: Mapping[str, int]) -> None:
        """Add to the counters of the current minute; names in order, so that two processes do not deadlock."""
        rows = [(name, value) for name, value in sorted(counters.items()) if value]
        if not rows:
            return

        def write(tx: Tx) -> None:
            minute = int(self._now(tx) // 60)
            for name, value in rows:
                tx.run(_ADD, minute=minute, name=name, value=value)

        self._store.write(write)

    def totals(self, minutes: int) -> dict[str, int]:
        """Return the sums of the last ``minutes`` whole-or-begun minutes, by name."""
        rows = self._store.read(lambda tx: tx.all(_TOTALS, minute=int(self._now(tx) // 60), minutes=minutes))
        return {name: int(value) for name, value in rows}

    def leave(self, name: str) -> None:
        """Forget a worker that ended in order."""
        self._store.write(lambda tx: tx.run(_LEAVE, name=name[:200]))

    def _now(self, tx: Tx) -> float:
        return float(tx.all(_NOW)[0][0]) if self._clock is None else self._clock()
