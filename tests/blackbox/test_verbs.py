"""What the API says is true: paused means paused, stopped means that nothing more is sent (promise 3)."""

from __future__ import annotations

import functools
import random
import time
from collections.abc import Callable

import pytest

from flask_spiderpool.terms import Status
from tests.blackbox.conftest import runs
from tests.blackbox.deployment import Cluster, Deployment
from tests.blackbox.ledger import check_stored_once
from tests.blackbox.life import eventually
from tests.blackbox.site import Site

QUIET_S = 2.5  #: how long the site is watched after the last word


@pytest.fixture(params=["embedded", "cluster"])
def make_deployment(request: pytest.FixtureRequest) -> Callable[[Site], Deployment]:
    """Return what starts a deployment: once ``up`` on SQLite, once two workers on PostgreSQL and Redis."""
    make: Callable[[Site], Deployment] = request.getfixturevalue(f"make_{request.param}")
    return make


def watch_quietly(site: Site) -> None:
    """Let time pass in which a request that should not be sent would arrive."""
    time.sleep(QUIET_S)
    site.gets()


def test_pause_survives_a_power_cut(
    make_site: Callable[..., Site], make_deployment: Callable[[Site], Deployment]
) -> None:
    """Paused, everything killed, restarted, resumed: no page is fetched twice, none is missing."""
    site = make_site(600, delay_s=0.1)
    deployment = make_deployment(site)
    task_id = deployment.begin(max_parallel=2)
    eventually("the crawl is under way", lambda: site.seen() >= 150, 60)
    deployment.verb("pause", task_id)
    deployment.wait_status(task_id, Status.PAUSED)
    said_at = deployment.said_at(task_id, Status.PAUSED)
    deployment.kill_everything()
    seen = site.seen()
    assert seen < site.pages
    if isinstance(deployment, Cluster):
        deployment.redis.start()
    deployment.start()
    deployment.verb("resume", task_id)
    resumed_at = deployment.said_at(task_id, Status.RUNNING)
    deployment.wait_end(task_id, 60)
    assert [get for get in site.page_gets() if said_at < get.at < resumed_at] == []
    assert site.repeated() == {}
    check_stored_once(deployment, task_id)


def test_stop_is_the_last_word(
    make_site: Callable[..., Site], make_deployment: Callable[[Site], Deployment]
) -> None:
    """No request starts later than 1 s after the call, and none reaches the site after ``stopped`` is said."""
    site = make_site(2000, delay_s=0.2)
    deployment = make_deployment(site)
    task_id = deployment.begin(max_parallel=2)
    eventually("the crawl is under way", lambda: site.seen() >= 150, 60)
    deployment.verb("stop", task_id)
    called_at = time.time()
    deployment.wait_status(task_id, Status.STOPPED)
    watch_quietly(site)
    assert [get for get in site.gets() if get.at > called_at + 1.0] == []
    assert [get for get in site.gets() if get.at > deployment.said_at(task_id, Status.STOPPED)] == []
    assert site.seen() < site.pages


def test_frozen_workers_send_nothing_after_stopped(
    request: pytest.FixtureRequest,
    make_site: Callable[..., Site],
    make_cluster: Callable[..., Cluster],
    note: Callable[[str], None],
) -> None:
    """Workers frozen before the stop and revived after ``stopped`` find their leases over and send nothing."""
    freezes = max(3, runs(request.config))
    rng = random.Random(freezes)
    site = make_site(100_000)
    cluster = make_cluster(site)
    late = 0
    for number in range(freezes):
        task_id = cluster.begin(max_parallel=4, concurrency=32, concurrency_per_host=32, links_only=True)
        point = len(site.page_gets()) + rng.randrange(50, 300)
        eventually("the crawl is under way", functools.partial(_asked, site, point), 60)
        for worker in cluster.workers:
            worker.freeze()
        # A revived worker that hears of the stop by the bus has it easier.
        if number % 3 == 0:
            cluster.verb("stop", task_id)
        else:
            cluster.stop_unheard(task_id)
        cluster.wait_status(task_id, Status.STOPPED, ask=True)
        said_at = cluster.said_at(task_id, Status.STOPPED)
        for worker in cluster.workers:
            worker.revive()
        watch_quietly(site)
        late += sum(get.at > said_at for get in site.gets())
    note(f"{freezes} freezes of both workers: {late} requests reached the site after `stopped`")
    assert late == 0


def _asked(site: Site, times: int) -> bool:
    return len(site.page_gets()) >= times
