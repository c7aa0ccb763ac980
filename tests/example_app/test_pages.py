"""The host's own pages, joined with what the pool stores."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
import sqlalchemy as sa
from flask import Flask
from flask.testing import FlaskClient

from example_app import db
from example_app.models import Bookmark
from flask_spiderpool.models import Document, Page, Task
from tests.example_app.forms import sign_in, token_on

NOW = datetime(2026, 5, 4, 3, 2, tzinfo=UTC)
HOSTILE = "<script>alert('lantern')</script>"


def _crawled(
    host: Flask, *, title: str, text: str, markdown: str = "", author: str | None = "Staff", n: int = 1
) -> int:
    """Store what a crawl would have stored; return the document's id."""
    with host.app_context():
        task = Task(
            spider="news", queue="spiderpool", created_at=NOW, discovered=9, done=3, failed=1, skipped=2
        )
        document = Document(
            spider="news",
            fingerprint=bytes([n]) * 16,
            url=f"http://127.0.0.1:5000/news/{n}",
            first_seen=NOW,
            last_seen=NOW,
            last_changed=NOW,
        )
        db.session.add_all([task, document])
        db.session.flush()
        page = Page(
            document_id=document.id,
            task_id=task.id,
            request_id=n,
            url=document.url,
            status_code=200,
            title=title,
            text=text,
            markdown=markdown,
            meta={"author": author, "published": "2026-05-01"} if author else {},
            content_hash=bytes(16),
            fetched_at=NOW,
        )
        db.session.add(page)
        db.session.flush()
        document.page_id = page.id
        db.session.commit()
        return document.id


def test_home_works_before_the_pool_has_tables(visitor: FlaskClient) -> None:
    """A fresh clone's home page says what to do rather than fail."""
    response = visitor.get("/")
    assert response.status_code == 200
    assert "spiderpool db upgrade" in response.text
    assert "Articles appear here" in response.text


def test_home_notices_the_pools_tables_when_they_come(pool_tables: Flask) -> None:
    """Once the pool's tables stand, the home page reads them, and the host's own table joins them."""
    assert "Nothing has been crawled yet" in pool_tables.test_client().get("/").text
    with pool_tables.app_context():
        assert sa.inspect(db.engine).has_table(Bookmark.__tablename__)


def test_home_shows_tasks_and_articles(pool_tables: Flask) -> None:
    """Tasks show what has an outcome; signed articles come before mere lists."""
    _crawled(pool_tables, title="A list of things", text="One. Two.", author=None, n=1)
    _crawled(pool_tables, title="A real article", text="A real article\nIts first sentence.", n=2)
    html = pool_tables.test_client().get("/").text
    assert "6 of 9 URLs found so far: 3 done, 1 failed, 2 skipped" in html
    assert "A real article" in html
    assert "Its first sentence." in html
    assert "A list of things" not in html


@pytest.mark.parametrize("path", ["/", "/articles/1"])
def test_crawled_text_is_never_markup(pool_tables: Flask, path: str) -> None:
    """What a page out there said is shown as text, whatever it holds."""
    _crawled(pool_tables, title=HOSTILE, text=HOSTILE)
    html = pool_tables.test_client().get(path).text
    assert "<script" not in html
    assert "&lt;script&gt;" in html


def test_subheadings_are_headings(pool_tables: Flask) -> None:
    """What the Markdown calls a heading is one; its words are escaped like all others."""
    _crawled(
        pool_tables,
        title="Seeds",
        text=f"Seeds\nThey grew.\nWhat is known\nLittle.\n{HOSTILE}",
        markdown=f"# Seeds\n\nThey grew.\n\n## What is known\n\nLittle.\n\n### {HOSTILE}",
    )
    html = pool_tables.test_client().get("/articles/1").text
    assert "<h2>What is known</h2>" in html
    assert "<p>Little.</p>" in html
    assert html.count(">Seeds</h") == 1
    assert "<h2>&lt;script&gt;" in html
    assert "<script" not in html


def test_the_pools_status_is_linked_for_those_who_may_look(pool_tables: Flask) -> None:
    """A visitor is led to the sign-in, not to bare JSON that says no."""
    client = pool_tables.test_client()
    assert 'href="/spiderpool/spool/status"' not in client.get("/").text
    sign_in(client, "viewer", "viewer-lantern")
    assert 'href="/spiderpool/spool/status"' in client.get("/").text
    assert client.get("/spiderpool/spool/status").status_code == 200


def test_a_bookmark_joins_host_and_pool(pool_tables: Flask) -> None:
    """A signed-in user keeps an article with a note, changes the note, sees it, and forgets it."""
    document_id = _crawled(pool_tables, title="Worth keeping", text="Words.")
    client = pool_tables.test_client()
    sign_in(client, "viewer", "viewer-lantern")
    for note in ("first thought", HOSTILE):
        token = token_on(client.get(f"/articles/{document_id}"))
        kept = client.post(f"/articles/{document_id}/bookmark", data={"note": note, "csrf_token": token})
        assert kept.status_code == 302
    page = client.get("/bookmarks")
    assert page.text.count("Worth keeping") == 1
    assert "&lt;script&gt;" in page.text
    client.post(f"/articles/{document_id}/forget", data={"csrf_token": token_on(page)})
    assert "Nothing kept yet" in client.get("/bookmarks").text


def test_bookmarks_are_ones_own(pool_tables: Flask) -> None:
    """What one user keeps, another does not see."""
    document_id = _crawled(pool_tables, title="Worth keeping", text="Words.")
    keeper, other = pool_tables.test_client(), pool_tables.test_client()
    sign_in(keeper, "editor", "editor-lantern")
    token = token_on(keeper.get(f"/articles/{document_id}"))
    keeper.post(f"/articles/{document_id}/bookmark", data={"note": "", "csrf_token": token})
    sign_in(other, "viewer", "viewer-lantern")
    assert "Worth keeping" in keeper.get("/bookmarks").text
    assert "Worth keeping" not in other.get("/bookmarks").text


@pytest.mark.parametrize("fixture", ["host", "pool_tables"])
def test_an_unknown_article_is_not_found(request: pytest.FixtureRequest, fixture: str) -> None:
    """With the pool's tables and without, an article that is not there answers 404 in the host's clothes."""
    app: Flask = request.getfixturevalue(fixture)
    response = app.test_client().get("/articles/77")
    assert response.status_code == 404
    assert "Nothing stands here" in response.text
