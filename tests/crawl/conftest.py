"""Fixtures of the engine's tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.crawl.pool import EnginePool
from tests.site.server import Site


@pytest.fixture
def site() -> Iterator[Site]:
    """A real site on loopback; a test gives it pages by ``site.pages[path] = ...``."""
    with Site() as site:
        yield site


@pytest.fixture
def make_pool(sqlite_url: str, site: Site) -> Iterator[Callable[..., EnginePool]]:
    """Make an engine over a fresh SQLite file that may crawl the site, without delay unless one is given."""
    made: list[EnginePool] = []

    def make(**config: Any) -> EnginePool:
        defaults: dict[str, Any] = {
            "allow_addresses": [site.host],
            "delay_s": 0,
            "settle_s": 0.02,
            "backoff_s": 0.02,
            "stop_grace_s": 2,
        }
        made.append(EnginePool(sqlite_url, **{**defaults, **config}))
        return made[-1]

    yield make
    for pool in made:
        pool.close()
