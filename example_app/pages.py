"""The host's own pages: what runs here, what was crawled, what somebody wants to keep."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from flask import Blueprint, Response, abort, flash, redirect, render_template, request, url_for
from flask_login import current_user, login_required
from werkzeug.wrappers import Response as BaseResponse

from example_app.csrf import protect
from example_app.extensions import db
from example_app.models import Bookmark
from example_app.tables import prepare_tables
from flask_spiderpool.models import Document, Page, Task
from flask_spiderpool.terms import ENDED

blueprint = Blueprint("pages", __name__)
protect(blueprint)
blueprint.add_app_template_filter(lambda page: " ".join(block.text for block in _blocks(page)), "excerpt")

_HEADING = re.compile(r"^#{1,6} +(.+)$", re.MULTILINE)  #: in Markdown
_LATEST = 12  #: articles on the home page
_LOOK_AT = 60  #: newest documents among which articles are looked for


@dataclass(frozen=True, slots=True)
class Progress:
    """One task as the home page shows it."""

    task: Task
    settled: int
    ended: bool

    @classmethod
    def of(cls, task: Task) -> Progress:
        """Count what has an outcome."""
        return cls(task, task.done + task.failed + task.skipped, task.status in ENDED)


@blueprint.get("/")
def home() -> str:
    """Show what runs here, the tasks and the newest crawled articles."""
    if not prepare_tables():
        return render_template("host/home.html", tasks=None, articles=[])
    tasks = db.session.scalars(sa.select(Task).order_by(Task.created_at.desc()).limit(6))
    return render_template(
        "host/home.html", tasks=[Progress.of(task) for task in tasks], articles=_latest_articles()
    )


def _latest_articles() -> list[tuple[Document, Page]]:
    """Return the newest articles: the current version of each document, signed pages before mere lists."""
    newest = (
        sa.select(Document, Page)
        .join(Page, Page.id == Document.page_id)
        .order_by(Page.id.desc())
        .limit(_LOOK_AT)
    )
    found = [(document, page) for document, page in db.session.execute(newest)]
    signed = [pair for pair in found if (pair[1].meta or {}).get("author")]
    return (signed or found)[:_LATEST]


@dataclass(frozen=True, slots=True)
class Block:
    """A paragraph or a subheading of a crawled page; text, never markup."""

    text: str
    is_heading: bool = False


def _blocks(page: Page) -> list[Block]:
    """Return a page's text in blocks, without the heading that the title says already.

    The Markdown says only which lines are headings; the words are those of the plain text.
    """
    headings = {found[1].strip() for found in _HEADING.finditer(page.markdown or "")}
    lines = [line.strip() for line in (page.text or "").splitlines()]
    return [Block(line, line in headings) for line in lines if line and line.lstrip("# ") != page.title]


@blueprint.get("/articles/<int:document_id>")
def article(document_id: int) -> str:
    """Show a crawled document as it was last stored. Its text is text, never markup."""
    document, page = _document(document_id)
    kept = None
    if current_user.is_authenticated:
        kept = db.session.scalar(
            sa.select(Bookmark).filter_by(user_id=current_user.id, document_id=document_id)
        )
    return render_template("host/article.html", document=document, page=page, blocks=_blocks(page), kept=kept)


def _document(document_id: int) -> tuple[Document, Page]:
    """Return a document with its current version, or answer 404."""
    row: Any = None
    if prepare_tables():
        row = db.session.execute(
            sa.select(Document, Page)
            .join(Page, Page.id == Document.page_id)
            .where(Document.id == document_id)
        ).one_or_none()
    if row is None:
        abort(404)
    return row[0], row[1]


@blueprint.get("/bookmarks")
@login_required  # type: ignore[untyped-decorator]  # flask_login has no types
def bookmarks() -> str:
    """Show what the signed-in user has kept."""
    rows: list[Any] = []
    if prepare_tables():
        rows = list(
            db.session.execute(
                sa.select(Bookmark, Document, Page)
                .join(Document, Document.id == Bookmark.document_id)
                .join(Page, Page.id == Document.page_id)
                .where(Bookmark.user_id == current_user.id)
                .order_by(Bookmark.created_at.desc(), Bookmark.id.desc())
            )
        )
    return render_template("host/bookmarks.html", rows=rows)


@blueprint.post("/articles/<int:document_id>/bookmark")
@login_required  # type: ignore[untyped-decorator]  # flask_login has no types
def keep(document_id: int) -> BaseResponse:
    """Keep a document, or change the note on it."""
    document, _ = _document(document_id)
    key = {"user_id": current_user.id, "document_id": document.id}
    bookmark = db.session.scalar(sa.select(Bookmark).filter_by(**key)) or Bookmark(**key)
    bookmark.note = request.form.get("note", "").strip()[:500]
    db.session.add(bookmark)
    db.session.commit()
    flash("Kept among your bookmarks.", "done")
    return redirect(url_for("pages.article", document_id=document_id))


@blueprint.post("/articles/<int:document_id>/forget")
@login_required  # type: ignore[untyped-decorator]  # flask_login has no types
def forget(document_id: int) -> BaseResponse:
    """Take a document off the bookmarks."""
    if prepare_tables():
        db.session.execute(sa.delete(Bookmark).filter_by(user_id=current_user.id, document_id=document_id))
        db.session.commit()
    return redirect(url_for("pages.bookmarks"))


@blueprint.get("/robots.txt")
def robots() -> Response:
    """Robots may read the news site, but not tomorrow's page and nothing else of this host."""
    root = request.script_root
    lines = [
        "User-agent: *",
        f"Allow: {root}/news/",
        f"Allow: {root}/static/",
        f"Disallow: {root}/news/desk/",
        f"Disallow: {root}/",
        "",
        f"Sitemap: {request.host_url.rstrip('/')}{root}/news/sitemap.xml",
    ]
    return Response("\n".join(lines) + "\n", mimetype="text/plain")
