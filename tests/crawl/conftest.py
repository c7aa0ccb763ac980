"""Fixtures of the engine's tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.site.server import Site


@pytest.fixture
def site() -> Iterator[Site]:
    """A real site on loopback; a test gives it pages by ``site.pages[path] = ...``."""
    with Site() as site:
        yield site
