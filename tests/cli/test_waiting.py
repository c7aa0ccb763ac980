"""What a crawl that stands still waits for, read from a real frontier."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session

from flask_spiderpool.cli.crawl_file import CrawlFile
from flask_spiderpool.cli.waiting import waiting
from flask_spiderpool.terms import RequestState

NOW = 1_000_000.0


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Session]:
    """A crawl of one page."""
    crawl = CrawlFile.new(tmp_path / "x.crawl", {"settings": {}, "output": None})
    try:
        crawl.start("http://a.example/")
        with Session(crawl._engine) as session:
            yield session
    finally:
        crawl.close(delete=True)


def put(session: Session, state: RequestState, ready_at: float | None = None, **told: str | None) -> None:
    session.execute(
        sa.text(
            "UPDATE spiderpool_request SET state = :state, ready_at = :at, reason = :reason, message = :message"
        ),
        {"state": state.value, "at": ready_at, "reason": told.get("reason"), "message": told.get("message")},
    )
    session.execute(
        sa.text("UPDATE spiderpool_lane SET has_work = :work, queued = :work, ready_at = :at"),
        {"work": int(state is RequestState.QUEUED), "at": ready_at or 0.0},
    )


def test_work_is_no_waiting(session: Session):
    """Not what is queued, nor what is under way, nor an ordinary pause."""
    put(session, RequestState.QUEUED)
    assert waiting(session, NOW) is None
    put(session, RequestState.LEASED, NOW + 30)
    assert waiting(session, NOW) is None
    put(session, RequestState.QUEUED, NOW + 0.5)
    assert waiting(session, NOW) is None


def test_a_retry_is_named_with_its_cause(session: Session):
    """The site, the seconds, the reason, and how many wait."""
    put(session, RequestState.WAITING, NOW + 4, reason="http_503")
    assert str(waiting(session, NOW)) == "waiting 4 s for http://a.example (http_503), 1 retry"


def test_a_missing_robots_txt_is_named(session: Session):
    """Its cause alone would seem to be that of the page."""
    put(
        session,
        RequestState.WAITING,
        NOW + 58,
        reason="dns",
        message="http://a.example/robots.txt cannot be read (dns); nothing of the origin is fetched",
    )
    assert str(waiting(session, NOW)) == "waiting 58 s for http://a.example (robots.txt: dns), 1 retry"


def test_a_resting_site_is_named(session: Session):
    """A lane that is not ready before long."""
    put(session, RequestState.QUEUED, NOW + 20)
    assert str(waiting(session, NOW)) == "waiting 20 s for http://a.example (it asked to be left alone)"
