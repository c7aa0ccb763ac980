"""What a crawl waits for while nothing is under way: a retry, or a site that asked for a rest."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlsplit

import sqlalchemy as sa
from sqlalchemy.orm import Session

from flask_spiderpool.cli.progress import Waiting
from flask_spiderpool.models import Lane, Request
from flask_spiderpool.terms import RequestState

LEAST_S = 1.0  #: shorter waits are the site's ordinary pace


@dataclass(frozen=True, slots=True)
class _Next:
    ready_at: float
    url: str
    reason: str | None
    message: str | None


def waiting(session: Session, now: float) -> Waiting | None:
    """Return for what and for how long the only task of this database waits; None if it does not.

    ``now`` is in seconds since 1970, as the store's own times.
    """
    if session.scalar(sa.select(Request.id).where(Request.state == RequestState.LEASED).limit(1)) is not None:
        return None
    retry, rest = _next_retry(session), _next_lane(session)
    found = min((one for one in (retry, rest) if one is not None), key=lambda one: one.ready_at, default=None)
    if found is None or found.ready_at - now < LEAST_S:
        return None
    why = found.reason or "it asked to be left alone"
    if "robots.txt" in (found.message or ""):
        why = f"robots.txt: {why}"
    parts = urlsplit(found.url)
    what = f"{parts.scheme}://{parts.netloc} ({why})"
    if retry is not None:
        retries = session.scalar(_COUNT_RETRIES) or 0
        what += ", 1 retry" if retries == 1 else f", {retries} retries"
    return Waiting(found.ready_at - now, what)


_RETRYING = Request.state == RequestState.WAITING
_COUNT_RETRIES = sa.select(sa.func.count()).select_from(Request).where(_RETRYING)


def _next_retry(session: Session) -> _Next | None:
    query = (
        sa.select(Request.ready_at, Request.url, Request.reason, Request.message)
        .where(_RETRYING)
        .order_by(Request.ready_at)
        .limit(1)
    )
    row = session.execute(query).first()
    return None if row is None else _Next(row[0] or 0.0, row[1], row[2], row[3])


def _next_lane(session: Session) -> _Next | None:
    lane = session.execute(
        sa.select(Lane.host_id, Lane.ready_at).where(Lane.has_work).order_by(Lane.ready_at).limit(1)
    ).first()
    if lane is None:
        return None
    of_host = sa.select(Request.url).where(Request.host_id == lane.host_id)
    url = session.scalar(of_host.where(Request.state == RequestState.QUEUED).limit(1))
    # The rest was asked for by the answer to a request that now waits for its next attempt.
    told = session.execute(
        sa.select(Request.reason, Request.message).where(_RETRYING, Request.host_id == lane.host_id).limit(1)
    ).first()
    reason, message = told if told is not None else (None, None)
    return None if url is None else _Next(lane.ready_at, url, reason, message)
