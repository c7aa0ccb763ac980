"""What the verbs are given: the port between control and the app that it works for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from flask_spiderpool.bus.base import CommandMessage
from flask_spiderpool.config import Settings
from flask_spiderpool.crawl.spider import SpiderRegistry
from flask_spiderpool.store import Message


class Parts(Protocol):
    """One app's settings and spiders, and the two ways out of a verb. ``PoolState`` is one."""

    @property
    def settings(self) -> Settings:
        """The checked settings."""
        ...

    @property
    def registry(self) -> SpiderRegistry:
        """The app's spiders."""
        ...

    def send(self, messages: Sequence[Message]) -> None:
        """Publish slots' messages. Returns at once and raises nothing: the keeper sends what was lost."""
        ...

    def tell(self, command: CommandMessage) -> None:
        """Tell the running slices by the bus. Returns at once and raises nothing."""
        ...
