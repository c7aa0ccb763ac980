"""What leaves the process after a commit: messages to the broker, commands on the bus.

Neither may cost the host anything, so each has a thread of its own: a broker that hangs holds up that thread
alone. Whatever is lost here is made up for: the keeper sends a slot again, a renewal reads what is desired.
"""

from __future__ import annotations

import atexit
import logging
import os
import queue
import threading
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from celery import Celery
from kombu.messaging import Producer

from flask_spiderpool.bus import Bus, CommandMessage
from flask_spiderpool.state.process import PerProcess
from flask_spiderpool.store import Message
from flask_spiderpool.terms import TASK_SLICE

_log = logging.getLogger(__name__)

#: Jobs that wait at most; more are dropped.
MAX_WAITING = 10_000
#: How long the end of the process waits for what is still to leave.
CLOSE_WAIT_S = 1.0
#: How long a message waits for the broker to be connected.
CONNECT_TIMEOUT_S = 5.0

Job = Callable[[], None]


class Outbox:
    """One app's ways out: see :class:`flask_spiderpool.state.Outlet`.

    ``celery`` and ``bus`` are looked up when something leaves. ``eager_task`` gives the registered slice task
    for eager mode, or None when Celery is not eager.
    """

    def __init__(
        self,
        celery: Callable[[], Celery],
        bus: Callable[[], Bus],
        eager_task: Callable[[], Any | None],
    ) -> None:
        self._celery = celery
        self._bus = bus
        self._eager_task = eager_task
        self._running = threading.local()
        self._things = PerProcess()

    def send(self, messages: Sequence[Message]) -> None:
        """Publish ``messages``, from a thread; in eager mode run them, and what they bring forth, here."""
        try:
            task = self._eager_task()
        except Exception:
            _log.exception("messages could not be sent; the keeper sends them later")
            return
        if task is not None:
            self._run_inline(task, messages)
            return
        for message in messages:
            self._thread("broker").put(partial(self._publish, message))

    def tell(self, command: CommandMessage) -> None:
        """Send ``command`` on the bus, from a thread."""
        self._thread("bus").put(lambda: self._bus().send(command))

    def close(self) -> None:
        """Wait a second at most for what is still to leave. Idempotent."""
        things = self._things.take_all()
        for thread in things:
            if isinstance(thread, _JobThread):
                thread.close(CLOSE_WAIT_S)
        for producer in things:
            if isinstance(producer, Producer):
                with suppress(Exception):
                    producer.connection.release()

    def _publish(self, message: Message) -> None:
        celery = self._celery()
        # Not Celery's pool of producers: a child of a plain fork would write on its parent's connections.
        producer = self._things.get(f"producer {id(celery)}", lambda: _make_producer(celery))
        publish(celery, producer, message)

    def _thread(self, name: str) -> _JobThread:
        return self._things.get(name, lambda: _JobThread(name))

    def _run_inline(self, task: Any, messages: Sequence[Message]) -> None:
        """Run messages one after the other; those sent meanwhile join the end, so nothing recurses."""
        waiting: deque[Message] | None = getattr(self._running, "waiting", None)
        if waiting is not None:
            waiting.extend(messages)
            return
        waiting = self._running.waiting = deque(messages)
        try:
            while waiting:
                result = task.apply(args=_arguments(waiting.popleft()), throw=False)
                if result.failed():
                    _log.error("a slice failed in eager mode: %r\n%s", result.result, result.traceback)
        finally:
            self._running.waiting = None


def publish(celery: Celery, producer: Producer, message: Message) -> None:
    """Publish one message, by the task's name; on a connection that proves stale once more on a new one.

    Raises what the broker raises: the keeper sends again what was lost.
    """
    # Without a limit kombu would try to connect for ever.
    producer.connection.ensure_connection(max_retries=1, interval_start=0, timeout=CONNECT_TIMEOUT_S)
    celery.send_task(
        TASK_SLICE,
        args=_arguments(message),
        queue=message.queue,
        priority=message.priority,
        serializer="json",
        ignore_result=True,
        retry=True,
        retry_policy={"max_retries": 1, "interval_start": 0, "interval_step": 0, "interval_max": 0},
        producer=producer,
    )


def _make_producer(celery: Celery) -> Producer:
    """Make a producer on a connection that nobody else uses; it connects at the first message."""
    producer: Producer = celery.amqp.Producer(celery.connection_for_write(), auto_declare=False)
    return producer


def _arguments(message: Message) -> tuple[str, int, int]:
    ticket = message.ticket
    return str(ticket.task_id), ticket.n, ticket.epoch


class _JobThread:
    """A daemon thread that does jobs in order. The first failure of a row is logged, and its end.

    A forked child inherits the object but not the thread; there it does nothing.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._pid = os.getpid()
        self._failing = False
        self._full = False
        self._jobs: queue.Queue[Job | None] = queue.Queue(MAX_WAITING)
        self._ended = threading.Event()
        threading.Thread(target=self._work, name=f"spiderpool-{name}", daemon=True).start()
        _close_at_exit(self)

    def put(self, job: Job) -> None:
        """Add a job; dropped if too many wait."""
        try:
            self._jobs.put_nowait(job)
        except queue.Full:
            if not self._full:
                self._full = True
                _log.warning("the %s hangs: further messages are dropped until it answers", self._name)

    def close(self, timeout_s: float) -> None:
        """End the thread after the jobs that wait, if they are done in time."""
        if self._pid != os.getpid():
            return  # nobody would take the last job, and the queue's lock may have been held at the fork
        if not self._ended.is_set():
            try:
                self._jobs.put(None, timeout=timeout_s)
            except queue.Full:
                return
            self._ended.wait(timeout_s)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            self._do(job)
        self._ended.set()

    def _do(self, job: Job) -> None:
        try:
            job()
        except Exception as exc:
            if not self._failing:
                self._failing = True
                _log.warning(
                    "the %s cannot be reached (%s: %s); what is lost is made up for later",
                    self._name,
                    type(exc).__name__,
                    exc,
                )
        else:
            if self._failing or self._full:
                _log.info("the %s answers again", self._name)
            self._failing = self._full = False


def _close_at_exit(thread: _JobThread) -> None:
    reference = weakref.ref(thread)

    def close() -> None:
        alive = reference()
        if alive is not None:
            alive.close(CLOSE_WAIT_S)

    atexit.register(close)
