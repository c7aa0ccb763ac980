"""The keeper: the housekeeping loop of the workers, one thread in every process that runs slices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from flask_spiderpool.store import Message
from flask_spiderpool.tasks.periodic import Periodic


class KeptStore(Protocol):
    """What this module needs of the store."""

    def keep(self, holder: str) -> list[Message]:
        """Make one pass; return what is to be sent."""
        ...


class Keeper:
    """Calls ``store.keep`` every ``interval_s`` seconds and sends what it says.

    Every act of a pass is a compare-and-set on the row that it changes, so two keepers at once are safe;
    the election inside ``keep`` only saves work.
    """

    def __init__(
        self,
        store: KeptStore,
        holder: str,
        interval_s: float,
        send: Callable[[Sequence[Message]], None],
    ) -> None:
        self._store = store
        self._holder = holder
        self._send = send
        self._thread = Periodic("spiderpool-keeper", interval_s, self.pass_once)

    def start(self) -> None:
        """Begin to keep."""
        self._thread.start()

    def stop(self) -> None:
        """Keep no more; a pass under way ends first."""
        self._thread.stop()

    def pass_once(self) -> None:
        """Make one pass."""
        messages = self._store.keep(self._holder)
        if messages:
            self._send(messages)
