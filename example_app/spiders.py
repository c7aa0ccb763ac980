"""The host's two spiders: one that reads articles, one that collects headlines.

Both crawl the news site that this very app serves. Where it is reached stands in ``NEWS_URL`` (environment:
``FLASK_NEWS_URL``); ``flask spiderpool demo`` starts them at the address that it serves on.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any
from urllib.parse import urljoin

from example_app.extensions import pool
from flask_spiderpool import Page, Spider

NEWS_URL = os.environ.get("FLASK_NEWS_URL", "http://127.0.0.1:5000/news/")

#: What belongs to the newspaper, also where the app is mounted below another path.
NEWS_PAGES = r"^https?://[^/]+(/[^?#]*)?/news/"

#: The site is our own and made from memory: no pause, where the pool's default is a second.
DELAY_S = 0.0


class News(Spider):
    """Every article of The Paper Lantern. Without ``parse`` it follows all links and stores text and metadata."""

    name = "news"
    description = "Every article of The Paper Lantern, as text with its metadata."
    start_urls = (NEWS_URL,)
    include = (NEWS_PAGES,)
    max_depth = 12
    delay_s = DELAY_S


pool.add_spider(News)


@pool.spider("headlines", start_urls=[NEWS_URL], include=[NEWS_PAGES], delay_s=DELAY_S)
def headlines(page: Page) -> Iterator[Any]:
    """One record for each headline: headline, section, published, url."""
    for teaser in page.css("main .list article.teaser"):
        yield {
            "headline": teaser.css("h2 a::text").get(),
            "section": page.css(".section-head h1::text").get(),
            "published": teaser.css("time::attr(datetime)").get(),
            "url": urljoin(page.url, teaser.css("h2 a::attr(href)").get() or ""),
        }
    yield from page.follow(".masthead nav a")
    yield from page.follow(".pager a[rel=next]")
