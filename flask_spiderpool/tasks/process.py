"""The runtime of this process: made at first need, once a process, never inherited through a fork."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable

from flask_spiderpool.tasks.runtime import Runtime

logger = logging.getLogger(__name__)

EXIT_BROKEN = 1


def end_process() -> None:
    """End this worker process at once, for whoever supervises it to start another.

    Not in order: slices wait for what will never come. Their leases expire, as after any death.
    """
    logger.critical("this worker process can run no slice any more and ends, to be started again")
    logging.shutdown()
    os._exit(EXIT_BROKEN)


class ProcessRuntime:
    """Holds the one :class:`Runtime` of a process for one app.

    ``build`` makes and starts it; ``release``, called after its close, gives back what it had been built
    from, the last messages in the outlet included. A forked child that finds its parent's runtime forgets it (its threads
    do not exist there) and makes its own.
    """

    def __init__(self, build: Callable[[], Runtime], release: Callable[[], None] = lambda: None) -> None:
        self.threads = 1  #: how many slices this process is given at once
        self._build = build
        self._release = release
        self._reset()

    def _reset(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._runtime: Runtime | None = None
        self._ended = False

    def begin(self) -> None:
        """A worker starts in this process; perhaps not the first (a notebook, a test)."""
        with self._lock:
            self._ended = False

    def get(self) -> Runtime:
        """Return this process's runtime, made now if there is none."""
        runtime = self._find(even_if_ended=True)
        assert runtime is not None
        return runtime

    def get_unless_ended(self) -> Runtime | None:
        """Return this process's runtime as :meth:`get`, or None once its worker has ended."""
        return self._find(even_if_ended=False)

    def _find(self, *, even_if_ended: bool) -> Runtime | None:
        if self._pid != os.getpid():
            self._reset()
        with self._lock:
            if self._runtime is None and (even_if_ended or not self._ended):
                self._runtime = self._build()
            return self._runtime

    def drain(self) -> None:
        """Tell the running slices to end, if there is a runtime in this process."""
        if self._pid == os.getpid() and self._runtime is not None:
            self._runtime.drain()

    def close(self, grace_s: float | None = None, *, release: bool = True) -> None:
        """Close this process's runtime, if there is one; a later :meth:`get` makes another."""
        if self._pid != os.getpid():
            return
        with self._lock:
            runtime, self._runtime = self._runtime, None
        if runtime is not None:
            runtime.close(grace_s)
            if release:
                self._release()

    def end(self, grace_s: float | None = None) -> None:
        """Close for good: the worker ends. A message that its pool still holds must not begin anew."""
        if self._pid == os.getpid():
            with self._lock:
                self._ended = True
        self.close(grace_s)
