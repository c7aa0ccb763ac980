"""The database pulse keeps what every pulse promises."""

from __future__ import annotations

from datetime import datetime

import pytest

from flask_spiderpool.store.pulse import DatabasePulse
from tests.pulse.contract import NOON, PulseBench, PulseContract
from tests.store.frontiers import Frontier


class TestDatabasePulse(PulseContract):
    """Each pulse has a store of its own, as in processes of their own; one clock."""

    @pytest.fixture
    def bench(self, frontier: Frontier) -> PulseBench:
        """Return pulses on one database, and their clock."""
        at = [NOON]

        def set_clock(moment: datetime) -> None:
            at[0] = moment

        return PulseBench(
            lambda: DatabasePulse(frontier.another_store(), clock=lambda: at[0].timestamp()), set_clock
        )
