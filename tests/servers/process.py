"""Starting a server that ends with the tests, whatever becomes of them."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import psutil

START_S = 30.0
_POLL_S = 0.02
_AGAIN_S = 0.5
_PR_SET_PDEATHSIG = 1


class ServerProcess:
    """A server on a loopback port that can be killed -9 and started again on the same port and data.

    Subclasses give :meth:`command` and :meth:`answers`. It runs in a session of its own, so that Ctrl-C
    in the tests' terminal does not reach it, and dies with the process that started it.
    """

    death_signal = signal.SIGKILL
    #: uid, gid and other options of Popen that say as whom it runs.
    run_as: dict[str, object] = {}  # noqa: RUF012 - never changed in place

    def __init__(self, folder: Path, port: int | None = None) -> None:
        self.folder = folder
        self.port = free_port() if port is None else port
        self._process: subprocess.Popen[bytes] | None = None

    def command(self) -> Sequence[str]:
        """Return the command line."""
        raise NotImplementedError

    def answers(self) -> bool:
        """Tell whether the server takes commands by now."""
        raise NotImplementedError

    @property
    def pid(self) -> int:
        """The pid of the running server."""
        assert self._process is not None, f"{type(self).__name__} is not running"
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether the process lives."""
        return self._process is not None and self._process.poll() is None

    @property
    def log(self) -> str:
        """What it has written so far."""
        path = self.folder / "server.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def start(self) -> None:
        """Start it and return when it answers."""
        deadline = time.monotonic() + START_S
        self._spawn()
        while not self.answers():
            assert self._process is not None
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_POLL_S)
                # It ended: its port or memory may still be held by what was killed a moment ago.
                time.sleep(_AGAIN_S)
                self._spawn()
            if time.monotonic() > deadline:
                self.kill()
                raise TimeoutError(f"{self.command()} does not answer after {START_S} s:\n{self.log[-4000:]}")

    def kill(self) -> None:
        """End it and its children as ``kill -9`` does; returns when all are gone."""
        if self._process is None:
            return
        family = [self._process.pid, *self._children()]
        for pid in family:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._process.wait()
        psutil.wait_procs([psutil.Process(pid) for pid in family[1:] if psutil.pid_exists(pid)], timeout=10)
        self._process = None

    def restart(self) -> None:
        """Kill -9 and start again."""
        self.kill()
        self.start()

    def stop(self) -> None:
        """End it in order."""
        if self._process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._process.pid, signal.SIGCONT)
            self._process.send_signal(signal.SIGINT)
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self.kill()
        self._process = None

    def _children(self) -> list[int]:
        try:
            return [child.pid for child in psutil.Process(self.pid).children(recursive=True)]
        except psutil.NoSuchProcess:
            return []

    def _spawn(self) -> None:
        with (self.folder / "server.log").open("ab") as log:
            self._process = subprocess.Popen(
                self.command(),
                cwd=self.folder,
                env={"PATH": os.defpath, "LC_ALL": "C", "HOME": str(self.folder)},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=die_with_parent(self.death_signal),
                **self.run_as,  # type: ignore[call-overload]
            )


def die_with_parent(death_signal: int) -> Callable[[], None]:
    """Return a ``preexec_fn`` by which the kernel ends the child when its parent dies (Linux; else nothing)."""
    parent = os.getpid()
    try:
        prctl = ctypes.CDLL(None).prctl
    except AttributeError:
        return lambda: None

    def preexec() -> None:
        prctl(_PR_SET_PDEATHSIG, death_signal)
        if os.getppid() != parent:  # it died before the line above
            os._exit(1)

    return preexec


def free_port() -> int:
    """Return a loopback port that nobody listens on just now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def new_folder(name: str) -> Path:
    """Make a folder for a server's data; short, since sockets' paths are limited, and not under a home."""
    return Path(tempfile.mkdtemp(prefix=f"spiderpool-{name}-"))
