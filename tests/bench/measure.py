"""Run one command and measure the CPU time and memory of its whole process tree.

The command runs below a small keeper process that is the tree's subreaper: a grandchild that outlives its
parent falls to the keeper, so that ``RUSAGE_CHILDREN`` of the keeper holds every process of the tree once
all have ended, interpreter start included. Memory is the sum of the tree's resident sets, sampled by the
caller (whose own time is not counted).
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
PR_SET_CHILD_SUBREAPER = 36
PR_SET_PDEATHSIG = 1


@dataclass
class Usage:
    """What a tree used: CPU seconds (user + system), wall seconds, bytes of memory."""

    cpu_s: float = 0.0
    wall_s: float = 0.0
    peak_rss_bytes: int = 0
    returncode: int | None = None
    rss_at: dict[int, int] = field(default_factory=dict)  #: pages fetched -> bytes, where asked for


def tree(pid: int) -> list[int]:
    """Return ``pid`` and all its living descendants."""
    found, todo = [], [pid]
    while todo:
        current = todo.pop()
        found.append(current)
        try:
            for thread in Path(f"/proc/{current}/task").iterdir():
                children = (thread / "children").read_text()
                todo.extend(int(child) for child in children.split())
        except OSError:
            continue
    return found


def rss_bytes(pids: Sequence[int]) -> int:
    """Return the sum of the resident sets; pages shared between processes count in each."""
    total = 0
    for pid in pids:
        try:
            total += int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE_BYTES
        except (OSError, IndexError):
            continue
    return total


class Running:
    """A command under way; :meth:`wait` ends it and returns its :class:`Usage`."""

    def __init__(
        self, command: Sequence[str], *, env: Mapping[str, str], cwd: Path, core: int | None, log: Path
    ) -> None:
        self._report, writer = os.pipe()
        self._log = log.open("ab")
        self._began = time.monotonic()
        keeper = [sys.executable, "-S", __file__, str(writer), "" if core is None else str(core), *command]
        self._keeper = subprocess.Popen(
            keeper,
            env=dict(env),
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
            pass_fds=[writer],
            start_new_session=True,
        )
        os.close(writer)
        self.usage = Usage()
        self._ended = threading.Event()
        self._sampler = threading.Thread(target=self._sample, daemon=True)
        self._sampler.start()

    @property
    def pid(self) -> int:
        """The keeper's pid; the command and its children are below it."""
        return self._keeper.pid

    def alive(self) -> bool:
        """Tell whether the command still runs."""
        return self._keeper.poll() is None

    def rss_now(self) -> int:
        """Return the tree's memory now, in bytes, without the keeper's own."""
        return rss_bytes([pid for pid in tree(self.pid) if pid != self.pid])

    def cpu_now(self) -> float:
        """Return the CPU seconds used so far by the living tree and what its parents have waited for."""
        total = 0
        for pid in tree(self.pid):
            try:
                fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
            except (OSError, IndexError):
                continue
            # Fields 14 to 17 of proc(5) stat: utime, stime, cutime, cstime. The keeper's own are not ours.
            total += sum(map(int, fields[13:15] if pid == self.pid else fields[11:15]))
        return total / os.sysconf("SC_CLK_TCK")

    def _sample(self) -> None:
        while not self._ended.wait(0.1):
            self.usage.peak_rss_bytes = max(self.usage.peak_rss_bytes, self.rss_now())

    def terminate(self) -> None:
        """Ask the command to end (SIGTERM)."""
        for child in Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split():
            os.kill(int(child), signal.SIGTERM)

    def wait(self, timeout_s: float = 900, *, until: Callable[[], bool] | None = None) -> Usage:
        """Wait for the end (or first for ``until``, then send SIGTERM) and return what was used."""
        deadline = time.monotonic() + timeout_s
        if until is not None:
            while not until():
                if not self.alive():
                    raise RuntimeError(f"the command ended too early; see {self._log.name}")
                if time.monotonic() > deadline:
                    self.kill()
                    raise TimeoutError(f"not done after {timeout_s:g} s; see {self._log.name}")
                time.sleep(0.02)
            self.usage.wall_s = time.monotonic() - self._began
            self.terminate()
        try:
            self._keeper.wait(max(1.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            self.kill()
            raise
        finally:
            self._ended.set()
            self._sampler.join()
            self._log.close()
        if not self.usage.wall_s:
            self.usage.wall_s = time.monotonic() - self._began
        with os.fdopen(self._report) as report:
            measured = json.loads(report.read())
        self.usage.cpu_s = measured["cpu_s"]
        self.usage.returncode = measured["returncode"]
        return self.usage

    def kill(self) -> None:
        """End the whole tree at once."""
        for pid in reversed(tree(self.pid)):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        self._keeper.wait()


def _keep(report: int, core: str, command: Sequence[str]) -> None:
    """Run ``command`` below this process, wait for every process of the tree, report."""
    libc = ctypes.CDLL(None)
    libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if core:
        os.sched_setaffinity(0, {int(core)})
    os.set_inheritable(report, False)
    # The benchmark may be killed; then the keeper dies and takes the command along.
    process = subprocess.Popen(
        command, preexec_fn=lambda: libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    )
    status = None
    while True:
        try:
            pid, code = os.wait()
        except ChildProcessError:
            break
        if pid == process.pid:
            status = os.waitstatus_to_exitcode(code)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    with os.fdopen(report, "w") as pipe:
        json.dump({"cpu_s": used.ru_utime + used.ru_stime, "returncode": status}, pipe)


if __name__ == "__main__":
    _keep(int(sys.argv[1]), sys.argv[2], sys.argv[3:])
