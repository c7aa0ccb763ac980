"""The host's two spiders, on the pages of its own site."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from flask import Flask

from example_app.news import ALL_PAGES, BROKEN_LINKS, ROBOTS_REFUSED
from example_app.news.edition import SECTIONS
from example_app.spiders import News, headlines
from flask_spiderpool.crawl.page import Page
from flask_spiderpool.crawl.wanted import Request

SITE = "http://127.0.0.1:5000"


@pytest.fixture
def read(host: Flask) -> Callable[[str], Page]:
    """Return a page of the site as ``parse`` gets it."""

    def fetch(path: str) -> Page:
        response = host.test_client().get(path)
        return Page.of(
            url=SITE + path,
            status=response.status_code,
            headers=dict(response.headers),
            body=response.data,
        )

    return fetch


def test_both_spiders_are_registered(host: Flask) -> None:
    """Every app of the factory has both, beside the built-in one."""
    assert {"news", "headlines"} <= set(host.extensions["spiderpool"].registry.names())


def test_headlines_yields_one_record_an_article(read: Callable[[str], Page]) -> None:
    """A page of a section's list gives a record for each of its articles, every field filled."""
    for n in (1, SECTIONS["science"].page_count):
        found = [x for x in headlines(read(SECTIONS["science"].page_path(n))) if not isinstance(x, Request)]
        assert found == [
            {
                "headline": article.title,
                "section": "Science",
                "published": article.published.isoformat(),
                "url": SITE + article.path,
            }
            for article in SECTIONS["science"].on_page(n)
        ]


def test_headlines_reaches_every_page_of_every_list(read: Callable[[str], Page]) -> None:
    """Following what it asks for, it reads all sections to the last page and nothing else."""
    todo, seen = ["/news/"], set[str]()
    records = 0
    while todo:
        path = todo.pop()
        if path in seen:
            continue
        seen.add(path)
        for found in headlines(read(path)):
            if isinstance(found, Request):
                todo.append(found.url.removeprefix(SITE))
            else:
                records += 1
    assert seen - {"/news/"} == {
        s.page_path(n) for s in SECTIONS.values() for n in range(1, s.page_count + 1)
    }
    assert records == sum(len(section.articles) for section in SECTIONS.values())


def test_news_lets_in_the_newspaper_and_nothing_else() -> None:
    """Every page that a crawl must find is in scope; the host's own pages and other sites are not."""
    scope = News().options.scope()
    for path in (*ALL_PAGES, *BROKEN_LINKS, ROBOTS_REFUSED):
        assert scope.admit(SITE + path, 1) is None, path
    for url in (
        f"{SITE}/",
        f"{SITE}/bookmarks",
        f"{SITE}/spiderpool/spool/status",
        "http://127.0.0.1:5001/news/",
    ):
        assert scope.admit(url, 1) is not None, url
