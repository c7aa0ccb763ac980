"""Which due slot is sent next: priority, then the spider that was served least, then the task's own order.

At most twice the cluster's slice threads are sent at a time, so that one spider with a hundred tasks cannot
take all of them and a message is claimed soon after it was sent.
"""

from __future__ import annotations

import logging
from typing import Any

from flask_spiderpool.config import Settings
from flask_spiderpool.crawl.request import Ticket
from flask_spiderpool.store.engine import is_again
from flask_spiderpool.store.slots import Message
from flask_spiderpool.store.sql import Statement, Tx, task_uuid

log = logging.getLogger("spiderpool.store")

ALIVE_S = 30.0  #: a worker that beat within this time counts

# One at a time, so that the cap is kept exactly; held for a millisecond.
_LOCK = Statement(
    "SELECT pg_advisory_xact_lock(hashtextextended('spiderpool dispatch', 0))", sqlite="SELECT 1"
)
_SENT = Statement(
    """
    SELECT (SELECT count(*) FROM spiderpool_slot WHERE state = 'sent'),
           (SELECT COALESCE(sum(threads), 0)::bigint FROM spiderpool_worker WHERE seen_at > @now - :alive_s)
    """
)
# Virtual time: a spider's next slot stands at what it was served plus 1/weight for each slot before it. A
# spider that comes back after a rest begins where the least served of the working ones stands.
_NEXT = Statement(
    """
    WITH busy AS (
        SELECT COALESCE(min(r.served), 0) AS served FROM spiderpool_spider r
        WHERE r.name IN (
            SELECT t.spider FROM spiderpool_slot s JOIN spiderpool_task t ON t.id = s.task_id
            WHERE s.state IN ('sent', 'running')
        )
    ), due AS (
        SELECT s.task_id, s.n, s.due_at, t.spider, t.priority, t.queue,
               row_number() OVER (PARTITION BY t.spider ORDER BY t.priority, s.due_at, s.task_id, s.n) AS turn
        FROM spiderpool_slot s JOIN spiderpool_task t ON t.id = s.task_id
        WHERE s.state = 'due' AND s.due_at <= @now AND t.desired = 'run' AND t.status IN ('pending', 'running')
    )
    SELECT d.task_id, d.n, d.spider, d.priority, d.queue, 1.0 / COALESCE(r.weight, 1.0),
           GREATEST(COALESCE(r.served, 0), busy.served)
    FROM due d CROSS JOIN busy LEFT JOIN spiderpool_spider r ON r.name = d.spider
    ORDER BY d.priority, GREATEST(COALESCE(r.served, 0), busy.served) + d.turn / COALESCE(r.weight, 1.0), d.due_at
    LIMIT :room
    """
)
# A slot that a verb of a host's open transaction holds is left for the next time: nobody else waits for it.
_SEND = Statement(
    """
    UPDATE spiderpool_slot
    SET state = 'sent', epoch = epoch + 1, until = @now + :resend_s, due_at = NULL, sends = 0
    WHERE (task_id, n) IN (
        SELECT task_id, n FROM spiderpool_slot WHERE task_id = :task AND n = :n AND state = 'due'
        FOR UPDATE SKIP LOCKED
    )
    RETURNING epoch
    """
)
_SERVE = Statement(
    """
    INSERT INTO spiderpool_spider AS r (name, kind, enabled, weight, served, created_at)
    VALUES (:name, 'code', TRUE, 1.0, :served, :at)
    ON CONFLICT (name) DO UPDATE SET served = GREATEST(r.served, excluded.served)
    """
)
_HURRY = Statement("SELECT set_config('lock_timeout', '20ms', true)", sqlite="SELECT 1")
_NOW = Statement("SELECT @now")


def room(tx: Tx, settings: Settings) -> int:
    """Return how many more slots may be sent now."""
    row = tx.one(_SENT, alive_s=ALIVE_S)
    sent, threads = row if row is not None else (0, 0)
    return max(0, 2 * max(int(threads), settings.worker_threads) - int(sent))


def dispatch(tx: Tx, settings: Settings, limit: int) -> list[Message]:
    """Send up to ``limit`` due slots; the caller publishes the messages after the commit."""
    tx.all(_LOCK)
    free = min(limit, room(tx, settings))
    if free <= 0:
        return []
    ranked: list[tuple[int, Message]] = []
    served: dict[str, float] = {}
    # Sorted, because slots are locked in one order everywhere.
    rows = sorted(enumerate(tx.all(_NEXT, room=free)), key=lambda row: (str(row[1][0]), row[1][1]))
    for rank, (task, n, spider, priority, queue, share, before) in rows:
        sent: Any = tx.one(_SEND, task=task_uuid(task), n=n, resend_s=settings.resend_s)
        if sent is None:
            continue
        ranked.append((rank, Message(Ticket(task_uuid(task), n, sent[0]), queue, priority)))
        served[spider] = served.get(spider, before) + share
    if served:
        _count_served(tx, served)
    return [message for _, message in sorted(ranked)]


def _count_served(tx: Tx, served: dict[str, float]) -> None:
    """Write the spiders' shares, as far as their rows are free.

    A spider's row may be held by a host's open transaction (somebody edits its weight): then this turn does
    not count, rather than that all spiders wait.
    """
    row = tx.one(_NOW)
    at = tx.moment(row[0] if row else 0.0)
    for name in sorted(served):
        try:
            with tx.savepoint():
                tx.all(_HURRY)
                tx.run(_SERVE, name=name, served=served[name], at=at)
        except Exception as error:
            if not (tx.postgres and is_again(error)):
                raise
            log.debug("the share of spider %s is not counted: its row is held", name)
