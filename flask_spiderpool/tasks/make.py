"""Register our one Celery task, and what a worker needs around it, on one Celery app."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID

import sqlalchemy as sa
from celery import Celery

from flask_spiderpool.crawl.request import Ticket
from flask_spiderpool.state import PoolState
from flask_spiderpool.store import Message
from flask_spiderpool.tasks.own_servers import own_servers
from flask_spiderpool.tasks.process import ProcessRuntime, end_process
from flask_spiderpool.tasks.pump import work_through
from flask_spiderpool.tasks.runtime import Runtime, RuntimeParts
from flask_spiderpool.tasks.slice import run_slice
from flask_spiderpool.tasks.step import add_runtime_step
from flask_spiderpool.terms import TASK_SLICE

TIME_LIMIT_SPARE_S = 600.0  #: prefork only: beyond what the slice allows itself


def make_tasks(celery: Celery, get_state: Callable[[], PoolState]) -> ProcessRuntime:
    """Register ``spiderpool.slice`` on ``celery`` and give its workers their runtime.

    Every option of the task is set here, so that no global setting of the host (``task_acks_late``,
    ``task_serializer``, ``task_time_limit``, ``task_default_rate_limit`` and so on) changes what a slice
    is; ``shared=False``, so that a second app in the process does not get it. Call it once an app. ``get_state``
    is called at first need. Returns the holder of the process's runtime.
    """
    process = ProcessRuntime(
        lambda: _start_runtime(celery, get_state(), process), lambda: get_state().close()
    )
    settings = get_state().settings
    limit_s = int(settings.slice_s + settings.request_timeout_s + settings.stop_grace_s + TIME_LIMIT_SPARE_S)

    @celery.task(  # type: ignore[untyped-decorator]  # Celery is untyped
        name=TASK_SLICE,
        shared=False,
        serializer="json",
        acks_late=False,
        acks_on_failure_or_timeout=True,
        reject_on_worker_lost=False,
        ignore_result=True,
        store_errors_even_if_ignored=False,
        track_started=False,
        rate_limit=0,
        max_retries=0,
        time_limit=limit_s,
        soft_time_limit=limit_s,
    )
    def slice_(task_id: str, n: int, epoch: int) -> None:
        """Work on one slot of a task for one slice."""
        ticket = Ticket(UUID(task_id), n, epoch)
        if celery.conf.task_always_eager:
            _run_eagerly(process, ticket, settings.queue)
            return
        runtime = process.get_unless_ended()
        messages = run_slice(runtime, ticket) if runtime is not None else ()
        if messages:
            get_state().send(messages)

    # Set on the instance: as an argument above Celery 5.7 warns of it, although nothing else makes a host's own
    # call of the task go to the pool's queue.
    slice_.queue = settings.queue
    add_runtime_step(
        celery,
        process,
        queues=lambda: pool_queues(get_state()),
        counts_in_memory=lambda: counts_in_memory(get_state()),
    )
    return process


def _run_eagerly(process: ProcessRuntime, ticket: Ticket, queue: str) -> None:
    """Run the task to its end here and now; the runtime lives only so long."""
    try:
        work_through(process.get(), ticket.task_id, [Message(ticket, queue, 0)], wait=time.sleep)
    finally:
        # The app's store stays: in eager mode it may be the host's own engine, in the midst of a test.
        process.close(release=False)


def _start_runtime(celery: Celery, state: PoolState, process: ProcessRuntime) -> Runtime:
    eager = bool(celery.conf.task_always_eager)
    parts = RuntimeParts(
        settings=state.settings,
        registry=state.registry,
        store=state.store(),
        limiter=state.limiter(),
        send=state.send,
        enter_app=state.enter_app,
        bus=None if eager else state.bus(),
        pulse=None if eager else state.pulse(),
        denied=own_servers(_own_urls(celery, state)),
        # Without it a thread of ours has no current Celery app, and a host's task called from a
        # parse function would go to another one.
        in_thread=celery.set_current,
        # In eager mode this is the host's process, which is not ours to end.
        on_broken=(lambda: None) if eager else end_process,
    )
    runtime = Runtime(parts, threads=process.threads, keeps=not eager)
    runtime.start()
    return runtime


def _own_urls(celery: Celery, state: PoolState) -> list[str]:
    """Return the URLs that may name a server of ours: Celery's, and all that stand in the host's configuration."""
    settings, conf = state.settings, celery.conf
    urls = [state.database_url(), settings.redis_url, settings.limiter_url, settings.bus_url]
    urls += (conf.broker_read_url, conf.broker_write_url, conf.broker_url, conf.result_backend)
    return list(_texts([*urls, *state.app.config.values()]))


def _texts(value: Any) -> Iterator[str]:
    """Yield the URLs in a value of the configuration, such as SQLALCHEMY_BINDS."""
    if isinstance(value, str):
        if "://" in value:
            yield value
    elif isinstance(value, sa.URL):
        yield value.render_as_string(hide_password=False)
    elif isinstance(value, dict | list | tuple | set):
        for one in value.values() if isinstance(value, dict) else value:
            yield from _texts(one)


def pool_queues(state: PoolState) -> set[str]:
    """Return the queues that carry slices: the pool's, and those that spiders name."""
    named = {spider.options.queue for spider in state.registry}
    return {state.settings.queue} | {queue for queue in named if queue}


def counts_in_memory(state: PoolState) -> bool:
    """Tell whether the limiter counts in one process, so that a second one is refused."""
    url = state.settings.limiter_url or state.settings.redis_url or "memory://"
    return url.startswith("memory:")
