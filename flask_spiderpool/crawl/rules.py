"""A task's options as the engine uses them."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TypeVar

from flask_spiderpool.config import Settings
from flask_spiderpool.crawl.options import SpiderOptions
from flask_spiderpool.crawl.politeness import Pace
from flask_spiderpool.crawl.response import FetchLimits
from flask_spiderpool.crawl.scope import Scope
from flask_spiderpool.crawl.spider import Spider

T = TypeVar("T")


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
    headers: dict[str, str]  #: User-Agent in
    user_agent: str
    limits: FetchLimits
    log_level: int = logging.INFO  #: least level of the lines that are kept

    @property
    def pace(self) -> Pace:
        """Return the pace of a host whose robots.txt asks for nothing."""
        return Pace.of(self.delay_s)

    @classmethod
    def of(cls, spider: Spider, options: SpiderOptions, settings: Settings) -> TaskRules:
        """Merge a task's options with the pool's settings."""
        user_agent = options.user_agent or settings.user_agent
        return cls(
            scope=options.scope(settings.max_url_length),
            delay_s=_or(options.delay_s, settings.delay_s),
            concurrency=_or(options.concurrency, settings.concurrency),
            concurrency_per_host=_or(options.concurrency_per_host, settings.concurrency_per_host),
            obey_robots=settings.obey_robots and options.obey_robots,
            respect_nofollow=options.respect_nofollow,
            follow=options.follows(spider.has_parse),
            extract=options.extracts(spider.has_parse),
            max_depth=_or(options.max_depth, settings.max_depth),
            request_timeout_s=_or(options.request_timeout_s, settings.request_timeout_s),
            limits=FetchLimits(
                # A limit of safety: the pool's holds for every task.
                max_bytes=min(_or(options.max_bytes, settings.max_bytes), settings.max_bytes),
                max_unpacked_bytes=min(
                    _or(options.max_unpacked_bytes, settings.max_unpacked_bytes), settings.max_unpacked_bytes
                ),
            ),
            headers={**options.request_headers(), "User-Agent": user_agent},
            user_agent=user_agent,
            log_level=logging.getLevelNamesMapping()[settings.log_level],
        )


def _or(own: T | None, default: T) -> T:
    """Return a task's own value, or the pool's: 0 is a value."""
    return default if own is None else own
