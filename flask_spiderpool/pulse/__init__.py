"""PORT: which workers are alive, and what was done minute by minute."""

from __future__ import annotations

from flask_spiderpool.pulse.base import Pulse, WorkerPulse

__all__ = ["Pulse", "WorkerPulse"]
