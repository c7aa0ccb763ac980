"""What the store's functions share: settings, and this process's memory of hosts, tasks and lane cursors."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from flask_spiderpool.config import Settings
from flask_spiderpool.store.cursors import Cursors
from flask_spiderpool.store.facts import FactsOf
from flask_spiderpool.store.hosts import HostIds


@dataclass(slots=True)
class Context:
    """Of one store in one process. Made anew after a fork."""

    settings: Settings
    hosts: HostIds
    facts: FactsOf
    cursors: Cursors = field(default_factory=Cursors)
    rng: random.Random = field(default_factory=random.Random)
