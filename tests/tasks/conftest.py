from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.site.server import Reply, Site
from tests.tasks.real_worker import Deployment


@pytest.fixture
def make_deployment(tmp_path: Path) -> Iterator[Callable[..., Deployment]]:
    """Return a function ``(database_url, **settings) -> Deployment``; ended with the test."""
    made: list[Deployment] = []

    def make(database_url: str, **settings: str) -> Deployment:
        made.append(Deployment(tmp_path, database_url, settings))
        return made[-1]

    yield make
    for deployment in made:
        deployment.end()


@pytest.fixture
def make_ring() -> Iterator[Callable[..., Site]]:
    """Return a function ``(n, delay_s=0) -> Site``: pages 0 to n-1, each linking to five others."""
    made: list[Site] = []

    def page(i: int, n: int, delay_s: float) -> Reply:
        links = "".join(f'<a href="/p/{(i * 5 + k) % n}">{k}</a>' for k in range(1, 6))
        words = f"Page number {i} has words of its own, enough of them for somebody to read. " * 5
        html = f"<html><head><title>Page {i}</title></head><body><article><p>{words}</p></article>{links}</body></html>"
        return Reply(html, delay_s=delay_s)

    def make(n: int, delay_s: float = 0.0) -> Site:
        pages = {f"/p/{i}": page(i, n, delay_s) for i in range(n)}
        made.append(Site({"/": page(0, n, delay_s), **pages}))
        return made[-1]

    yield make
    for site in made:
        site.stop()
