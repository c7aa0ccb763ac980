"""What the store's functions share: settings, and this process's memory of tasks and lane cursors."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from flask_spiderpool.config import Settings
from flask_spiderpool.store.cursors import Cursors
from flask_spiderpool.store.facts import FactsOf


@dataclass(slots=True)
class Context:
    """Of one store in one process. Made anew after a fork."""

    settings: Settings
    facts: FactsOf
    cursors: Cursors = field(default_factory=Cursors)
    pruned_at: float = 0.0  #: when this process, as the keeper, last deleted what is old
    rng: random.Random = field(default_factory=random.Random)
