"""Frontier and results in SQL."""

from flask_spiderpool.store.frontier import Store as Store
from flask_spiderpool.store.slots import Claim as Claim
from flask_spiderpool.store.slots import Message as Message

__all__ = ["Claim", "Message", "Store"]
