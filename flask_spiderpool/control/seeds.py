"""From a start to the first requests of a task."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice

from flask_spiderpool.crawl.options import SpiderOptions
from flask_spiderpool.crawl.request import NewRequest
from flask_spiderpool.crawl.scope import Scope
from flask_spiderpool.crawl.spider import Request, Spider
from flask_spiderpool.crawl.urls import Link, resolve
from flask_spiderpool.errors import FetchError, InvalidParameter

FIELD = "start_urls"
MAX_SEEDS = 100_000  #: written in the caller's transaction


def begin(
    spider: Spider, start_urls: Sequence[str] | None, options: SpiderOptions
) -> tuple[SpiderOptions, list[NewRequest]]:
    """Return a task's options and seeds: canonicalised, inside the scope, each document once, in their order.

    ``start_urls`` are those that this start names; without them the spider says what it begins with. A wrong
    one raises :class:`~flask_spiderpool.errors.InvalidParameter` for ``start_urls``: what a person typed is
    answered at once, not found among the outcomes later.
    """
    wanted = _wanted(spider, start_urls, options)
    links = [_link(request.url) for request in wanted]
    if options.allowed_domains is None and not options.start_urls:
        # Without this a spider that makes its own first requests would have every host in scope.
        options = options.override(allowed_domains=list(dict.fromkeys(link.host_key for link in links)))
    # A start page that lists the wanted pages need not match their pattern itself.
    scope = replace(options.scope(), include=())
    return options, list(_inside(zip(links, wanted, strict=True), scope))


def _wanted(spider: Spider, start_urls: Sequence[str] | None, options: SpiderOptions) -> list[Request]:
    if start_urls is not None or type(spider).start_requests is Spider.start_requests:
        wanted = [Request(url) for url in options.start_urls]
    else:
        wanted = list(islice(spider.start_requests(), MAX_SEEDS + 1))
    if not wanted:
        raise InvalidParameter(FIELD, f"is missing: the spider {spider.name!r} has no start URLs of its own")
    if len(wanted) > MAX_SEEDS:
        raise InvalidParameter(FIELD, f"are more than {MAX_SEEDS}")
    return wanted


def _link(url: str) -> Link:
    try:
        return resolve(url)
    except FetchError as fault:
        raise InvalidParameter(FIELD, str(fault)) from None


def _inside(wanted: Iterable[tuple[Link, Request]], scope: Scope) -> Iterator[NewRequest]:
    known: set[bytes] = set()
    for link, request in wanted:
        outside = scope.explain(link.url, 0)
        if outside is not None:
            raise InvalidParameter(FIELD, f"{link.url} is outside the spider's scope: {outside}")
        if link.fingerprint not in known:
            known.add(link.fingerprint)
            yield NewRequest(
                url=link.url,
                fingerprint=link.fingerprint,
                host_key=link.host_key,
                depth=0,
                priority=request.priority,
                payload=request.payload(),
            )
