"""What must hold at a crawl's end, whatever was killed meanwhile."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.orm import Session

from flask_spiderpool.models import Document, Lane, Page, Request, Slot, Task
from flask_spiderpool.terms import RequestState
from tests.blackbox.deployment import Deployment
from tests.blackbox.life import Kill
from tests.blackbox.site import Site
from tests.blackbox.site_process import forbidden

UNSETTLED_S = 2.0  #: a page may be fetched again if its first GET lies this little before its worker's death
CLOCK_S = 0.05  #: a kill is noted once the process is gone, a moment after it can have sent its last bytes


@dataclass(frozen=True)
class Numbers:
    """A task's numbers, counted row by row and as its counters say, in one snapshot."""

    by_state: dict[RequestState, int]
    discovered: int
    done: int
    failed: int
    skipped: int
    lanes_queued: int
    slots_leased: int

    def check(self) -> None:
        """See that counters and rows are one (PROTOCOL, *Finish, pause, stop*)."""
        counted = {state: self.by_state.get(state, 0) for state in RequestState}
        assert sum(counted.values()) == self.discovered, self
        assert counted[RequestState.DONE] == self.done, self
        assert counted[RequestState.FAILED] == self.failed, self
        assert counted[RequestState.SKIPPED] == self.skipped, self
        assert counted[RequestState.LEASED] == self.slots_leased, self
        assert counted[RequestState.QUEUED] == self.lanes_queued, self


def numbers(session: Session, task_id: UUID) -> Numbers:
    """Read a task's numbers in one statement, so that they are of one moment on every database."""
    state = sa.select(sa.func.count()).select_from(Request).where(Request.task_id == task_id)
    columns = [
        sa.select(column).where(Task.id == task_id).scalar_subquery()
        for column in (Task.discovered, Task.done, Task.failed, Task.skipped)
    ]
    columns += [state.where(Request.state == number.value).scalar_subquery() for number in RequestState]
    columns += [
        sa.select(sa.func.coalesce(sa.func.sum(Lane.queued), 0))
        .where(Lane.task_id == task_id)
        .scalar_subquery(),
        sa.select(sa.func.coalesce(sa.func.sum(Slot.leased), 0))
        .where(Slot.task_id == task_id)
        .scalar_subquery(),
    ]
    discovered, done, failed, skipped, *rest = session.execute(sa.select(*columns)).one()
    counts, (lanes, slots) = rest[: len(RequestState)], rest[len(RequestState) :]
    by_state = dict(zip(RequestState, counts, strict=True))
    return Numbers(by_state, discovered, done, failed, skipped, int(lanes), int(slots))


def check_stored_once(deployment: Deployment, task_id: UUID) -> None:
    """Every page of the site is one document with one stored version, and the numbers reconcile."""
    site = deployment.site
    with deployment.session() as session:
        found = numbers(session, task_id)
        found.check()
        assert found.done == site.pages, deployment.report(task_id)
        assert found.failed == 0, deployment.report(task_id)
        assert found.skipped == forbidden(site.pages)
        assert found.discovered == found.done + found.skipped
        urls = list(session.scalars(sa.select(Document.url)))
        assert len(urls) == site.pages
        assert {url.removeprefix(f"http://{site.address}") for url in urls} == site.paths
        assert session.scalar(sa.select(sa.func.count()).select_from(Page)) == site.pages
        # A page that was settled twice would have been found unchanged the second time.
        stored, unchanged = session.execute(
            sa.select(Task.pages, Task.unchanged).where(Task.id == task_id)
        ).one()
        assert (stored, unchanged) == (site.pages, 0)
        without = sa.select(sa.func.count()).select_from(Document).where(Document.page_id.is_(None))
        assert session.scalar(without) == 0


def unexplained(site: Site, kills: Sequence[Kill]) -> list[str]:
    """Return the repeated GETs that no kill explains: all but the last must lie just before their worker's."""
    kill_of = {kill.pid: kill for kill in kills}
    faults = []
    for path, gets in site.repeated().items():
        for get in gets[:-1]:
            kill = kill_of.get(get.pid)
            if kill is None:
                faults.append(f"{path}: asked again though worker {get.pid} was not killed")
            elif not -CLOCK_S <= kill.at - get.at <= UNSETTLED_S:
                faults.append(
                    f"{path}: asked {kill.at - get.at:.2f} s before {kill.what} {kill.pid} was killed"
                )
    return faults
