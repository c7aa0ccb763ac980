"""Real worker processes on a real site over real HTTP."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from collections.abc import Callable
from datetime import UTC

import pytest
import sqlalchemy as sa

from flask_spiderpool.models import Document, History, Item, Slot
from tests.site.server import Site
from tests.tasks.real_worker import Deployment, until

pytestmark = pytest.mark.blackbox

MakeDeployment = Callable[..., Deployment]
MakeRing = Callable[..., Site]


def rows(deployment: Deployment, query: sa.Select) -> list:
    engine = sa.create_engine(deployment.database_url, poolclass=sa.NullPool)
    with engine.connect() as connection:
        return list(connection.execute(query).all())


@pytest.mark.parametrize(
    "options", [("-P", "threads"), ("-P", "prefork", "-c", "1"), ("-P", "solo")], ids=lambda words: words[1]
)
def test_every_pool_crawls_a_site_to_its_end(
    options: tuple[str, ...], make_deployment: MakeDeployment, make_ring: MakeRing, sqlite_url: str
):
    """Every page once, its text and items stored, numbers that reconcile; and SIGTERM ends the worker with 0.

    The items say that the process that ran ``parse`` had imported no panel and no REST framework.
    """
    site = make_ring(30)
    deployment = make_deployment(sqlite_url, SPIDERPOOL_ALLOW_ADDRESSES=site.host)
    worker = deployment.start_worker(*options)
    task_id = deployment.start_task("items", site.url + "/p/0")
    numbers = deployment.wait_for(task_id, "finished")
    assert (numbers["done"], numbers["failed"], numbers["items"]) == (30, 0, 30)
    assert deployment.store.reconcile(task_id)["ok"]
    assert Counter(path for path in site.paths() if path != "/robots.txt") == {
        f"/p/{i}": 1 for i in range(30)
    }
    items = [row.data for row in rows(deployment, sa.select(Item.data))]
    assert [item["web_modules"] for item in items] == [[]] * 30
    assert {item["pid"] for item in items} != {os.getpid()}
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(30) == 0


def test_an_article_spider_stores_text(make_deployment: MakeDeployment, make_ring: MakeRing, db_url: str):
    """The extraction child works in a worker, on both databases."""
    site = make_ring(8)
    deployment = make_deployment(db_url, SPIDERPOOL_ALLOW_ADDRESSES=site.host)
    deployment.start_worker()
    task_id = deployment.start_task("pages", site.url + "/p/0")
    assert deployment.wait_for(task_id, "finished")["pages"] == 8
    found = rows(deployment, sa.select(sa.func.count()).select_from(Document))
    assert found[0][0] == 8


@pytest.mark.parametrize(
    "options", [("-P", "threads"), ("-P", "prefork", "-c", "1")], ids=lambda words: words[1]
)
def test_sigterm_hands_leases_back(
    options: tuple[str, ...], make_deployment: MakeDeployment, make_ring: MakeRing, sqlite_url: str
):
    """In the midst of a slice: what was started is stored, the rest is queued, the slot is due at once, and the
    next worker fetches no page twice."""
    site = make_ring(60, delay_s=0.2)
    deployment = make_deployment(
        sqlite_url,
        SPIDERPOOL_ALLOW_ADDRESSES=site.host,
        # A whole slice would outlive this test: only the hand-back can end it in time.
        SPIDERPOOL_SLICE_S="120",
        SPIDERPOOL_LEASE_S="60",
        SPIDERPOOL_RESEND_S="2",
    )
    worker = deployment.start_worker(*options)
    task_id = deployment.start_task("items", site.url + "/p/0", "-p", "concurrency=4")
    until(lambda: deployment.numbers(task_id)["done"] >= 5)
    worker.send_signal(signal.SIGTERM)
    began = time.monotonic()
    until(lambda: deployment.numbers(task_id)["leased"] == 0, within_s=5)
    assert worker.wait(30) == 0
    assert time.monotonic() - began < 20
    numbers = deployment.numbers(task_id)
    assert numbers["status"] == "running"
    assert numbers["queued"] > 0
    assert deployment.store.reconcile(task_id)["ok"]
    ((state, leased),) = rows(deployment, sa.select(Slot.state, Slot.leased))
    assert state in ("due", "sent")
    assert leased == 0
    deployment.start_worker()
    assert deployment.wait_for(task_id, "finished")["done"] == 60
    counted = Counter(path for path in site.paths() if path != "/robots.txt")
    assert counted == {f"/p/{i}": 1 for i in range(60)}


def test_a_stop_reaches_a_running_slice_at_once(
    make_deployment: MakeDeployment, make_ring: MakeRing, sqlite_url: str
):
    """By the bus, long before the lease is renewed: nothing is asked for later than a second after the call."""
    site = make_ring(2000, delay_s=0.05)
    deployment = make_deployment(
        sqlite_url, SPIDERPOOL_ALLOW_ADDRESSES=site.host, SPIDERPOOL_LEASE_S="60", SPIDERPOOL_SLICE_S="60"
    )
    deployment.start_worker()
    task_id = deployment.start_task("items", site.url + "/p/0", "-p", "concurrency=2")
    until(lambda: deployment.numbers(task_id)["done"] >= 5)
    answer = deployment.run("stop", str(task_id)[:8], "--json")
    assert answer["effect"] == "accepted"
    deployment.wait_for(task_id, "stopped", within_s=15)
    assert deployment.store.reconcile(task_id)["ok"]
    ((called,),) = rows(deployment, sa.select(History.at).where(History.to_status == "stopping"))
    if called.tzinfo is None:
        called = called.replace(tzinfo=UTC)
    called_at = called.timestamp() - time.time() + time.monotonic()
    assert max(seen.at for seen in site.log) < called_at + 1.0


def test_a_spider_that_is_gone_fails_its_task(
    make_deployment: MakeDeployment, make_ring: MakeRing, sqlite_url: str
):
    """A task whose spider no worker knows ends as failed, with the reason, rather than circling for ever."""
    site = make_ring(3)
    deployment = make_deployment(sqlite_url, SPIDERPOOL_ALLOW_ADDRESSES=site.host)
    task_id = deployment.start_task("items", site.url + "/p/0")
    engine = sa.create_engine(deployment.database_url)
    with engine.begin() as connection:
        connection.execute(sa.text("UPDATE spiderpool_task SET spider = 'removed'"))
    engine.dispose()
    deployment.start_worker()
    numbers = deployment.wait_for(task_id, "failed")
    assert numbers["end_reason"] == "spider_missing"


def test_a_second_worker_is_refused_with_a_memory_limiter(make_deployment: MakeDeployment, sqlite_url: str):
    """Two processes that each count for themselves would ask a site twice as fast as it is promised."""
    deployment = make_deployment(sqlite_url)
    deployment.start_worker()
    until(deployment.workers_alive)
    second = deployment.start_worker()
    assert second.wait(60) == 1
    assert "SPIDERPOOL_LIMITER_URL" in deployment.log.read_text()


def test_prefork_of_several_is_refused_with_a_memory_limiter(
    make_deployment: MakeDeployment, sqlite_url: str
):
    """The remedy is named before anything is started."""
    deployment = make_deployment(sqlite_url)
    said = deployment.run("worker", "--quiet", "-P", "prefork", "-c", "2", code=1)
    assert "SPIDERPOOL_LIMITER_URL" in said


def test_a_worker_shows_itself_and_leaves_in_order(make_deployment: MakeDeployment, sqlite_url: str):
    """Its beat stands in the status while it lives, and is gone with it; the keeper has passed."""
    deployment = make_deployment(sqlite_url)
    worker = deployment.start_worker("-c", "7")
    until(deployment.workers_alive)
    (shown,) = deployment.run("status", "--json")["workers"]
    assert (shown["info"]["pid"], shown["threads"], shown["slices"]) == (worker.pid, 7, 0)
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(30) == 0
    status = deployment.run("status", "--json")
    assert status["workers"] == []
    assert status["keeper"]["last_pass_age_s"] is not None
