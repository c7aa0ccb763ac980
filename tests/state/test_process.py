"""Things that belong to one process."""

from __future__ import annotations

import os
import threading

import pytest

from flask_spiderpool.state.process import PerProcess


def test_a_thing_is_made_once() -> None:
    """The second asker gets what the first one made."""
    things, made = PerProcess(), []
    assert things.get("a", lambda: made.append(1) or "a") == "a"  # type: ignore[func-returns-value]
    assert things.get("a", lambda: made.append(2) or "b") == "a"  # type: ignore[func-returns-value]
    assert made == [1]


def test_threads_share_it() -> None:
    """However many ask at once, one is made."""
    things, made, got = PerProcess(), [], []
    together = threading.Barrier(8)

    def make() -> object:
        made.append(1)
        return object()

    def ask() -> None:
        together.wait()
        got.append(things.get("a", make))

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 1
    assert len(set(map(id, got))) == 1


def test_one_may_need_another() -> None:
    """Making one thing may ask for a second: the bus needs the store."""
    things = PerProcess()
    assert things.get("bus", lambda: [things.get("store", lambda: "store")]) == ["store"]


def test_a_thing_that_cannot_be_made_is_tried_again() -> None:
    """A failure is not remembered."""
    things = PerProcess()
    with pytest.raises(OSError, match="away"):
        things.get("a", lambda: (_ for _ in ()).throw(OSError("away")))
    assert things.get("a", lambda: "a") == "a"


def test_taking_all_forgets_them_latest_first() -> None:
    """What is built on another is closed before it; afterwards things are made anew."""
    things = PerProcess()
    things.get("store", lambda: 1)
    things.get("bus", lambda: 2)
    assert things.take_all() == [2, 1]
    assert things.take_all() == []
    assert things.get("store", lambda: 3) == 3


class _Connection:
    """Says when it is finalised."""

    def __init__(self, finalised: list[int]) -> None:
        self._finalised = finalised

    def __del__(self) -> None:
        self._finalised.append(os.getpid())


def test_a_forked_child_makes_its_own() -> None:
    """The child gets a thing of its own, the parent's is not finalised in it, and a held lock does not hang it."""
    things, finalised = PerProcess(), []  # type: ignore[var-annotated]
    inherited = id(things.get("a", lambda: _Connection(finalised)))
    holding, release = threading.Event(), threading.Event()

    def hold() -> str:
        holding.set()
        release.wait(30)
        return "slow"

    holder = threading.Thread(target=lambda: things.get("slow", hold))
    holder.start()
    assert holding.wait(30)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            own = things.get("a", lambda: _Connection([]))
            code = 0 if id(own) != inherited and not finalised else 2
        finally:
            os._exit(code)
    release.set()
    holder.join()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert id(things.get("a", lambda: None)) == inherited
