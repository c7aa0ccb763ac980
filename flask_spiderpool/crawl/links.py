"""The links of an HTML page.

What is a link here: ``href`` of ``a`` and ``area``, resolved against the first usable ``base``. Nothing is
taken from comments, scripts, templates, forms, frames or ``srcset``.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from itertools import islice

from selectolax.lexbor import LexborHTMLParser, LexborNode

from flask_spiderpool.crawl.urls import Base, Link
from flask_spiderpool.terms import Reason

MAX_LINKS = 50_000  #: different hrefs of one page; the rest is counted, not followed


@dataclass(slots=True)
class LinkSet:
    """What :func:`extract_links` found on one page."""

    links: list[Link] = field(default_factory=list)  #: in document order, each target once
    dropped: Counter[Reason] = field(default_factory=Counter)  #: hrefs that are no links, by reason
    base_url: str = ""  #: what relative links were resolved against
    title: str | None = None
    nofollow: bool = False  #: the page itself asks that none of its links be followed
    beyond_limit: int = 0  #: different hrefs past ``max_links``


def extract_links(
    html: bytes | str,
    base_url: str,
    *,
    respect_nofollow: bool = False,
    max_links: int = MAX_LINKS,
) -> LinkSet:
    """Return the links of a page that was fetched from ``base_url`` (the final URL, after redirects).

    Bytes are read as UTF-8; hand in a str for other encodings. With ``respect_nofollow``, links whose ``rel``
    has the token ``nofollow`` and whole pages with ``<meta name=robots content=nofollow>`` (or ``none``) yield
    nothing. Never raises on any input.
    Costs about 0.1 ms more than the parsing (0.24 ms) for 43 KB and 45 links of a site seen before.
    """
    tree = LexborHTMLParser(html)
    base = _document_base(tree, base_url)
    found = LinkSet(base_url=base.url, title=page_title(tree))
    found.nofollow = _asks_nofollow(tree)
    if found.nofollow and respect_nofollow:
        return found
    hrefs = _hrefs(tree, respect_nofollow)
    if len(hrefs) > max_links:
        found.beyond_limit = len(hrefs) - max_links
        hrefs = dict.fromkeys(islice(hrefs, max_links))
    links, dropped, seen, resolve = found.links, found.dropped, set(), base.resolve
    for href in hrefs:
        link = resolve(href)
        if isinstance(link, Reason):
            dropped[link] += 1
        elif link.fingerprint not in seen:
            seen.add(link.fingerprint)
            links.append(link)
    return found


def page_title(tree: LexborHTMLParser) -> str | None:
    """Return the text of the page's ``title`` with white space collapsed, or None."""
    head = tree.head
    if head is not None:
        for node in head.iter():
            if node.tag == "title":
                return _text(node)
    for node in tree.tags("title"):
        parent = node.parent
        # An inline SVG may carry a title of its own before one that stands in the body.
        if parent is None or parent.tag != "svg":
            return _text(node)
    return None


def _text(node: LexborNode) -> str | None:
    return " ".join(node.text(deep=True).replace("\0", "").split()) or None


def _hrefs(tree: LexborHTMLParser, respect_nofollow: bool) -> dict[str, None]:
    """Return the different hrefs of the page in document order (areas after anchors)."""
    hrefs: dict[str, None] = {}
    for tag in ("a", "area"):
        for node in tree.tags(tag):
            attributes = node.attributes
            href = attributes.get("href")
            if href is None or (respect_nofollow and _has_nofollow(attributes.get("rel"))):
                continue
            hrefs[href] = None
    return hrefs


def _has_nofollow(rel: str | None) -> bool:
    return rel is not None and "nofollow" in rel.lower().split()


def _document_base(tree: LexborHTMLParser, base_url: str) -> Base:
    """Return the first usable ``<base href>``, else the page's own URL.

    Usable is what resolves to http(s): ``data:``, ``javascript:`` and malformed ones count as absent.
    """
    page = Base(base_url)
    for node in tree.tags("base"):
        href = node.attributes.get("href")
        if href is None:
            continue
        resolved = page.resolve(href)
        if isinstance(resolved, Link):
            return Base(resolved.url)
    return page


def _asks_nofollow(tree: LexborHTMLParser) -> bool:
    return any(_is_nofollow_meta(node) for node in tree.tags("meta"))


def _is_nofollow_meta(node: LexborNode) -> bool:
    attributes = node.attributes
    name = attributes.get("name")
    if name is None or name.strip().lower() != "robots":
        return False
    words = (attributes.get("content") or "").lower().replace(",", " ").split()
    return "nofollow" in words or "none" in words
