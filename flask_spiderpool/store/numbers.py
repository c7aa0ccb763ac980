"""A task's numbers, and whether they are true."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from flask_spiderpool.errors import UnknownTask
from flask_spiderpool.store.sql import Statement, Tx

_COUNTERS = (
    "discovered", "done", "failed", "skipped", "pages", "unchanged", "items", "retries", "wire_bytes",
    "seeds", "seeds_failed", "max_pages",
)  # fmt: skip

_NUMBERS = Statement(
    f"""
    SELECT status, desired, {", ".join(_COUNTERS)},
           (SELECT COALESCE(sum(leased), 0)::bigint FROM spiderpool_slot s WHERE s.task_id = t.id),
           deadline_at - @now, end_reason
    FROM spiderpool_task t WHERE id = :task
    """
)
# One statement: one snapshot of everything.
_RECONCILE = Statement(
    """
    SELECT t.discovered, t.done, t.failed, t.skipped,
           (SELECT COALESCE(sum(leased), 0)::bigint FROM spiderpool_slot s WHERE s.task_id = t.id),
           (SELECT COALESCE(sum(queued), 0)::bigint FROM spiderpool_lane l WHERE l.task_id = t.id),
           (SELECT count(*) FROM spiderpool_lane l WHERE l.task_id = t.id AND l.has_work <> (l.queued > 0)),
           r.queued, r.leased, r.waiting, r.done, r.failed, r.skipped
    FROM spiderpool_task t, (
        SELECT COALESCE(sum(CASE WHEN state = 0 THEN 1 ELSE 0 END), 0)::bigint AS queued,
               COALESCE(sum(CASE WHEN state = 1 THEN 1 ELSE 0 END), 0)::bigint AS leased,
               COALESCE(sum(CASE WHEN state = 2 THEN 1 ELSE 0 END), 0)::bigint AS waiting,
               COALESCE(sum(CASE WHEN state = 3 THEN 1 ELSE 0 END), 0)::bigint AS done,
               COALESCE(sum(CASE WHEN state = 4 THEN 1 ELSE 0 END), 0)::bigint AS failed,
               COALESCE(sum(CASE WHEN state = 5 THEN 1 ELSE 0 END), 0)::bigint AS skipped
        FROM spiderpool_request WHERE task_id = :task
    ) AS r
    WHERE t.id = :task
    """
)
_STATUSES = Statement("SELECT status, count(*) FROM spiderpool_task GROUP BY status")
_WHOLE = Statement(
    """
    SELECT (SELECT COALESCE(sum(discovered - done - failed - skipped), 0)::bigint FROM spiderpool_task
            WHERE status IN ('pending', 'running', 'pausing', 'paused', 'stopping')),
           (SELECT COALESCE(sum(leased), 0)::bigint FROM spiderpool_slot),
           (SELECT count(*) FROM spiderpool_slot WHERE state = 'due'),
           (SELECT count(*) FROM spiderpool_slot WHERE state = 'sent'),
           (SELECT count(*) FROM spiderpool_slot WHERE state = 'running'),
           (SELECT @now - passed_at FROM spiderpool_keeper WHERE id = 1)
    """
)


def numbers(tx: Tx, task_id: UUID) -> dict[str, Any]:
    """Return a task's counters; ``queued + leased + done + failed + skipped == discovered`` at every moment.

    Costs one row of the task and its slots, never a count. ``queued`` includes retries that rest.
    """
    row = tx.one(_NUMBERS, task=task_id)
    if row is None:
        raise UnknownTask
    told: dict[str, Any] = {
        "status": row[0],
        "desired": row[1],
        **dict(zip(_COUNTERS, row[2:], strict=False)),
    }
    told["leased"], deadline_in_s, told["end_reason"] = row[2 + len(_COUNTERS) :]
    told["deadline_in_s"] = None if deadline_in_s is None else max(0.0, deadline_in_s)
    told["queued"] = told["discovered"] - told["done"] - told["failed"] - told["skipped"] - told["leased"]
    return told


def reconcile(tx: Tx, task_id: UUID) -> dict[str, Any]:
    """Compare a task's counters with its rows, in one snapshot. Counts every request: for tests and ``doctor``.

    ``ok`` is True when all agree; ``faults`` names what does not.
    """
    row = tx.one(_RECONCILE, task=task_id)
    if row is None:
        raise UnknownTask
    discovered, done, failed, skipped, slot_leased, lane_queued, lanes_wrong = row[:7]
    rows = dict(zip(("queued", "leased", "waiting", "done", "failed", "skipped"), row[7:], strict=True))
    queued = discovered - done - failed - skipped - slot_leased
    pairs = {
        "queued": (queued, rows["queued"] + rows["waiting"]),
        "leased": (slot_leased, rows["leased"]),
        "done": (done, rows["done"]),
        "failed": (failed, rows["failed"]),
        "skipped": (skipped, rows["skipped"]),
        "discovered": (discovered, sum(rows.values())),
        "lanes": (lane_queued, rows["queued"]),
        "lanes_wrong": (lanes_wrong, 0),
    }
    faults = {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}
    return {"ok": not faults, "faults": faults, "rows": rows, "discovered": discovered, "queued": queued}


def status_counts(tx: Tx) -> dict[str, int]:
    """Return how many tasks stand in each status that occurs."""
    return dict(tx.all(_STATUSES))


def pool_numbers(tx: Tx) -> dict[str, Any]:
    """Return the pool's queue and slots, and the seconds since the keeper's last pass (None: never)."""
    row: Any = tx.one(_WHOLE)
    names = ("unsettled", "leased", "slots_due", "slots_sent", "slots_running", "keeper_age_s")
    told = dict(zip(names, row, strict=True))
    told["queued"] = max(0, told.pop("unsettled") - told["leased"])
    return told
