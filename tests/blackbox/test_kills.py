"""kill -9 of anything at any moment: every page ends up stored exactly once (DESIGN, promise 1)."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable
from uuid import UUID

import pytest

from flask_spiderpool.terms import ENDED
from tests.blackbox.deployment import Cluster, Deployment, Embedded
from tests.blackbox.ledger import check_stored_once, numbers, unexplained
from tests.blackbox.life import Kill, eventually, wait_gone
from tests.blackbox.site import Site

PAGES = 2000
KILLS = 10
#: What the site takes for a page: requests are under way whenever something is killed. Not more, because what a
#: killed worker had leased is asked for one by one afterwards (PROTOCOL, *Deaths*).
ANSWER_S = 0.02
END_S = 150


def kill_and_check(deployment: Deployment, strike: Callable[[random.Random], list[Kill]], seed: int) -> str:
    """Crawl the site; strike at ten random points of its course; see that the ledger is right; return figures."""
    rng = random.Random(seed)
    began = time.monotonic()
    site = deployment.site
    points = sorted(rng.sample(range(PAGES // 40, PAGES - PAGES // 20), KILLS))
    task_id = deployment.begin(max_parallel=4)
    kills: list[Kill] = []
    for point in points:
        _wait_for_page(deployment, task_id, point)
        kills += strike(rng)
        _check_numbers(deployment, task_id)
    deployment.wait_end(task_id, END_S)
    check_stored_once(deployment, task_id)
    faults = unexplained(site, kills)
    assert not faults, "\n".join([*faults[:20], *map(str, kills), deployment.report(task_id)])
    again = sum(len(gets) - 1 for gets in site.repeated().values())
    killed = ", ".join(f"{n} x {name}" for name, n in sorted(Counter(kill.what for kill in kills).items()))
    took_s = time.monotonic() - began
    return f"seed {seed}: {PAGES} stored once, {again} fetched again, {took_s:.0f} s; killed {killed}"


def _wait_for_page(deployment: Deployment, task_id: UUID, point: int) -> None:
    def passed() -> bool:
        deployment.check_alive()
        return deployment.site.seen() >= point

    try:
        eventually(f"page number {point} is asked for", passed, END_S)
    except AssertionError as late:
        raise AssertionError(f"{late}\n{deployment.report(task_id)}") from None
    assert deployment.status(task_id) not in ENDED


def _check_numbers(deployment: Deployment, task_id: UUID) -> None:
    with deployment.session() as session:
        numbers(session, task_id).check()


def strike_cluster(cluster: Cluster, rng: random.Random) -> list[Kill]:
    """Kill one of {a worker, web, Redis} and start it again."""
    victim = rng.choice(["worker", "web", "redis"])
    if victim == "redis":
        kill = Kill("Redis", cluster.redis.pid, 0.0)
        cluster.redis.restart()
        return [kill]
    life = rng.choice(cluster.workers) if victim == "worker" else cluster.web
    kill = life.kill()
    life.start()
    return [kill]


def strike_embedded(embedded: Embedded, rng: random.Random) -> list[Kill]:
    """Kill one of {the parent, the worker, the extraction child}; ``up`` or the test starts it again."""
    victim = rng.choice(["parent", "worker", "extraction child"])
    if victim == "parent":
        family = embedded.up.family()[1:]
        kill = embedded.up.kill()
        embedded.up.start()
        # test_orphans holds them to 5 s; here a process may be in the midst of its start on a busy machine.
        gone_at = wait_gone(family, timeout_s=30)
        return [kill, *(Kill("that parent's child", pid, at) for pid, at in gone_at.items())]
    find = embedded.worker if victim == "worker" else embedded.extraction_child
    eventually(f"there is a {victim}", lambda: find() is not None, END_S)
    process = find()
    assert process is not None
    process.kill()
    gone_at = wait_gone([process], timeout_s=30)
    return [Kill(victim, process.pid, gone_at[process.pid])]


def test_cluster_on_redis(
    seed: int,
    make_site: Callable[..., Site],
    make_cluster: Callable[..., Cluster],
    note: Callable[[str], None],
) -> None:
    """Two workers, web, PostgreSQL, Redis: ten kills of a worker, web or Redis lose and double nothing."""
    cluster = make_cluster(make_site(PAGES, delay_s=ANSWER_S))
    note("Redis " + kill_and_check(cluster, lambda rng: strike_cluster(cluster, rng), seed))


def test_embedded(
    seed: int,
    make_site: Callable[..., Site],
    make_embedded: Callable[..., Embedded],
    note: Callable[[str], None],
) -> None:
    """``up`` on SQLite: ten kills of the parent, the worker or the extraction child lose and double nothing."""
    embedded = make_embedded(make_site(PAGES, delay_s=ANSWER_S))
    note("embedded " + kill_and_check(embedded, lambda rng: strike_embedded(embedded, rng), seed))


@pytest.mark.rabbitmq
def test_cluster_on_rabbitmq(
    seed: int,
    make_site: Callable[..., Site],
    make_cluster: Callable[..., Cluster],
    amqp_url: str,
    note: Callable[[str], None],
) -> None:
    """As on Redis, with RabbitMQ as the broker: ten kills lose and double nothing."""
    cluster = make_cluster(make_site(PAGES, delay_s=ANSWER_S), broker_url=amqp_url)
    note("RabbitMQ " + kill_and_check(cluster, lambda rng: strike_cluster(cluster, rng), seed))
