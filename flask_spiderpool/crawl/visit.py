"""One request: fetch it, look at what came, and say what became of it."""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from hashlib import blake2b

from flask_spiderpool.config import Settings
from flask_spiderpool.crawl.encoding import decode
from flask_spiderpool.crawl.fetch import Fetcher, Response
from flask_spiderpool.crawl.guard import LeaseGuard
from flask_spiderpool.crawl.links import LinkSet, extract_links
from flask_spiderpool.crawl.options import SpiderOptions
from flask_spiderpool.crawl.parts import EngineParts
from flask_spiderpool.crawl.politeness import Pace
from flask_spiderpool.crawl.request import FetchedPage, LeasedRequest, NewRequest, Outcome, Verdict
from flask_spiderpool.crawl.robots import RobotsRules
from flask_spiderpool.crawl.scope import Scope
from flask_spiderpool.crawl.spider import Spider
from flask_spiderpool.crawl.urls import Link, origin, resolve
from flask_spiderpool.errors import Fenced, FetchError
from flask_spiderpool.terms import Reason, http_reason

logger = logging.getLogger(__name__)

#: Statuses after which another attempt may help: the site is busy, or was interrupted.
RETRIED_STATUSES = frozenset({408, 425, 429, 500, 502, 503, 504, 520, 521, 522, 523, 524})

#: Reasons that are a rule's word, not a failure.
SKIPPED_REASONS = frozenset({Reason.ROBOTS, Reason.SCOPE, Reason.DEPTH, Reason.CONTENT_TYPE})

HTML_TYPES = ("text/html", "application/xhtml+xml", "application/vnd.wap.xhtml+xml")


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskRules:
    """A task's options as the engine uses them, checked before."""

    scope: Scope
    delay_s: float
    concurrency: int
    concurrency_per_host: int
    obey_robots: bool
    respect_nofollow: bool
    follow: bool  #: follow every link in scope, beside what ``parse`` yields
    extract: bool
    max_depth: int
    request_timeout_s: float
    headers: dict[str, str]
    log_level: int = logging.INFO

    @property
    def pace(self) -> Pace:
        """Return the pace of a host whose robots.txt asks for nothing."""
        return Pace.of(self.delay_s)

    @classmethod
    def of(cls, spider: Spider, options: SpiderOptions, settings: Settings) -> TaskRules:
        """Merge a task's options with the pool's settings."""
        has_parse = spider.has_parse
        return cls(
            scope=options.scope(settings.max_url_length),
            delay_s=settings.delay_s if options.delay_s is None else options.delay_s,
            concurrency=options.concurrency or settings.concurrency,
            concurrency_per_host=options.concurrency_per_host or settings.concurrency_per_host,
            obey_robots=settings.obey_robots and options.obey_robots,
            respect_nofollow=options.respect_nofollow,
            follow=(not has_parse) if options.follow is None else options.follow,
            extract=not options.links_only and ((not has_parse) if options.extract is None else options.extract),
            max_depth=options.max_depth,
            request_timeout_s=options.request_timeout_s or settings.request_timeout_s,
            headers=dict(options.headers),
            log_level=logging.getLevelNamesMapping()[settings.log_level],
        )


class Visit:
    """Makes outcomes of leased requests for one slice."""

    def __init__(
        self,
        parts: EngineParts,
        guard: LeaseGuard,
        spider: Spider,
        rules: TaskRules,
        take_token: Callable[[str, Pace], Awaitable[None]],
    ) -> None:
        self._parts = parts
        self._guard = guard
        self._spider = spider
        self._rules = rules
        self._take_token = take_token
        self._known = parts.seen.of(guard.ticket.task_id)
        self._pending: set[bytes] = set()  #: in outcomes of this slice that are not settled yet

    async def make(self, request: LeasedRequest) -> Outcome:
        """Fetch and look; every fault becomes an outcome. Raises only ``Fenced`` and ``CancelledError``."""
        try:
            response = await self._fetch(request)
            return await self._look(request, response)
        except FetchError as error:
            return _failed(request, error)
        except (Fenced, asyncio.CancelledError):
            raise
        except Exception as error:
            # A fault of ours must cost one page, never the slice.
            logger.exception("visit of %s failed", request.url)
            return Outcome(
                request, Verdict.RETRY, reason=Reason.INTERNAL, message=f"{type(error).__name__}: {error}"
            )
