"""Settle a batch, and when its data cannot be stored, page by page: one bad page must not sink fifty."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace

from flask_spiderpool.crawl.request import Outcome, Settled, Ticket, Verdict
from flask_spiderpool.store.context import Context
from flask_spiderpool.store.engine import is_data_fault
from flask_spiderpool.store.settle import settle
from flask_spiderpool.store.sql import Tx
from flask_spiderpool.terms import Reason

log = logging.getLogger("spiderpool.store")

Write = Callable[[Callable[[Tx], Settled]], Settled]


def settle_batch(write: Write, context: Context, ticket: Ticket, outcomes: Sequence[Outcome]) -> Settled:
    """Settle all in one transaction, or each in one of its own when the data of one cannot be stored."""
    try:
        return write(lambda tx: settle(tx, context, ticket, outcomes))
    except Exception as error:
        if not is_data_fault(error):
            raise
        log.warning("a batch of %d pages is settled page by page: %s", len(outcomes), error)
    settled = [_settle_page(write, context, ticket, outcome) for outcome in outcomes]
    return Settled(
        sum(one.added for one in settled),
        settled[-1].desired,
        repeated=all(one.repeated for one in settled),
    )


def _settle_page(write: Write, context: Context, ticket: Ticket, outcome: Outcome) -> Settled:
    """Settle one page; if it is the bad one, in the same transaction as ``failed(store_error)``.

    Its links are kept if they can be: the engine names a link once, so that no other page of this slice may
    bring it again.
    """
    bare = replace(
        outcome,
        verdict=Verdict.FAILED,
        reason=Reason.STORE_ERROR,
        message="its data could not be stored",
        status_code=None,
        wire_bytes=0,
        elapsed_ms=0,
        page=None,
        items=[],
        links=[],
        logs=[],
    )

    def settle_or_fail(tx: Tx) -> Settled:
        try:
            with tx.savepoint():
                return settle(tx, context, ticket, [outcome])
        except Exception as error:
            if not is_data_fault(error):
                raise
            log.warning("the page of %s could not be stored: %s", outcome.request.url[:200], error)
            bare.message = f"its data could not be stored: {type(error).__name__}"
        try:
            with tx.savepoint():
                return settle(tx, context, ticket, [replace(bare, links=outcome.links)])
        except Exception as error:
            if not is_data_fault(error):
                raise
            return settle(tx, context, ticket, [bare])

    return write(settle_or_fail)
