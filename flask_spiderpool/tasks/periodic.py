"""A daemon thread that does one thing again and again, can be woken early and stops when told."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from flask_spiderpool.errors import SpiderPoolError

logger = logging.getLogger(__name__)


class Trouble:
    """Says once that something has begun to fail, and once that it works again.

    A database that is away for a minute must not fill the log with one traceback a second.
    """

    def __init__(self, what: str) -> None:
        self._what = what
        self._said: str | None = None

    def tell(self, error: BaseException) -> None:
        """Take note of a failure; log it when it is new."""
        words = f"{type(error).__name__}: {error}"
        if words != self._said:
            self._said = words
            logger.warning("%s fails, it is tried again: %s", self._what, words, exc_info=_foreign(error))

    def over(self) -> None:
        """Take note that it worked."""
        if self._said is not None:
            self._said = None
            logger.warning("%s works again", self._what)


def _foreign(error: BaseException) -> BaseException | None:
    """Return the error when its traceback says something: not for a service that is merely away."""
    return None if isinstance(error, SpiderPoolError | OSError) else error


class Periodic:
    """Calls ``act`` at once, then every ``interval_s`` seconds, in a thread of its own.

    What ``act`` raises is logged once per kind and the rhythm goes on. :meth:`wake` calls it early; wakes
    that come while it runs make one further call.
    """

    def __init__(self, name: str, interval_s: float, act: Callable[[], None]) -> None:
        self.name = name
        self._interval_s = interval_s
        self._act = act
        self._trouble = Trouble(name)
        self._woken = threading.Event()
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin. Once only."""
        self._thread = threading.Thread(target=self._run, name=self.name, daemon=True)
        self._thread.start()

    def wake(self) -> None:
        """Ask for a call as soon as may be."""
        self._woken.set()

    def stop(self, join_s: float = 5.0) -> None:
        """Make no further call, and wait up to ``join_s`` seconds for one under way. Idempotent."""
        self._stopped.set()
        self._woken.set()
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(join_s)

    def once(self) -> None:
        """Make one call in the calling thread, as the thread would."""
        try:
            self._act()
        except Exception as error:
            self._trouble.tell(error)
        else:
            self._trouble.over()

    def _run(self) -> None:
        while not self._stopped.is_set():
            self.once()
            self._woken.wait(self._interval_s)
            self._woken.clear()
