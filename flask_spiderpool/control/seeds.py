"""From start URLs to the first requests of a task."""

from __future__ import annotations

from collections.abc import Iterable

from flask_spiderpool.crawl.options import SpiderOptions
from flask_spiderpool.crawl.request import NewRequest
from flask_spiderpool.crawl.scope import Scope
from flask_spiderpool.crawl.urls import Link, resolve
from flask_spiderpool.errors import FetchError, InvalidParameter

FIELD = "start_urls"


def seeds_of(options: SpiderOptions) -> list[NewRequest]:
    """Return the seeds of ``options``: canonicalised, inside the scope, each document once, in their order.

    A wrong start URL raises :class:`~flask_spiderpool.errors.InvalidParameter` for ``start_urls``: what a
    person typed is answered at once, not found in the outcomes later.
    """
    if not options.start_urls:
        raise InvalidParameter(FIELD, "is missing: the spider has no start URLs of its own")
    links = [_link(url) for url in options.start_urls]
    scope = Scope(
        allowed_domains=tuple(options.allowed_domains or ()),
        include=(),  # a start page that lists the wanted pages need not match their pattern
        exclude=tuple(options.exclude),
        max_depth=options.max_depth,
    )
    return list(_inside(links, scope))


def _link(url: str) -> Link:
    try:
        return resolve(url)
    except FetchError as fault:
        raise InvalidParameter(FIELD, str(fault)) from None


def _inside(links: Iterable[Link], scope: Scope) -> Iterable[NewRequest]:
    known: set[bytes] = set()
    for link in links:
        outside = scope.explain(link.url, 0)
        if outside is not None:
            raise InvalidParameter(FIELD, f"{link.url} is outside the spider's scope: {outside}")
        if link.fingerprint not in known:
            known.add(link.fingerprint)
            yield NewRequest(url=link.url, fingerprint=link.fingerprint, host_key=link.host_key, depth=0)
