"""A task watched while it goes: the bus says when to look, the database says what there is to see."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TextIO
from uuid import UUID

from flask_spiderpool.bus import Bus
from flask_spiderpool.cli.progress import CrawlProgress
from flask_spiderpool.state import PoolState
from flask_spiderpool.terms import ENDED, Status
from flask_spiderpool.web.spool import SETTLING

LOOK_S = 1.0  #: between two looks where nothing is heard: the bus is a hint
#: In these nothing more happens by itself.
AT_REST = ENDED | {Status.PAUSED}


def watch(
    state: PoolState,
    task_id: UUID,
    title: str,
    stream: TextIO,
    *,
    until: Collection[Status] = AT_REST,
    quiet: bool = False,
    stopped: Callable[[], bool] = lambda: False,
) -> Status | None:
    """Show a task's progress on ``stream`` until it stands in one of ``until``, and return that.

    None: ``stopped`` said so. Raises :class:`~flask_spiderpool.errors.UnknownTask` and
    :class:`~flask_spiderpool.errors.Unavailable`. Costs a few reads a second at most.
    """
    bus, store = state.bus(), state.store()
    with CrawlProgress(title, stream, quiet=quiet) as progress:
        while not stopped():
            # What was said so far is in the numbers that are read now; what is said from here on wakes us.
            list(bus.subscribe(0))
            numbers = store.numbers(task_id)
            if numbers["status"] in SETTLING:
                store.verdict(task_id)
                numbers = store.numbers(task_id)
            progress.show(numbers)
            if numbers["status"] in until:
                return Status(numbers["status"])
            _wait_for_news(bus, task_id)
    return None


def _wait_for_news(bus: Bus, task_id: UUID) -> None:
    for event in bus.subscribe(LOOK_S):
        if event.data.get("task_id") == str(task_id):
            return
