"""The routes of the news site: HTML with ETag and Last-Modified, a sitemap, nothing that changes."""

from __future__ import annotations

from datetime import UTC, datetime

from flask import Blueprint, Response, abort, make_response, redirect, render_template, request
from werkzeug.wrappers import Response as BaseResponse

from example_app.news.edition import (
    ARTICLES,
    HOUSE_PAGES,
    NOTES,
    REDIRECTS,
    ROBOTS_REFUSED,
    ROOT,
    SECTION_SLUGS,
    SECTIONS,
    TAGS,
    YEARS,
    Article,
    archive_path,
    tag_path,
)

blueprint = Blueprint("news", __name__, url_prefix=ROOT)

_BY_PATH = {article.path: article for article in ARTICLES}
_TAG_OF = {tag_path(name).rpartition("/")[2]: name for name in TAGS}
_NEWEST = ARTICLES[0].updated


@blueprint.app_template_global("at")
def at(path: str) -> str:
    """Return the address of a site path, also where the app is mounted below another path."""
    return request.script_root + path


@blueprint.app_template_filter("day")
def day(moment: datetime | None) -> str:
    """Show a date as ``6 January 2025``."""
    return f"{moment.day} {moment:%B %Y}" if moment else ""


def _page(template: str, changed_at: datetime, **values: object) -> BaseResponse:
    """Render a page that a client may ask for conditionally; answers 304 where nothing changed."""
    response = make_response(
        render_template(template, sections=SECTIONS.values(), tag_path=tag_path, **values)
    )
    response.last_modified = changed_at
    response.cache_control.max_age = 60
    response.add_etag()
    return response.make_conditional(request)


@blueprint.get("/")
def front() -> BaseResponse:
    """Show the newest articles of all sections."""
    return _page(
        "news/front.html",
        _NEWEST,
        lead=ARTICLES[0],
        newest=ARTICLES[1:7],
        columns=[(section, section.articles[2:5]) for section in SECTIONS.values()],
    )


@blueprint.get("/<any(about, corrections, letters):name>")
def house(name: str) -> BaseResponse:
    """Show a page of the house."""
    return _page("news/house.html", _NEWEST, name=name, heading=HOUSE_PAGES[name], count=len(ARTICLES))


@blueprint.get("/letterbox")
def letterbox() -> BaseResponse:
    """Redirect an old address that one article still links to."""
    return redirect(at(REDIRECTS[f"{ROOT}/letterbox"]), 301)


@blueprint.get("/desk/tomorrow")
def tomorrow() -> BaseResponse:
    """Show a page that robots.txt keeps robots away from; a crawler that asks for it did not look."""
    return _page("news/house.html", _NEWEST, name="tomorrow", heading="Tomorrow's page", path=ROBOTS_REFUSED)


@blueprint.get(f"/<any({', '.join(SECTION_SLUGS)}):slug>/", defaults={"n": 1})
@blueprint.get(f"/<any({', '.join(SECTION_SLUGS)}):slug>/page/<int:n>")
def section(slug: str, n: int) -> BaseResponse:
    """Show one page of a section's list."""
    chosen = SECTIONS[slug]
    articles = chosen.on_page(n) if n >= 1 else ()
    if not articles:
        abort(404)
    return _page("news/section.html", articles[0].updated, section=chosen, articles=articles, n=n)


@blueprint.get(f"/<any({', '.join(SECTION_SLUGS)}):slug>/<name>")
def article(slug: str, name: str) -> BaseResponse:
    """Show an article."""
    found = _BY_PATH.get(f"{ROOT}/{slug}/{name}")
    if found is None:
        abort(404)
    return _page(
        "news/article.html",
        found.updated,
        article=found,
        section=SECTIONS[slug],
        more=_more(found),
        note=NOTES.get(found.path),
    )


def _more(found: Article) -> list[Article]:
    """Return the three articles of its section nearest before it, else after it."""
    listed = [a for a in SECTIONS[found.section].articles if a.listed and a is not found]
    older = [a for a in listed if a.number < found.number]
    return older[:3] if len(older) >= 3 else listed[:3]


@blueprint.get("/tags/")
def tags() -> BaseResponse:
    """Show all tags."""
    return _page("news/tags.html", _NEWEST, tags=TAGS)


@blueprint.get("/tags/<slug>")
def tag(slug: str) -> BaseResponse:
    """Show the articles of a tag."""
    name = _TAG_OF.get(slug)
    if name is None:
        abort(404)
    articles = TAGS[name]
    return _page(
        "news/list.html", articles[0].updated, heading=f"Tagged “{name}”", articles=articles, up="tags"
    )


@blueprint.get("/archive")
def archive() -> BaseResponse:
    """Show the archive: its index, or one section's year."""
    slug, year = request.args.get("section"), request.args.get("year", type=int)
    if slug is None and year is None:
        rows = [
            (
                SECTIONS[slug],
                [(y, archive_path(slug, y), archive_path(slug, y, other_order=True)) for y in YEARS],
            )
            for slug in SECTION_SLUGS
        ]
        return _page("news/archive.html", _NEWEST, rows=rows, years=YEARS)
    if slug not in SECTIONS or year not in YEARS:
        abort(404)
    path = archive_path(slug, year)
    if f"{ROOT}/archive?{request.query_string.decode('latin-1')}" != path:
        return redirect(at(path), 301)  # the same query spelled another way
    articles = [a for a in SECTIONS[slug].articles if a.published.year == year and a.listed]
    heading = f"{SECTIONS[slug].title}, {year}"
    return _page("news/list.html", articles[0].updated, heading=heading, articles=articles, up="archive")


@blueprint.get("/sitemap.xml")
def sitemap() -> BaseResponse:
    """Name every page of the site but the one that only pagination leads to."""
    changed = {a.path: a.updated for a in ARTICLES if a.listed}
    paths = [f"{ROOT}/", *(s.page_path(1) for s in SECTIONS.values()), *changed]
    response = Response(
        render_template("news/sitemap.xml", paths=paths, changed=changed, newest=_NEWEST, utc=UTC),
        mimetype="application/xml",
    )
    response.last_modified = _NEWEST
    response.add_etag()
    return response.make_conditional(request)
