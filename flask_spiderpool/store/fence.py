"""The first statement of every transaction of a slice: does it still hold its slot?"""

from __future__ import annotations

from typing import NamedTuple

from flask_spiderpool.crawl.request import Ticket
from flask_spiderpool.errors import Fenced
from flask_spiderpool.store.sql import Statement, Tx

_HOLD = Statement(
    """
    SELECT leased, @now FROM spiderpool_slot
    WHERE task_id = :task AND n = :n AND epoch = :epoch AND state = 'running' FOR UPDATE
    """
)


class Held(NamedTuple):
    """The locked slot: its leased requests, and the store's clock."""

    leased: int
    now: float


def hold(tx: Tx, ticket: Ticket) -> Held:
    """Lock the ticket's slot. Raises :class:`~flask_spiderpool.errors.Fenced` when its epoch is over."""
    row = tx.one(_HOLD, task=ticket.task_id, n=ticket.n, epoch=ticket.epoch)
    if row is None:
        raise Fenced
    return Held(*row)
