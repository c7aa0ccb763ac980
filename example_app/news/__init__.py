"""The Paper Lantern: a made-up news site of about 300 pages, for crawling.

:data:`ALL_PAGES` says what a full crawl must find; :data:`BROKEN_LINKS`, :data:`REDIRECTS`,
:data:`ROBOTS_REFUSED`, :data:`PAGINATION_ONLY` and :data:`DUPLICATE_SPELLINGS` say what lies in its way.
"""

from example_app.news.edition import (
    ALL_PAGES,
    ARTICLES,
    BROKEN_LINKS,
    DUPLICATE_SPELLINGS,
    PAGINATION_ONLY,
    REDIRECTS,
    ROBOTS_REFUSED,
)

__all__ = [
    "ALL_PAGES",
    "ARTICLES",
    "BROKEN_LINKS",
    "DUPLICATE_SPELLINGS",
    "PAGINATION_ONLY",
    "REDIRECTS",
    "ROBOTS_REFUSED",
]
