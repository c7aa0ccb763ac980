"""Fixtures of the black-box tests: sites and whole deployments, and the figures of the kill runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest

from tests.blackbox.deployment import Cluster, Deployment, Embedded
from tests.blackbox.site import Site
from tests.servers.redis import RedisServer

FIGURES: pytest.StashKey[list[str]] = pytest.StashKey()


def pytest_configure(config: pytest.Config) -> None:
    """Make room for the figures."""
    config.stash.setdefault(FIGURES, [])


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything here is a black-box test; it may take minutes on a slow machine."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.blackbox)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """``--blackbox-runs N`` repeats the tests that take a ``seed`` with N seeds."""
    if "seed" in metafunc.fixturenames:
        metafunc.parametrize("seed", range(1, runs(metafunc.config) + 1))


def runs(config: pytest.Config) -> int:
    """Return how often each random scenario is run; once in CI."""
    return int(config.getoption("--blackbox-runs"))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print the figures that the runs noted."""
    figures = config.stash.get(FIGURES, [])
    if figures:
        terminalreporter.section("black-box figures")
        for line in figures:
            terminalreporter.line(line)


@pytest.fixture
def note(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """Return a function that keeps one line for the end of the session."""
    return request.config.stash.setdefault(FIGURES, []).append


@pytest.fixture
def make_site(tmp_path: Path) -> Iterator[Callable[..., Site]]:
    """Return a function ``(pages, delay_s=0) -> Site`` that starts a site; ended with the test."""
    made: list[Site] = []

    def make(pages: int, delay_s: float = 0.0) -> Site:
        folder = tmp_path / f"site-{len(made)}"
        folder.mkdir()
        made.append(Site(folder, pages, delay_s))
        made[-1].start()
        return made[-1]

    yield make
    for site in made:
        site.end()


@pytest.fixture
def make_embedded(tmp_path: Path) -> Iterator[Callable[[Site], Embedded]]:
    """Return a function that sets up and starts ``flask spiderpool up`` on SQLite for a site."""
    made: list[Deployment] = []

    def make(site: Site) -> Embedded:
        deployment = Embedded(tmp_path, site)
        made.append(deployment)
        return _started(deployment)

    yield make
    for deployment in made:
        deployment.end()


@pytest.fixture
def make_cluster(
    tmp_path: Path, new_postgres_url: Callable[[], str], own_redis: RedisServer
) -> Iterator[Callable[..., Cluster]]:
    """Return a function ``(site, broker_url=None) -> Cluster`` that starts web and two workers for a site."""
    made: list[Deployment] = []

    def make(site: Site, broker_url: str | None = None) -> Cluster:
        deployment = Cluster(
            tmp_path, site, database_url=new_postgres_url(), redis=own_redis, broker_url=broker_url
        )
        made.append(deployment)
        return _started(deployment)

    yield make
    for deployment in made:
        deployment.end()


D = TypeVar("D", bound=Deployment)


def _started(deployment: D) -> D:
    deployment.set_up()
    deployment.start()
    return deployment
