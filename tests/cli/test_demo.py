"""What ``demo`` shows of what was found."""

from __future__ import annotations

from datetime import UTC, datetime

from flask import Flask
from sqlalchemy.orm import Session

from flask_spiderpool.cli.demo import SHOWN_PAGES, _newest
from flask_spiderpool.control import start
from flask_spiderpool.models import Document, Page
from tests.cli.conftest import Cli

AT = datetime(2026, 1, 2, tzinfo=UTC)


def put(session: Session, app: Flask, titles: dict[str, dict[str, str]]) -> None:
    state = app.extensions["spiderpool"]
    task = start(session, state, "quotes")
    for number, (title, meta) in enumerate(titles.items()):
        key = number.to_bytes(16)
        document = Document(
            spider="quotes", fingerprint=key, url=title, first_seen=AT, last_seen=AT, last_changed=AT
        )
        session.add(document)
        session.flush()
        page = Page(
            document_id=document.id,
            task_id=task.id,
            request_id=1,
            url=title,
            status_code=200,
            title=title,
            meta=meta,
            content_hash=key,
            fetched_at=AT,
        )
        session.add(page)
        session.flush()
        document.page_id = page.id


def test_signed_articles_are_shown_before_lists(cli: Cli, app: Flask):
    """A page that names its author is an article; a date alone also stands on lists. The newest come first."""
    titles = {"signed": {"author": "A. B.", "published": "2026-01-01"}}
    titles |= {f"list {n}": {"published": "2026-01-01"} for n in range(SHOWN_PAGES)}
    titles |= {f"plain {n}": {} for n in range(SHOWN_PAGES)}
    with app.app_context(), app.extensions["spiderpool"].session() as session:
        put(session, app, titles)
        shown = list(_newest(session, "quotes"))[::2]
        session.rollback()
    assert shown == ["  signed", *(f"  list {n}" for n in range(SHOWN_PAGES - 1, 0, -1))]
