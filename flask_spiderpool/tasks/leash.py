"""How a worker's processes learn at once that the worker winds up, or that it has died."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable


class Leash:
    """A pipe whose writing end the worker's main process holds.

    Letting go is one ``close``, safe in a signal handler; the kernel lets go for a process that is killed.
    Children under prefork get no signal at a warm shutdown: without this a slice would work on to its end.
    """

    def __init__(self) -> None:
        self._read, self._write = os.pipe()
        self._holds = True

    def let_go(self) -> None:
        """Tell all watchers. Idempotent."""
        if self._holds:
            self._holds = False
            os.close(self._write)

    def watch(self, on_release: Callable[[], None], *, forked: bool) -> threading.Thread:
        """Call ``on_release`` from a thread of this process when the main process lets go or dies.

        ``forked``: this is a child, whose inherited copy of the writing end must be closed first.
        """
        if forked:
            self.let_go()

        def wait() -> None:
            os.read(self._read, 1)  # nothing is ever written: it returns at the pipe's end
            on_release()

        thread = threading.Thread(target=wait, name="spiderpool-leash", daemon=True)
        thread.start()
        return thread
