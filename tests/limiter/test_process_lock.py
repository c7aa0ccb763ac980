"""A lock file that says who is alone, and may be deleted."""

from __future__ import annotations

import fcntl
import subprocess
import sys
from pathlib import Path

import pytest

from flask_spiderpool.errors import SetupError
from flask_spiderpool.limiter import process_lock
from flask_spiderpool.limiter.process_lock import ProcessLock


def held_elsewhere(path: Path) -> bool:
    """Tell whether another process is refused the lock."""
    program = (
        "import sys\nfrom flask_spiderpool.limiter.process_lock import ProcessLock\n"
        "try:\n    ProcessLock(sys.argv[1]); print('free')\nexcept Exception:\n    print('held')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(path)], capture_output=True, text=True, check=True, timeout=60
    )
    return done.stdout.strip() == "held"


def test_a_file_that_is_deleted_meanwhile_is_not_the_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever opened the file before its holder deleted it locks the next one: else two would be let in."""
    path = tmp_path / "x.lock"
    before = ProcessLock(path)
    tries: list[int] = []

    def flock(descriptor: int, how: int) -> None:
        tries.append(descriptor)
        if len(tries) == 1:
            before.release(delete=True)
        real(descriptor, how)

    real = fcntl.flock
    # The holder is of this process, so the second asker is made to forget that.
    monkeypatch.setattr(process_lock, "_guard", _NoLock())
    held = process_lock._held
    monkeypatch.setattr(process_lock, "_held", _Forgetful(held))
    # What is released in the copy must not stay in the original: a fork would close whatever has its number.
    del held[before.path]
    monkeypatch.setattr(process_lock.fcntl, "flock", flock)
    after = ProcessLock(path)
    assert len(tries) == 2
    assert path.exists()
    assert held_elsewhere(path)
    after.release(delete=True)
    assert not path.exists()


class _NoLock:
    """One thread plays two processes."""

    def __enter__(self) -> None:
        """Nothing to wait for."""

    def __exit__(self, *_: object) -> None:
        """Nothing to give back."""


class _Forgetful(dict):  # type: ignore[type-arg]
    """Knows of no lock when it is asked whether this process holds one."""

    def __contains__(self, key: object) -> bool:
        return False


def test_the_last_holder_deletes(tmp_path: Path) -> None:
    """The file stays while somebody of this process holds the lock, and is deleted only when asked for."""
    path = tmp_path / "x.lock"
    one, two = ProcessLock(path), ProcessLock(path)
    one.release(delete=True)
    assert held_elsewhere(path)
    two.release()
    assert path.exists()
    ProcessLock(path).release(delete=True)
    assert not path.exists()


def test_a_new_file_of_somebody_else_is_left(tmp_path: Path) -> None:
    """Where the file was deleted by hand and another made, that one is not this lock's to delete."""
    path = tmp_path / "x.lock"
    lock = ProcessLock(path)
    path.unlink()
    path.write_text("another's")
    lock.release(delete=True)
    assert path.read_text() == "another's"


def test_the_holder_is_named(tmp_path: Path) -> None:
    """A holder's file says which process it is."""
    path = tmp_path / "x.lock"
    with subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import sys\nfrom flask_spiderpool.limiter.process_lock import ProcessLock\n"
            "ProcessLock(sys.argv[1]); print('held', flush=True); sys.stdin.read()\n",
            str(path),
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(SetupError, match=f"process {holder.pid} holds"):
            ProcessLock(path)
        holder.kill()
