"""A lock file that says: this is the one worker process here."""

from __future__ import annotations

import fcntl
import os
import threading
from pathlib import Path

from flask_spiderpool.errors import SetupError

_guard = threading.Lock()
# A process holds a path once, however many limiters ask; that is a fact of the process, not of an app.
_held: dict[Path, tuple[int, int]] = {}  # path -> (file descriptor, holders)


class ProcessLock:
    """Hold ``path`` for this process until :meth:`release` or the end of the process, however it ends.

    Locks of one process on one path share it. A forked child does not inherit it: it must ask again, and
    is refused while its parent lives. A second process gets a
    :class:`~flask_spiderpool.errors.SetupError` that says the remedy.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path).resolve()
        self._pid = os.getpid()
        self._released = False
        _hold(self.path)

    def release(self, *, delete: bool = False) -> None:
        """Give the lock back. Idempotent; does nothing in a forked child, which never held it.

        ``delete``: the file goes too, if nobody else of this process holds the lock.
        """
        if self._released or self._pid != os.getpid():
            return
        self._released = True
        _let_go(self.path, delete=delete)


def _hold(path: Path) -> None:
    with _guard:
        if path in _held:
            descriptor, holders = _held[path]
            _held[path] = (descriptor, holders + 1)
            return
        descriptor = _lock_file(path)
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        _held[path] = (descriptor, 1)


def _let_go(path: Path, *, delete: bool) -> None:
    with _guard:
        descriptor, holders = _held.pop(path)
        if holders > 1:
            _held[path] = (descriptor, holders - 1)
            return
        if delete and _is_at(path, descriptor):
            # Before the lock is free: later it may be another process's file.
            path.unlink(missing_ok=True)
        os.close(descriptor)


def _lock_file(path: Path) -> int:
    """Open and lock, once more when the file that was locked is no longer the one at ``path``.

    Its holder may have deleted it between the two steps; a lock on what has no name keeps nobody out.
    """
    while True:
        descriptor = _lock_once(path)
        if _is_at(path, descriptor):
            return descriptor
        os.close(descriptor)


def _is_at(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _lock_once(path: Path) -> int:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as exc:
        raise SetupError(
            f"the memory limiter cannot use its lock file {path}: {exc.strerror}. Make its folder writable"
            " for the worker, or set SPIDERPOOL_LIMITER_URL to Redis"
        ) from exc
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as exc:
        holder = os.pread(descriptor, 32, 0).decode(errors="replace").strip() or "unknown"
        os.close(descriptor)
        raise SetupError(
            f"the memory limiter counts for one worker process only, and process {holder} holds {path}."
            " Stop that worker, or set SPIDERPOOL_LIMITER_URL to Redis to run more than one"
        ) from exc
    return descriptor


def _forget_in_child() -> None:
    """Close the inherited descriptors: the lock must die with the parent, not live on in its child."""
    global _guard
    _guard = threading.Lock()  # another thread may have held it at the fork
    for descriptor, _ in _held.values():
        os.close(descriptor)
    _held.clear()


os.register_at_fork(after_in_child=_forget_in_child)
