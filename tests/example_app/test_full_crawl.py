"""The whole way, as somebody with a fresh clone walks it: real processes, real HTTP on loopback."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session

from example_app.news import ALL_PAGES, ARTICLES, BROKEN_LINKS, ROBOTS_REFUSED
from example_app.news.edition import SECTIONS
from flask_spiderpool.models import Document, Item, Page, Request, Task
from flask_spiderpool.terms import RequestState, Status

ROOT = Path(__file__).parents[2]


def _demo(instance: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Run the demo to its end in an instance folder of its own; no setting of this test run reaches it."""
    environ = {k: v for k, v in os.environ.items() if not k.startswith(("SPIDERPOOL_", "FLASK_"))}
    return subprocess.run(
        [
            sys.executable,
            "-m",
            "flask",
            "--app",
            "example_app",
            "spiderpool",
            "demo",
            "--once",
            "--port",
            "0",
            *options,
        ],
        cwd=ROOT,
        env={**environ, "FLASK_INSTANCE_PATH": str(instance)},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


def _path(url: str) -> str:
    parts = urlsplit(url)
    return parts.path + (f"?{parts.query}" if parts.query else "")


@pytest.mark.blackbox
def test_the_demo_finds_every_page_once(tmp_path: Path) -> None:
    """``demo --once`` stores exactly the pages that are known, with their text, and says what lay in its way."""
    done = _demo(tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    with Session(sa.create_engine(f"sqlite:///{tmp_path / 'example.db'}")) as session:
        task = session.scalars(sa.select(Task)).one()
        assert (task.spider, task.status) == ("news", Status.FINISHED)
        assert task.discovered == task.done + task.failed + task.skipped
        documents = session.scalars(sa.select(Document.url)).all()
        assert sorted(map(_path, documents)) == sorted(ALL_PAGES)
        assert session.scalar(sa.select(sa.func.count()).select_from(Page)) == len(ALL_PAGES)
        failed = session.execute(
            sa.select(Request.url, Request.reason).where(Request.state == RequestState.FAILED)
        ).all()
        assert sorted((_path(url), reason) for url, reason in failed) == [
            (p, "http_404") for p in sorted(BROKEN_LINKS)
        ]
        refused = session.execute(
            sa.select(Request.url, Request.status_code).where(Request.reason == "robots")
        ).all()
        assert [(_path(url), status) for url, status in refused] == [(ROBOTS_REFUSED, None)]
        _check_article(session)


def _check_article(session: Session) -> None:
    """The text that was stored is the article's, and its metadata what the page says."""
    article = ARTICLES[40]
    page = session.scalars(sa.select(Page).where(Page.url.endswith(article.path))).one()
    assert page.title == article.title
    assert page.text is not None
    for block in article.body:
        assert block.text in page.text
    assert page.meta["author"] == "Staff"
    assert str(page.meta["published"]).startswith(article.published.date().isoformat())


@pytest.mark.blackbox
def test_the_headlines_spider_finds_every_article(tmp_path: Path) -> None:
    """The spider with a parse function yields one item an article, and reads no article's page for it."""
    done = _demo(tmp_path, "--spider", "headlines")
    assert done.returncode == 0, done.stdout + done.stderr
    with Session(sa.create_engine(f"sqlite:///{tmp_path / 'example.db'}")) as session:
        items = session.scalars(sa.select(Item.data)).all()
        assert sorted(item["headline"] for item in items) == sorted(a.title for a in ARTICLES)
        task = session.scalars(sa.select(Task)).one()
        assert task.done == 1 + sum(section.page_count for section in SECTIONS.values())
