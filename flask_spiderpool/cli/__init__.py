"""``flask spiderpool ...``: the pool from a shell."""

from flask_spiderpool.cli.group import spiderpool

__all__ = ["spiderpool"]
