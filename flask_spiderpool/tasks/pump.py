"""Slices run here and now, one after the other: eager mode, and the foreground crawl."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from uuid import UUID

from flask_spiderpool.errors import SpiderPoolError
from flask_spiderpool.store import Message
from flask_spiderpool.tasks.runtime import Runtime
from flask_spiderpool.tasks.slice import run_slice
from flask_spiderpool.terms import ENDED, Status

#: Statuses in which nothing more happens by itself.
AT_REST = ENDED | {Status.PAUSED}


def work_through(
    runtime: Runtime,
    task_id: UUID,
    messages: Iterable[Message],
    *,
    wait: Callable[[float], object],
    pause_s: float = 0.1,
) -> Status:
    """Run slices until the task rests; return its status.

    What a message queue and the keeper do between slices is done here, in a loop: messages wake slots, and
    while there are none the keeper's pass looks for what has ripened, every ``pause_s`` seconds (``wait``
    sleeps). Ends early, with the status as it then is, when the runtime drains; raises
    :class:`~flask_spiderpool.errors.SpiderPoolError` when its event loop has ended by itself.
    """
    store = runtime.parts.store
    queue = deque(messages)
    while True:
        while queue and not runtime.draining:
            queue.extend(run_slice(runtime, queue.popleft().ticket))
            if runtime.broken:
                raise SpiderPoolError(
                    "the event loop of this process ended by itself: see the log, and begin anew"
                )
        status = Status(store.submit(store.verdict, task_id).result())
        if status in AT_REST or runtime.draining:
            return status
        queue.extend(store.submit(store.keep, runtime.name).result())
        if not queue:
            wait(pause_s)
