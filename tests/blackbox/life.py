"""One process under test, life after life: started, killed -9, frozen, revived, started again."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from tests.servers.process import die_with_parent

REPOSITORY = Path(__file__).resolve().parents[2]
POLL_S = 0.02


class Died(Exception):
    """A process ended by itself that should not have."""


@dataclass(frozen=True)
class Kill:
    """What was killed, and when (seconds since 1970) it could no longer act."""

    what: str
    pid: int
    at: float


def eventually(what: str, check: Callable[[], object], timeout_s: float = 30.0) -> None:
    """Return as soon as ``check()`` is true; fail, naming ``what``, when it is not within ``timeout_s``."""
    deadline = time.monotonic() + timeout_s
    while not check():
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {timeout_s:g} s: {what}")
        time.sleep(POLL_S)


class Life:
    """A command that is run, and run again after its death. Everything that it writes is kept in one log."""

    def __init__(self, name: str, command: Sequence[str], env: Mapping[str, str], folder: Path) -> None:
        self.name = name
        self._command = list(command)
        self._env = dict(env)
        self.log = folder / f"{name}.log"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """The pid of the present life."""
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Begin a life; returns at once."""
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
                cwd=REPOSITORY,
                env=self._env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=die_with_parent(signal.SIGKILL),
            )

    def running(self) -> bool:
        """Tell whether the present life goes on."""
        return self._process is not None and self._process.poll() is None

    def check_alive(self) -> None:
        """Raise if it ended without having been killed by the test."""
        if not self.running():
            assert self._process is not None
            raise Died(f"{self.name} ended by itself with {self._process.poll()}:\n{self.tail()}")

    def kill(self) -> Kill:
        """End it by kill -9; its children are left to themselves."""
        self.check_alive()
        assert self._process is not None
        pid = self._process.pid
        os.kill(pid, signal.SIGKILL)
        self._process.wait()
        return Kill(self.name, pid, time.time())

    def freeze(self) -> None:
        """Stop it from running (SIGSTOP), with all its children."""
        self._signal_family(signal.SIGSTOP)

    def revive(self) -> None:
        """Let it go on (SIGCONT)."""
        self._signal_family(signal.SIGCONT)

    def terminate(self, timeout_s: float = 15) -> int:
        """Ask it to end (SIGTERM) and return its exit code."""
        assert self._process is not None
        self._process.terminate()
        return self._process.wait(timeout_s)

    def family(self) -> list[psutil.Process]:
        """Return the process and all that descend from it."""
        try:
            parent = psutil.Process(self.pid)
            return [parent, *parent.children(recursive=True)]
        except psutil.NoSuchProcess:
            return []

    def end(self) -> None:
        """End the process and its children whatever they do; for the test's end."""
        if self._process is None:
            return
        for process in reversed(self.family()):
            try:
                process.kill()
            except psutil.NoSuchProcess:
                continue
        self._process.wait()

    def tail(self, characters: int = 6000) -> str:
        """Return the end of its log."""
        return self.log.read_text(errors="replace")[-characters:] if self.log.exists() else ""

    def _signal_family(self, number: signal.Signals) -> None:
        for process in self.family():
            process.send_signal(number)


def argument_of(process: psutil.Process, word: str) -> bool:
    """Tell whether ``word`` stands in one of the arguments of the command line of ``process``."""
    try:
        return any(word in argument for argument in process.cmdline())
    except psutil.NoSuchProcess:
        return False


def wait_gone(processes: Sequence[psutil.Process], timeout_s: float) -> dict[int, float]:
    """Wait until all are gone; return when each was seen gone; fail if one still lives after ``timeout_s``."""
    gone_at: dict[int, float] = {}

    def all_gone() -> bool:
        for process in processes:
            if process.pid not in gone_at and not _lives(process):
                gone_at[process.pid] = time.time()
        return len(gone_at) == len(processes)

    try:
        eventually("every process is gone", all_gone, timeout_s)
    except AssertionError:
        left = [process for process in processes if process.pid not in gone_at]
        raise AssertionError(f"still alive after {timeout_s:g} s: {left}") from None
    return gone_at


def _lives(process: psutil.Process) -> bool:
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
