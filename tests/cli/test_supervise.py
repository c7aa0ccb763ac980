from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from flask_spiderpool.cli.supervise import FIRST_PAUSE_S, HEALTHY_S, LONGEST_PAUSE_S, Supervisor, pauses

WAIT = [sys.executable, "-c", "import sys; sys.stdin.read(); import time; time.sleep(60)"]
DEAF = [
    sys.executable,
    "-c",
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True); time.sleep(60)",
]
CHILD = """
import sys, time
sys.path.insert(0, {root!r})
from flask_spiderpool.cli.supervise import die_with_parent
die_with_parent()
open({ready!r}, "w").write("ready")
time.sleep(60)
"""
PARENT = """
import sys, time
sys.path.insert(0, {root!r})
from flask_spiderpool.cli.supervise import Supervisor
supervisor = Supervisor([sys.executable, "-c", {child!r}], grace_s=5)
supervisor.start()
print(supervisor.pid, flush=True)
time.sleep(60)
"""
ROOT = str(Path(__file__).parents[2])


def until(true: Callable[[], Any], within_s: float = 20.0) -> Any:
    """Wait until something has become true; return it."""
    end = time.monotonic() + within_s
    while not (value := true()):
        assert time.monotonic() < end, "it did not come true in time"
        time.sleep(0.02)
    return value


def test_pauses_double_up_to_a_limit_and_begin_anew_after_a_healthy_life():
    """A worker that cannot start must not be started a thousand times a minute."""
    pause_s, seen = 0.0, []
    for _ in range(12):
        pause_s = pauses(0.1, pause_s)
        seen.append(pause_s)
    assert seen[:3] == [FIRST_PAUSE_S, 2 * FIRST_PAUSE_S, 4 * FIRST_PAUSE_S]
    assert seen[-1] == LONGEST_PAUSE_S
    assert pauses(HEALTHY_S, LONGEST_PAUSE_S) == FIRST_PAUSE_S


def test_a_killed_child_is_started_again():
    """kill -9 of the worker: another one runs."""
    supervisor = Supervisor(WAIT, grace_s=5)
    supervisor.start()
    try:
        first = supervisor.pid
        assert first is not None
        os.kill(first, signal.SIGKILL)
        until(lambda: supervisor.pid not in (None, first))
        assert supervisor.starts == 2
    finally:
        supervisor.stop()


def test_stop_ends_the_child_for_good():
    """After stop there is no child and none comes back."""
    supervisor = Supervisor(WAIT, grace_s=5)
    supervisor.start()
    pid = supervisor.pid
    supervisor.stop()
    assert supervisor.pid is None
    assert not psutil.pid_exists(pid)
    supervisor.stop()
    assert supervisor.starts == 1


def test_a_child_that_ignores_sigterm_is_killed_after_its_grace(capfd: pytest.CaptureFixture[str]):
    """Nothing can hold the end of the command up for ever."""
    supervisor = Supervisor(DEAF, grace_s=0.2)
    supervisor.start()
    pid = supervisor.pid
    assert pid is not None
    until(lambda: "deaf" in capfd.readouterr().out)
    supervisor.stop()
    assert not psutil.pid_exists(pid)


def test_a_child_ends_when_its_parent_is_killed(tmp_path: Path):
    """kill -9 of ``up`` leaves no orphan."""
    ready = tmp_path / "ready"
    child = CHILD.format(root=ROOT, ready=str(ready))
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT.format(root=ROOT, child=child)], stdout=subprocess.PIPE, text=True
    )
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    until(ready.exists)
    parent.kill()
    parent.wait()
    parent.stdout.close()
    until(lambda: not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)


def test_a_child_whose_parent_is_gone_already_does_not_begin():
    """The parent may die while the child's interpreter starts."""
    code = "from flask_spiderpool.cli.supervise import die_with_parent; die_with_parent(); print('began')"
    env = {**os.environ, "SPIDERPOOL_PARENT_PID": "1", "PYTHONPATH": ROOT}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "began" not in done.stdout
    assert "is gone" in done.stderr
