"""What control says over the bus, brought to the slices of this process."""

from __future__ import annotations

import logging
from uuid import UUID

from flask_spiderpool.bus.base import Bus, CommandMessage
from flask_spiderpool.tasks.periodic import Periodic
from flask_spiderpool.tasks.renewal import Renewals
from flask_spiderpool.terms import Command, Desired

logger = logging.getLogger(__name__)

LISTEN_S = 1.0  #: how long one look at the bus lasts; also how late the thread notices that it must stop


class CommandListener:
    """The thread that listens to the bus.

    The bus is a hint. ``pause`` and ``stop`` are believed at once, since to send less is never wrong; ``run``
    is not, since a late hint must not make a slice send after ``stopped`` was said. Either way the lease is
    renewed now, and its answer is the truth.
    """

    def __init__(self, bus: Bus, renewals: Renewals) -> None:
        self._bus = bus
        self._renewals = renewals
        self._thread = Periodic("spiderpool-commands", 0.01, self.listen_once)

    def start(self) -> None:
        """Begin to listen."""
        self._thread.start()

    def stop(self) -> None:
        """Listen no more."""
        self._thread.stop(join_s=2 * LISTEN_S)

    def listen_once(self) -> None:
        """Take in what comes within a second."""
        for command in self._bus.commands(LISTEN_S):
            self.take(command)

    def take(self, command: CommandMessage) -> None:
        """Act on one command; one that makes no sense is logged and dropped."""
        if command.name == Command.SETTINGS:
            self._renewals.look_again()
            return
        try:
            task_id = UUID(str(command.data["task_id"]))
            desired = Desired(command.data["desired"])
        except (KeyError, ValueError, TypeError):
            logger.warning("a command on the bus makes no sense and is dropped: %r", command)
            return
        guards = self._renewals.of_task(task_id)
        if not guards:
            return
        if desired is not Desired.RUN:
            for guard in guards:
                guard.want(desired)
        self._renewals.look_again()
