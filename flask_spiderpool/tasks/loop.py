"""One asyncio loop in one daemon thread, kept for the life of the process.

Celery has no asyncio pool, and a kept ``asyncio.Runner`` fails under its thread pool; a loop of our own
that slices hand their coroutines to works under prefork, threads and solo alike, and keeps connections
open from one slice to the next.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

logger = logging.getLogger(__name__)


class LoopThread:
    """Runs coroutines that other threads hand in.

    ``on_end`` is called, in the loop's thread, when the loop ends without :meth:`close`: a ``KeyboardInterrupt``
    or ``SystemExit`` that some code raised in it passes every handler, or somebody called its ``stop``.
    Nothing that waits on a future of this loop would ever go on, so whoever made it must end.
    """

    def __init__(self, name: str = "spiderpool-loop", *, on_end: Callable[[], None] = lambda: None) -> None:
        self._on_end = on_end
        self._closing = False
        self._ready = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The running loop."""
        if self._loop is None:
            raise RuntimeError("the loop thread has not been started")
        return self._loop

    def start(self) -> None:
        """Start the thread and wait until the loop runs."""
        self._thread.start()
        self._ready.wait()

    def submit(self, work: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        """Run ``work`` in the loop; the caller waits on the future that is returned."""
        try:
            return asyncio.run_coroutine_threadsafe(work, self.loop)
        except RuntimeError:  # the loop is closed
            work.close()
            raise

    def close(self, join_s: float = 5.0) -> None:
        """Cancel what still runs and end the thread. Idempotent."""
        loop = self._loop
        if loop is None or loop.is_closed():
            return
        self._closing = True
        loop.call_soon_threadsafe(loop.stop)
        if self._thread is not threading.current_thread():
            self._thread.join(join_s)

    def _run(self) -> None:
        loop = asyncio.new_event_loop()
        asyncio.set_event_loop(loop)
        self._loop = loop
        loop.call_soon(self._ready.set)
        error: BaseException | None = None
        try:
            loop.run_forever()
        except BaseException as raised:
            error = raised
        if not self._closing:
            logger.critical("the event loop of this process ended by itself", exc_info=error)
            self._on_end()
        _wind_up(loop)


def _wind_up(loop: asyncio.AbstractEventLoop) -> None:
    """Cancel the tasks that are left and close the loop, as ``asyncio.run`` does."""
    left = asyncio.all_tasks(loop)
    for task in left:
        task.cancel()
    if left:
        loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
    loop.run_until_complete(loop.shutdown_asyncgens())
    asyncio.set_event_loop(None)
    loop.close()
