"""The threads in which spiders' own code runs: a fixed number at work, and stuck ones replaced.

``concurrent.futures`` will not do: a function that never returns keeps its thread for ever, so a few hostile
pages would stop every spider with ``parse``, and its threads are joined when the interpreter ends.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

T = TypeVar("T")

logger = logging.getLogger(__name__)

MOST_STUCK = 64  #: threads given up and still running; beyond this none is replaced


class NeverReturned(Exception):
    """A call did not return in time."""


@dataclass(slots=True, eq=False)
class Call(Generic[T]):
    """One call that was handed in."""

    run: Callable[[], T]
    future: Future[T] = field(default_factory=Future)
    started_at: float | None = None  #: by ``time.monotonic``; None: it still waits for a thread
    given_up: bool = False  #: nobody waits for it any more
    replaced: bool = False  #: another thread has taken its thread's place


class CallbackThreads:
    """Runs calls in ``count`` daemon threads; made lazily, closed without waiting for anybody.

    ``initializer`` is called once in each thread.
    """

    def __init__(
        self,
        count: int,
        *,
        initializer: Callable[[], object] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._count = count
        self._initializer = initializer
        self._clock = clock
        self._calls: queue.SimpleQueue[Call[Any] | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._threads = 0
        self._idle = 0
        self._stuck = 0
        self._closed = False

    @property
    def stuck(self) -> int:
        """How many threads were given up and have not come back."""
        return self._stuck

    def submit(self, run: Callable[[], T]) -> Call[T]:
        """Hand in a call. Raises ``RuntimeError`` after :meth:`close`."""
        call = Call(run)
        with self._lock:
            if self._closed:
                raise RuntimeError("the callback threads are closed")
            self._calls.put(call)
            if self._idle == 0 and self._threads < self._count:
                self._start()
        return call

    def give_up(self, call: Call[Any]) -> None:
        """Wait for a call no more: one that has not begun never will, one that runs loses its thread's place."""
        if call.future.cancel():
            return
        with self._lock:
            if call.given_up or call.future.done():
                return
            call.given_up = True
            self._stuck += 1
            if self._stuck > MOST_STUCK:
                logger.error("%d callbacks never returned; this worker should be restarted", self._stuck)
                return
            call.replaced = True
            self._threads -= 1
            if not self._closed:
                self._start()

    async def run(self, run: Callable[[], T], timeout_s: float) -> T:
        """Run a call and wait for it; raises :class:`NeverReturned` ``timeout_s`` after it began.

        Its wait for a thread does not count: that is the pool's own. A cancelled wait gives the call up.
        """
        call = self.submit(run)
        waited = asyncio.wrap_future(call.future)
        try:
            while not waited.done():
                left_s = timeout_s - (0.0 if call.started_at is None else self._clock() - call.started_at)
                if left_s <= 0:
                    raise NeverReturned
                await asyncio.wait([waited], timeout=left_s)
            return waited.result()
        finally:
            if not waited.done():
                self.give_up(call)
                waited.cancel()

    def close(self) -> None:
        """Take no more calls; threads end as they come back. Idempotent."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            for _ in range(self._threads):
                self._calls.put(None)

    def _start(self) -> None:
        self._threads += 1
        threading.Thread(target=self._work, name="spiderpool-callback", daemon=True).start()

    def _work(self) -> None:
        try:
            self._initializer()
        except Exception:
            logger.exception("a callback thread could not be prepared; it goes on without")
        while True:
            with self._lock:
                self._idle += 1
            call = self._calls.get()
            with self._lock:
                self._idle -= 1
            if call is None:
                return
            if not call.future.set_running_or_notify_cancel():
                continue
            call.started_at = self._clock()
            try:
                result = call.run()
            except Exception as error:
                call.future.set_exception(error)
            except BaseException as error:
                # KeyboardInterrupt in a future would end whoever waits for it: here it is only what
                # somebody's code has raised.
                call.future.set_exception(RuntimeError(f"{type(error).__name__}: {error}"))
            else:
                call.future.set_result(result)
            with self._lock:
                self._stuck -= call.given_up
                if call.replaced:
                    return
