"""The pool's tables as typed classes, usable through the host's ``db.session``."""

from flask_spiderpool.models.base import Base, metadata
from flask_spiderpool.models.frontier import History, Lane, Request, Slot, Task
from flask_spiderpool.models.pool import BusMessage, Counter, Keeper, Setting, SpiderRecord, Token, Worker
from flask_spiderpool.models.results import Document, Item, Log, Page

__all__ = [
    "Base",
    "BusMessage",
    "Counter",
    "Document",
    "History",
    "Item",
    "Keeper",
    "Lane",
    "Log",
    "Page",
    "Request",
    "Setting",
    "Slot",
    "SpiderRecord",
    "Task",
    "Token",
    "Worker",
    "metadata",
]
