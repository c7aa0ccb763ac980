"""The part of a Celery worker that makes, drains and closes the runtime of its processes.

A bootstep of our own Celery app: other apps' workers in this process never meet it, and one that consumes
none of our queues leaves it out.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable
from typing import Any, ClassVar

from celery import Celery, bootsteps, signals

from flask_spiderpool.errors import SpiderPoolError
from flask_spiderpool.tasks.leash import Leash
from flask_spiderpool.tasks.process import ProcessRuntime

logger = logging.getLogger(__name__)

REFUSED_POOLS = ("gevent", "eventlet")
EXIT_FAILURE = 1


class RuntimeStep(bootsteps.StartStopStep):  # type: ignore[misc]  # Celery is untyped
    """Starts after the pool and stops before it, so that slices hand on before the pool waits for them."""

    requires = ("celery.worker.components:Pool",)
    process: ClassVar[ProcessRuntime]
    queues: ClassVar[Callable[[], Iterable[str]]]
    counts_in_memory: ClassVar[Callable[[], bool]]

    def __init__(self, worker: Any, **options: Any) -> None:
        super().__init__(worker, **options)
        consumed = set(worker.app.amqp.queues.consume_from)
        self.enabled = bool(consumed & set(type(self).queues()))
        if not self.enabled:
            return
        self._pool = worker.pool_cls.__module__.rpartition(".")[2]
        self._refuse(worker)
        self._main_pid = os.getpid()
        self._leash = Leash()  # before the pool forks
        signals.worker_shutting_down.connect(self._on_signal, weak=False)
        signals.worker_process_init.connect(self._on_child, weak=False)
        signals.worker_process_shutdown.connect(self._on_child_end, weak=False)

    def include_if(self, worker: Any) -> bool:
        """Take part only where our queue is consumed."""
        return self.enabled

    def start(self, worker: Any) -> None:
        """Make the runtime, unless this is the parent of a prefork pool."""
        if self._pool == "prefork":
            return
        self.process.threads = worker.concurrency if self._pool == "thread" else 1
        self.process.begin()
        try:
            self.process.get()
        except SpiderPoolError as error:
            logger.critical("%s", error)
            raise SystemExit(EXIT_FAILURE) from None
        self._leash.watch(self.process.drain, forked=False)

    def close(self, worker: Any) -> None:
        """The worker begins to stop: slices end, nothing is claimed any more."""
        self._leash.let_go()
        self.process.drain()

    def stop(self, worker: Any) -> None:
        """Wait for the slices to hand on, within the grace, and close."""
        self._disconnect()
        self.process.end()

    def terminate(self, worker: Any) -> None:
        """Close without a grace: somebody asked twice."""
        self._leash.let_go()
        self._disconnect()
        self.process.end(grace_s=0.0)

    def _refuse(self, worker: Any) -> None:
        """End the worker, with the remedy, where slices could not keep their promises."""
        if self._pool in REFUSED_POOLS:
            raise SystemExit(
                f"spiderpool: the {self._pool} pool is refused: slices need real threads to renew their leases. "
                "Use -P threads (default of 'flask spiderpool worker'), -P prefork or -P solo."
            )
        children = max(int(worker.concurrency or 1), int(getattr(worker, "max_concurrency", None) or 1))
        if self._pool == "prefork" and children > 1 and type(self).counts_in_memory():
            raise SystemExit(
                "spiderpool: the memory limiter counts in one process, and prefork with a concurrency of "
                f"{children} makes {children}. Set SPIDERPOOL_LIMITER_URL (or SPIDERPOOL_REDIS_URL) to a Redis "
                "server, or use -P threads, or -P prefork -c 1."
            )

    def _on_signal(self, **_: Any) -> None:
        """SIGTERM came, in the main process. Runs in the signal handler: one ``close`` of a pipe."""
        self._leash.let_go()

    def _on_child(self, **_: Any) -> None:
        """A child of the prefork pool begins (the solo pool sends this signal in the main process too)."""
        if os.getpid() == self._main_pid:
            return
        self._leash.watch(self.process.drain, forked=True)
        self.process.get()

    def _on_child_end(self, **_: Any) -> None:
        if os.getpid() != self._main_pid:
            self.process.end()

    def _disconnect(self) -> None:
        signals.worker_shutting_down.disconnect(self._on_signal)
        signals.worker_process_init.disconnect(self._on_child)
        signals.worker_process_shutdown.disconnect(self._on_child_end)


def add_runtime_step(
    celery: Celery,
    process: ProcessRuntime,
    *,
    queues: Callable[[], Iterable[str]],
    counts_in_memory: Callable[[], bool],
) -> None:
    """Give the workers of ``celery`` our part. ``queues`` and the rest are asked when a worker starts."""
    step = type(
        "RuntimeStep",
        (RuntimeStep,),
        {
            "process": process,
            "queues": staticmethod(queues),
            "counts_in_memory": staticmethod(counts_in_memory),
        },
    )
    celery.steps["worker"].add(step)
