"""The site as a crawler meets it."""

from __future__ import annotations

import re
from html import unescape
from urllib import robotparser
from urllib.parse import urljoin, urlsplit

import pytest
from flask import Flask
from flask.testing import FlaskClient
from lxml import etree

from example_app.news import (
    ALL_PAGES,
    ARTICLES,
    BROKEN_LINKS,
    DUPLICATE_SPELLINGS,
    PAGINATION_ONLY,
    REDIRECTS,
    ROBOTS_REFUSED,
)
from example_app.news.edition import SECTIONS


@pytest.fixture
def app(host: Flask) -> Flask:
    """Under this name pytest-flask finds it and gives the tests ``client``."""
    return host


def _links(base: str, html: str) -> list[str]:
    found = []
    for href in re.findall(r'<a\b[^>]*?\shref="([^"]*)"', html):
        parts = urlsplit(urljoin(f"http://localhost{base}", unescape(href)))
        found.append(parts.path + (f"?{parts.query}" if parts.query else ""))
    return found


def _walk(client: FlaskClient) -> tuple[dict[str, int], dict[str, set[str]]]:
    """Follow every link from the front page; return each address's status, and who links to it."""
    statuses: dict[str, int] = {}
    linked_from: dict[str, set[str]] = {"/news/": set()}
    todo = ["/news/"]
    while todo:
        path = todo.pop()
        if path in statuses:
            continue
        response = client.get(path)
        statuses[path] = response.status_code
        if response.status_code == 200:
            for link in _links(path, response.text):
                if link != "#content":
                    linked_from.setdefault(link, set()).add(path)
                    todo.append(link)
    return statuses, linked_from


def test_links_lead_to_exactly_the_pages_that_are_named(client: FlaskClient) -> None:
    """Whoever follows every link finds ALL_PAGES, the obstacles, and nothing else."""
    statuses, linked_from = _walk(client)
    assert {p for p, status in statuses.items() if status == 200} - {ROBOTS_REFUSED} == set(ALL_PAGES)
    assert {p for p, status in statuses.items() if status == 404} == set(BROKEN_LINKS)
    assert {p for p, status in statuses.items() if status == 301} == {*REDIRECTS, *DUPLICATE_SPELLINGS}
    assert statuses[ROBOTS_REFUSED] == 200
    last_page = SECTIONS["kitchen"].page_path(SECTIONS["kitchen"].page_count)
    assert linked_from[PAGINATION_ONLY] - {PAGINATION_ONLY} == {last_page}


@pytest.mark.parametrize(("old", "new"), [*REDIRECTS.items(), *DUPLICATE_SPELLINGS.items()])
def test_old_and_second_addresses_redirect(client: FlaskClient, old: str, new: str) -> None:
    """An address that moved, or that spells its query another way, leads to the page that is named."""
    response = client.get(old)
    assert response.status_code == 301
    assert response.headers["Location"] == new


@pytest.mark.parametrize(
    "path", ["/news/", "/news/city/", "/news/archive", ARTICLES[9].path, "/news/sitemap.xml"]
)
def test_an_unchanged_page_is_not_sent_twice(client: FlaskClient, path: str) -> None:
    """ETag and Last-Modified both get a 304 without a body, and another ETag gets the page."""
    first = client.get(path)
    by_tag = client.get(path, headers={"If-None-Match": first.headers["ETag"]})
    by_date = client.get(path, headers={"If-Modified-Since": first.headers["Last-Modified"]})
    assert (by_tag.status_code, by_tag.data) == (304, b"")
    assert (by_date.status_code, by_date.data) == (304, b"")
    assert client.get(path, headers={"If-None-Match": '"other"'}).data == first.data


def test_robots_may_read_the_news_and_nothing_else(client: FlaskClient) -> None:
    """robots.txt opens /news/, closes the desk and the host's own pages, and names the sitemap."""
    rules = robotparser.RobotFileParser()
    rules.parse(client.get("/robots.txt").text.splitlines())
    assert rules.can_fetch("any", f"http://localhost{ARTICLES[0].path}")
    assert not rules.can_fetch("any", "http://localhost/bookmarks")
    assert not rules.can_fetch("any", "http://localhost/spiderpool/spool/status")
    assert rules.site_maps() == ["http://localhost/news/sitemap.xml"]
    # Python's parser takes the first rule that matches; RFC 9309 takes the longest, which is the desk's.
    assert "Disallow: /news/desk/" in client.get("/robots.txt").text


def test_the_sitemap_names_pages_that_exist(client: FlaskClient) -> None:
    """The sitemap is XML; each of its addresses is one of ours, and the unlisted article is not there."""
    root = etree.fromstring(client.get("/news/sitemap.xml").data)
    paths = [urlsplit(loc).path for loc in root.xpath("//*[local-name()='loc']/text()")]
    assert set(paths) <= set(ALL_PAGES)
    assert len(paths) == len(ARTICLES) - 1 + 7
    assert PAGINATION_ONLY not in paths


@pytest.mark.parametrize(
    "path",
    [
        "/news/city/page/0",
        "/news/city/page/99",
        "/news/nowhere/",
        "/news/tags/none",
        "/news/archive?section=city&year=1999",
        "/news/archive?section=city",
    ],
)
def test_what_does_not_exist_is_said_not_to_exist(client: FlaskClient, path: str) -> None:
    """Wrong page numbers, sections, tags and years answer 404 in the newspaper's own clothes."""
    response = client.get(path)
    assert response.status_code == 404
    assert "The Paper Lantern" in response.text


def test_an_article_says_who_wrote_it_and_when(client: FlaskClient) -> None:
    """The article's page carries author, date, section and tags where extractors look for them."""
    article = ARTICLES[20]
    html = client.get(article.path).text
    assert '<meta name="author" content="Staff">' in html
    assert f'content="{article.published.isoformat()}"' in html
    for tag in article.tags:
        assert f'<meta property="article:tag" content="{tag}">' in html


def test_nothing_on_the_site_comes_from_elsewhere(client: FlaskClient) -> None:
    """Pages load styles and pictures from this host only, and their policy forbids anything else."""
    for path in ("/news/", ARTICLES[0].path):
        response = client.get(path)
        sources = re.findall(r'(?:src|<link[^>]*href)="([^"]+)"', response.text)
        assert all(source.startswith("/") for source in sources)
        assert "default-src 'self'" in response.headers["Content-Security-Policy"]
