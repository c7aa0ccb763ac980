"""What only the memory limiter has: it counts for one process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from flask_spiderpool.errors import ConfigError, SetupError
from flask_spiderpool.limiter import limiter_from_url
from flask_spiderpool.limiter.memory import MemoryLimiter
from flask_spiderpool.limiter.redis import RedisLimiter
from tests.limiter.conftest import HandClock


def in_child(body: str, *args: str) -> str:
    """Run a program with the limiter in another process; return what it printed."""
    program = "import sys\nfrom flask_spiderpool.limiter.memory import MemoryLimiter\n" + body
    done = subprocess.run(
        [sys.executable, "-c", program, *args], capture_output=True, text=True, check=True, timeout=60
    )
    return done.stdout.strip()


def test_full_buckets_are_forgotten(clock: HandClock) -> None:
    """Memory is bounded by the hosts asked lately."""
    limiter = MemoryLimiter(clock=clock)
    clock.advance(1_000)
    for number in range(20_000):
        clock.advance(0.01)
        limiter.acquire(f"host-{number}", 1.0, 2)
    assert len(limiter._buckets) < 10_000
    assert limiter.acquire("host-19999", 1.0, 2).granted == 0


def test_a_second_process_is_refused(tmp_path: Path) -> None:
    """While one process counts, another's limiter says who has the lock and what to do."""
    lock_path = tmp_path / "deep" / "limiter.lock"
    limiter = MemoryLimiter(lock_path=lock_path)
    body = (
        "try:\n    MemoryLimiter(lock_path=sys.argv[1])\n"
        "except Exception as exc:\n    print(type(exc).__name__, exc)\n"
    )
    answer = in_child(body, str(lock_path))
    assert answer.startswith("SetupError")
    assert f"process {os.getpid()} holds {lock_path}" in answer
    assert "SPIDERPOOL_LIMITER_URL" in answer
    limiter.close()
    assert in_child(body, str(lock_path)) == ""


def test_one_process_may_have_several(tmp_path: Path) -> None:
    """Two apps of one process share the lock, and it is free when both are closed."""
    lock_path = tmp_path / "limiter.lock"
    one, two = MemoryLimiter(lock_path=lock_path), MemoryLimiter(lock_path=lock_path)
    one.close()
    one.close()
    body = "try:\n    MemoryLimiter(lock_path=sys.argv[1]); print('free')\nexcept Exception:\n    print('held')\n"
    assert in_child(body, str(lock_path)) == "held"
    two.close()
    assert in_child(body, str(lock_path)) == "free"


def test_the_lock_dies_with_its_process(tmp_path: Path) -> None:
    """kill -9 of the holder frees the lock, even if the holder has children that live on."""
    lock_path = tmp_path / "limiter.lock"
    program = (
        "import os, sys, time\n"
        "from flask_spiderpool.limiter.memory import MemoryLimiter\n"
        "limiter = MemoryLimiter(lock_path=sys.argv[1])\n"
        "child = os.fork()\n"
        "if child: print(child, flush=True)\n"
        "time.sleep(300)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(lock_path)], stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        orphan = int(holder.stdout.readline())
        with pytest.raises(SetupError, match=f"process {holder.pid} holds"):
            MemoryLimiter(lock_path=lock_path)
        holder.kill()
        holder.wait()
        try:
            MemoryLimiter(lock_path=lock_path).close()
        finally:
            os.kill(orphan, 9)


def test_a_forked_child_is_another_process(tmp_path: Path) -> None:
    """The child of a fork does not pass for its parent, with the old limiter or a new one; the parent goes on."""
    body = (
        "import os\n"
        "limiter = MemoryLimiter(lock_path=sys.argv[1])\n"
        "def refused(call):\n"
        "    try:\n        call()\n"
        "    except Exception as exc:\n        return type(exc).__name__ == 'SetupError'\n"
        "    return False\n"
        "if os.fork() == 0:\n"
        "    old = refused(lambda: limiter.acquire('site', 1.0, 1))\n"
        "    new = refused(lambda: MemoryLimiter(lock_path=sys.argv[1]))\n"
        "    os._exit(old + 2 * new)\n"
        "_, status = os.wait()\n"
        "limiter.acquire('site', 1.0, 1)\n"
        "print(os.waitstatus_to_exitcode(status))\n"
    )
    assert in_child(body, str(tmp_path / "limiter.lock")) == "3"


def test_a_fork_inherits_no_tokens() -> None:
    """Without a lock file the child's limiter is newly born: parent and child never spend one bucket twice."""
    body = (
        "import os\n"
        "now = [0.0]\n"
        "limiter = MemoryLimiter(clock=lambda: now[0])\n"
        "now[0] = 1000.0\n"
        "if os.fork() == 0:\n    os._exit(limiter.acquire('site', 1.0, 9, n=99).granted)\n"
        "_, status = os.wait()\n"
        "print(os.waitstatus_to_exitcode(status), limiter.acquire('site', 1.0, 9, n=99).granted)\n"
    )
    assert in_child(body) == "0 8"


def test_a_lock_that_cannot_be_made(tmp_path: Path) -> None:
    """A lock file in an impossible place is a set-up error that names it."""
    (tmp_path / "file").write_text("")
    with pytest.raises(SetupError, match=r"limiter\.lock"):
        MemoryLimiter(lock_path=tmp_path / "file" / "limiter.lock")


def test_a_url_chooses(tmp_path: Path) -> None:
    """memory:// and redis:// make their limiters without connecting; another scheme is named as wrong."""
    limiter = limiter_from_url("memory://", lock_path=tmp_path / "limiter.lock")
    assert isinstance(limiter, MemoryLimiter)
    limiter.close()
    assert isinstance(limiter_from_url("redis://127.0.0.1:1/0"), RedisLimiter)
    with pytest.raises(ConfigError, match=r"SPIDERPOOL_LIMITER_URL.*memcached.*memory://"):
        limiter_from_url("memcached://host")


class _Hold:
    """Held or not, as the test says."""

    held = True
    turns = 0
    released = False

    def release(self) -> None:
        """Note it."""
        self.released = True


def test_nothing_is_granted_while_it_is_not_sure_who_counts(clock: HandClock) -> None:
    """Without its hold the limiter grants nothing; when another may have counted, it begins anew."""
    hold = _Hold()
    limiter = MemoryLimiter(clock=clock, hold=lambda: hold)
    clock.advance(1_000)
    assert limiter.acquire("site", 1.0, 5, 1).granted == 1
    hold.held = False
    assert limiter.acquire("site", 1.0, 5, 1) == (0, 0.5)
    assert limiter.acquire("unlimited", 0.0, 1, 1).granted == 0
    hold.held = True
    assert limiter.acquire("site", 1.0, 5, 1).granted == 1
    hold.turns = 1
    assert limiter.acquire("site", 1.0, 5, 1).granted == 0
    limiter.close()
    assert hold.released


def test_a_hold_that_is_refused_leaves_no_lock(tmp_path: Path) -> None:
    """Where the second lock is not to be had the first is given back."""

    def refuse() -> _Hold:
        raise SetupError("taken")

    path = tmp_path / "limiter.lock"
    with pytest.raises(SetupError, match="taken"):
        MemoryLimiter(lock_path=path, hold=refuse)
    assert in_child("MemoryLimiter(lock_path=sys.argv[1]); print('free')", str(path)) == "free"
