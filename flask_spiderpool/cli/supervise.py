"""A worker process that is kept alive by its parent, and ends with it."""

from __future__ import annotations

import ctypes
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence

logger = logging.getLogger(__name__)

FIRST_PAUSE_S = 0.2
LONGEST_PAUSE_S = 30.0
HEALTHY_S = 10.0  #: a child that lived this long starts the pauses anew
LOOK_S = 0.5  #: how often a child looks whether its parent lives
ORPHAN_S = (
    3.5  #: an orphan that has not ended in order by then is killed: its successor may wait for its lock
)
PR_SET_PDEATHSIG = 1  # linux/prctl.h
PARENT_VARIABLE = "SPIDERPOOL_PARENT_PID"


def pauses(lived_s: float, before_s: float) -> float:
    """Return how long to wait before the next start of a child that lived ``lived_s`` seconds."""
    if lived_s >= HEALTHY_S:
        return FIRST_PAUSE_S
    return min(max(before_s * 2, FIRST_PAUSE_S), LONGEST_PAUSE_S)


class Supervisor:
    """Starts a command in a session of its own and starts it again whenever it dies.

    The thread that starts it lives as long as the supervisor, because the kernel's parent-death signal is
    bound to the *thread* that made the child.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        grace_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._command = list(command)
        self._env = {**os.environ, **(env or {}), PARENT_VARIABLE: str(os.getpid())}
        self._grace_s = grace_s
        self._clock = clock
        self._stopping = threading.Event()
        self._started = threading.Event()
        self._child: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()
        self.starts = 0
        self._thread = threading.Thread(target=self._run, name="spiderpool-supervisor", daemon=True)

    @property
    def pid(self) -> int | None:
        """The child's process id, or None when none runs just now."""
        child = self._child
        return child.pid if child is not None and child.poll() is None else None

    def start(self) -> None:
        """Start the child and keep it alive from now on."""
        self._thread.start()
        self._started.wait()

    def stop(self) -> None:
        """End the child: SIGTERM, its grace, then SIGKILL. Idempotent."""
        self._stopping.set()
        with self._lock:
            child = self._child
        if child is not None:
            end_child(child, self._grace_s)
        self._thread.join(5.0)

    def _run(self) -> None:
        pause_s = 0.0
        while not self._stopping.is_set():
            born = self._clock()
            with self._lock:
                if self._stopping.is_set():
                    return
                self._child = subprocess.Popen(  # noqa: S603 - our own command, no shell
                    self._command, env=self._env, stdin=subprocess.DEVNULL, start_new_session=True
                )
                self.starts += 1
            self._started.set()
            code = self._child.wait()
            if self._stopping.is_set():
                return
            pause_s = pauses(self._clock() - born, pause_s)
            logger.warning("the worker ended with %s; it is started again in %.1f s", _how(code), pause_s)
            self._stopping.wait(pause_s)


def end_child(child: subprocess.Popen[bytes], grace_s: float) -> None:
    """Ask a child to end, wait, and kill its whole session if it does not."""
    if child.poll() is None:
        child.send_signal(signal.SIGTERM)
    try:
        child.wait(grace_s)
    except subprocess.TimeoutExpired:
        logger.warning("the worker did not end within %.0f s and is killed", grace_s)
        try:
            os.killpg(child.pid, signal.SIGKILL)
        except ProcessLookupError:
            return
        child.wait()


def die_with_parent() -> None:
    """In a supervised child: end in order when the parent dies, by whatever means.

    Does nothing in a process that nobody supervises. Called early in the child rather than between fork
    and exec, where a threaded parent may not run Python. On Linux the kernel tells us at once (SIGTERM);
    a thread looks as well, for other systems, and to kill what SIGTERM did not end.
    """
    expected = os.environ.pop(PARENT_VARIABLE, None)
    if expected is None:
        return
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    parent = int(expected)
    if os.getppid() != parent:
        raise SystemExit("the process that started this worker is gone")
    threading.Thread(target=_watch, args=(parent,), name="spiderpool-parent", daemon=True).start()


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(LOOK_S)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(ORPHAN_S)
    os.killpg(0, signal.SIGKILL)  # the session is the child's own: whatever it has started goes too


def _how(code: int) -> str:
    return f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
