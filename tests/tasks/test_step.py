"""Whether and how our part joins a Celery worker."""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import Any

import pytest
from celery import Celery, signals
from celery.concurrency import get_implementation

from flask_spiderpool.errors import SetupError
from flask_spiderpool.tasks.process import ProcessRuntime
from flask_spiderpool.tasks.step import add_runtime_step


class FakeRuntime:
    def __init__(self) -> None:
        self.events: list[str] = []

    def drain(self) -> None:
        self.events.append("drain")

    def close(self, grace_s: float | None = None) -> None:
        self.events.append(f"close {grace_s}")


class Made:
    """A Celery app with our step, and what its worker's runtime was told."""

    def __init__(self, *, in_memory: bool = True, error: Exception | None = None) -> None:
        self.celery = Celery("step", broker="memory://", set_as_current=False)
        self.runtimes: list[FakeRuntime] = []
        self.error = error
        self.process = ProcessRuntime(self._build)
        add_runtime_step(
            self.celery, self.process, queues=lambda: ["spiderpool"], counts_in_memory=lambda: in_memory
        )

    def _build(self) -> Any:
        if self.error is not None:
            raise self.error
        self.runtimes.append(FakeRuntime())
        return self.runtimes[-1]

    def worker(self, pool: str, *, concurrency: int = 4, queue: str = "spiderpool") -> Any:
        return SimpleNamespace(
            app=SimpleNamespace(amqp=SimpleNamespace(queues=SimpleNamespace(consume_from={queue: None}))),
            pool_cls=get_implementation(pool),
            concurrency=concurrency,
            max_concurrency=None,
            steps=[],
        )

    def step(self, worker: Any) -> Any:
        (kind,) = self.celery.steps["worker"]
        return kind(worker)


def test_the_runtime_begins_with_the_worker_and_ends_with_it():
    """Threads and solo: keeper and beat run although no message has come."""
    made = Made()
    worker = made.worker("threads")
    step = made.step(worker)
    step.include(worker)
    assert worker.steps == [step]
    step.start(worker)
    (runtime,) = made.runtimes
    assert made.process.threads == 4
    step.close(worker)
    step.stop(worker)
    assert runtime.events[0] == "drain"
    assert runtime.events[-1] == "close None"


def test_sigterm_drains_before_the_worker_loop_notices():
    """The signal comes in the handler; the slices are told at once, from another thread."""
    made = Made()
    worker = made.worker("threads")
    step = made.step(worker)
    step.start(worker)
    watcher = step._leash.watch(lambda: None, forked=False)
    signals.worker_shutting_down.send(sender="w", sig="SIGTERM", how="Warm", exitcode=0)
    watcher.join(5)
    assert not watcher.is_alive()
    step.stop(worker)


def test_the_parent_of_a_prefork_pool_makes_no_runtime():
    """Its children would inherit its threads' locks and its database connection."""
    made = Made()
    worker = made.worker("prefork", concurrency=1)
    step = made.step(worker)
    step.start(worker)
    signals.worker_process_init.send(sender=None)  # in this very process, as the solo pool does
    assert made.runtimes == []
    step.stop(worker)


def test_a_child_of_a_prefork_pool_makes_its_own_and_closes_it():
    """Also one that is given no slice: the keeper must run somewhere."""
    made = Made()
    worker = made.worker("prefork", concurrency=1)
    step = made.step(worker)
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        signals.worker_process_init.send(sender="child")
        runtimes = list(made.runtimes)
        signals.worker_process_shutdown.send(sender="child", pid=os.getpid(), exitcode=0)
        ok = len(runtimes) == 1 and runtimes[0].events[-1:] == ["close None"]
        os.write(write, b"1" if ok else b"0")
        os._exit(0)
    os.waitpid(pid, 0)
    assert os.read(read, 1) == b"1"
    os.close(read)
    os.close(write)
    step.stop(worker)
    assert made.runtimes == []


def test_a_worker_of_other_queues_is_left_alone():
    """A host's worker that consumes only its own queue runs no keeper and holds no lock."""
    made = Made()
    worker = made.worker("threads", queue="celery")
    step = made.step(worker)
    step.include(worker)
    assert worker.steps == []


@pytest.mark.parametrize("pool", ["gevent", "eventlet"])
def test_green_threads_are_refused_with_the_remedy(pool: str):
    """Their event loop would renew no lease while a parse function computes."""
    made = Made()
    worker = made.worker("threads")
    worker.pool_cls = SimpleNamespace(__module__=f"celery.concurrency.{pool}")
    with pytest.raises(SystemExit, match="-P threads"):
        made.step(worker)


def test_prefork_of_several_needs_a_shared_limiter():
    """With Redis it is fine, with the memory limiter it is refused."""
    made = Made()
    worker = made.worker("prefork", concurrency=2)
    with pytest.raises(SystemExit, match="SPIDERPOOL_LIMITER_URL"):
        made.step(worker)
    made = Made(in_memory=False)
    worker = made.worker("prefork", concurrency=2)
    step = made.step(worker)
    assert step.enabled
    step.stop(worker)


def test_a_runtime_that_cannot_be_made_ends_the_worker(caplog: pytest.LogCaptureFixture):
    """One line that names the remedy, exit code 1, no traceback."""
    made = Made(error=SetupError("another process has the lock; set SPIDERPOOL_LIMITER_URL"))
    worker = made.worker("threads")
    step = made.step(worker)
    with pytest.raises(SystemExit) as raised:
        step.start(worker)
    assert raised.value.code == 1
    assert "SPIDERPOOL_LIMITER_URL" in caplog.text
    step.stop(worker)
