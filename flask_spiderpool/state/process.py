"""Things that belong to one process: engines, connections, threads."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


class PerProcess:
    """A set of lazily made things that a forked child makes anew.

    The child never closes what it inherited: the sockets are still its parent's. It keeps them referenced
    instead, so that no finaliser closes them either.
    """

    def __init__(self) -> None:
        self._things: dict[str, Any] = {}
        self._inherited: list[Any] = []
        self._lock = threading.RLock()
        _all.add(self)

    def get(self, name: str, make: Callable[[], T]) -> T:
        """Return this process's thing called ``name``, made at first use; threads share it."""
        try:
            thing: T = self._things[name]
        except KeyError:
            with self._lock:
                if name not in self._things:
                    self._things[name] = make()
                thing = self._things[name]
        return thing

    def take_all(self) -> list[Any]:
        """Return everything made, latest first, and forget it: for the caller to close."""
        with self._lock:
            things = list(reversed(self._things.values()))
            self._things = {}
        return things

    def _forget_in_child(self) -> None:
        self._inherited.append(self._things)
        self._things = {}
        self._lock = threading.RLock()  # another thread may have held it at the fork


_all: weakref.WeakSet[PerProcess] = weakref.WeakSet()


def _forget_in_child() -> None:
    for per_process in list(_all):
        per_process._forget_in_child()


os.register_at_fork(after_in_child=_forget_in_child)
