"""A fetcher over the real transport that may reach the given test sites and nothing else."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from flask_spiderpool.crawl.address import AddressGuard
from flask_spiderpool.crawl.fetch import Fetcher, FetchLimits
from flask_spiderpool.crawl.transport import AiohttpTransport
from tests.site.server import Site

AGENT = "TestBot/1.0 (+https://bot.example/)"


@asynccontextmanager
async def fetching(
    *sites: Site, limits: FetchLimits | None = None, **transport: Any
) -> AsyncIterator[Fetcher]:
    """Yield a fetcher; its connections are closed on leaving."""
    made = AiohttpTransport(AddressGuard([site.host for site in sites]), **transport)
    try:
        yield Fetcher(made, user_agent=AGENT, limits=limits)
    finally:
        await made.aclose()
