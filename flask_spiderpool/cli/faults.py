"""Why requests of a task failed or were skipped: each reason counted, with an example."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.orm import Session

from flask_spiderpool.models import Request
from flask_spiderpool.terms import RequestState

MOST = 5  #: reasons shown, the commonest first
SHOWN_CHARS = 200  #: of a message


@dataclass(frozen=True, slots=True)
class Fault:
    """One reason."""

    reason: str
    count: int
    url: str  #: of one of the requests
    message: str | None  #: what was said about that one

    def __str__(self) -> str:
        """``3 x http_404, as https://...``."""
        said = " ".join((self.message or "").split())[:SHOWN_CHARS]
        return f"  {self.count} x {self.reason}, as {self.url}" + (f": {said}" if said else "")

    @property
    def refused_address(self) -> str | None:
        """The ``host:port`` that was refused and may be allowed.

        After a redirect it is not the URL's own: it stands in the message alone.
        """
        found = re.search(r"by adding '(\S+)' to", self.message or "")
        return found[1] if found else None


def faults(session: Session, task_id: UUID) -> Iterator[Fault]:
    """Yield the commonest reasons. Reads the failed and skipped requests of the task."""
    count = sa.func.count().label("count")
    grouped = (
        sa.select(Request.reason, count, sa.func.min(Request.id).label("example"))
        .where(Request.task_id == task_id, Request.state.in_((RequestState.FAILED, RequestState.SKIPPED)))
        .group_by(Request.reason)
        .order_by(count.desc())
        .limit(MOST)
        .subquery()
    )
    query = (
        sa.select(grouped.c.reason, grouped.c.count, Request.url, Request.message)
        .join(Request, Request.id == grouped.c.example)
        .order_by(grouped.c.count.desc(), grouped.c.reason)
    )
    for reason, number, url, message in session.execute(query):
        yield Fault(str(reason), number, url, message)
