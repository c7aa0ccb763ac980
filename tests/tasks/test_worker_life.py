"""What real workers outlive, and what they end at."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.site.server import Site
from tests.tasks.real_worker import Deployment, until

pytestmark = pytest.mark.blackbox

MakeDeployment = Callable[..., Deployment]
MakeRing = Callable[..., Site]


def test_a_worker_outlives_its_brokers_folder(
    make_deployment: MakeDeployment, make_ring: MakeRing, sqlite_url: str, tmp_path: Path
):
    """An empty message is dropped, a folder deleted in mid-crawl is made anew, and both crawls end whole."""
    site = make_ring(80, delay_s=0.05)
    deployment = make_deployment(sqlite_url, SPIDERPOOL_ALLOW_ADDRESSES=site.host)
    worker = deployment.start_worker()
    until(deployment.workers_alive)
    folder = tmp_path / "spiderpool-broker"
    (folder / "queue" / "0_empty.spiderpool.msg").write_bytes(b"")
    first = deployment.start_task("items", site.url + "/p/0", "-p", "concurrency=2")
    until(lambda: deployment.numbers(first)["done"] >= 5)
    shutil.rmtree(folder)
    until((folder / "queue").is_dir)
    second = deployment.start_task("items", site.url + "/p/1")
    for task_id in (first, second):
        assert deployment.wait_for(task_id, "finished")["done"] == 80
    assert worker.poll() is None
    said = deployment.log.read_text()
    assert "cannot be read and is dropped" in said
    assert "is made anew" in said


def test_a_worker_whose_loop_ended_ends_too(
    make_deployment: MakeDeployment, make_ring: MakeRing, sqlite_url: str
):
    """It would look alive and do nothing: its supervisor shall start another, which goes on."""
    site = make_ring(3)
    deployment = make_deployment(sqlite_url, SPIDERPOOL_ALLOW_ADDRESSES=site.host)
    worker = deployment.start_worker()
    deployment.start_task("breaker", site.url + "/p/0")
    assert worker.wait(60) == 1
    said = deployment.log.read_text()
    assert "the event loop of this process ended by itself" in said
    assert "SystemExit: 7" in said
    assert "can run no slice any more" in said
