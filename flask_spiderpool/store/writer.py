"""SQLite's one writer thread a process.

Deferred transactions on four threads met 140,430 lock errors, and sixteen threads held the web's writes up
for seconds (PROTOCOL, *Finish, pause, stop*); one thread that takes the calls in turn keeps the page rate
and lets the renewal of leases go first.
"""

from __future__ import annotations

import itertools
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

_LAST = 2  #: after everything that is queued


class Writer:
    """A thread that runs calls one at a time: those put ``first`` before the others, else in order."""

    def __init__(self, name: str = "spiderpool-writer") -> None:
        self._calls: queue.PriorityQueue[tuple[int, int, Callable[[], Any] | None, Future[Any] | None]] = (
            queue.PriorityQueue()
        )
        self._count = itertools.count()
        self._closed = False
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    def put(self, call: Callable[[], Any], *, first: bool = False) -> Future[Any]:
        """Queue ``call``; its result or exception comes by the future. A call from the thread itself runs at once."""
        future: Future[Any] = Future()
        if threading.current_thread() is self._thread:
            _settle(future, call)
            return future
        if self._closed:
            raise RuntimeError("the store is closed")
        self._calls.put((0 if first else 1, next(self._count), call, future))
        return future

    def close(self) -> None:
        """Finish what is queued, then end the thread. Idempotent."""
        if not self._closed:
            self._closed = True
            self._calls.put((_LAST, next(self._count), None, None))
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _work(self) -> None:
        while True:
            _, _, call, future = self._calls.get()
            if call is None or future is None:
                return
            if future.set_running_or_notify_cancel():
                _settle(future, call)


def _settle(future: Future[Any], call: Callable[[], Any]) -> None:
    try:
        future.set_result(call())
    except BaseException as error:
        future.set_exception(error)
