"""A view's transaction: committed at its end, repeated when it lost a race; and a look that commits nothing."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import TypeVar

from sqlalchemy.orm import Session

from flask_spiderpool.control import translated
from flask_spiderpool.errors import Unavailable
from flask_spiderpool.state import PoolState
from flask_spiderpool.store.engine import is_again

T = TypeVar("T")

TRIES = 4
FIRST_PAUSE_S = 0.02  #: doubled after each try, +- 50 %


def look(state: PoolState, read: Callable[[Session], T]) -> T:
    """Return what ``read`` finds. Commits nothing: the session may hold what the host has begun."""
    with state.session() as session, translated():
        return read(session)


def transact(
    state: PoolState, act: Callable[[Session], T], *, pause: Callable[[float], None] = time.sleep
) -> T:
    """Run ``act`` and commit; after a deadlock or a lock that was not to be had, once more from its beginning.

    A view owns its transaction, so it may be repeated; a host's Python call may not.
    """
    for tries in range(1, TRIES + 1):
        try:
            with state.session() as session, translated():
                result = act(session)
                session.commit()
                return result
        except Unavailable as away:
            lost_a_race = away.__cause__ is not None and is_again(away.__cause__)
            if not lost_a_race or tries == TRIES:
                raise
        pause(FIRST_PAUSE_S * 2**tries * random.uniform(0.5, 1.5))  # noqa: S311 - jitter
    raise AssertionError("unreachable")
