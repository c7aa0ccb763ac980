"""Acts that wait for the outermost commit of a session.

SQLAlchemy fires ``after_commit`` at savepoints too (docs: SessionEvents), so it alone would send a message of
a task that a later rollback takes away. Each act belongs to the transaction or savepoint that it was asked in:

- a savepoint is released: its acts pass to the transaction around it;
- a savepoint or the whole transaction is rolled back or closed: its acts are dropped;
- the outermost transaction is committed: what it then owns is done, once, after its connection was given back.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from sqlalchemy import event
from sqlalchemy.orm import Session, SessionTransaction, scoped_session

Act = Callable[[], None]

_KEY = "spiderpool_acts"
_log = logging.getLogger(__name__)


def after_outermost_commit(session: Session | scoped_session[Any], act: Act) -> None:
    """Do ``act`` when the transaction that ``session`` is in has been committed for good.

    ``act`` must not use ``session``. What it raises is logged and reaches nobody: the commit has happened.
    """
    plain: Session = session() if isinstance(session, scoped_session) else session
    acts = plain.info.get(_KEY)
    if acts is None:
        acts = plain.info[_KEY] = _Acts(plain)
    acts.add(act)


class _Acts:
    """What one session owes, by the transaction or savepoint that it was asked in."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._owed: dict[SessionTransaction, list[Act]] = {}
        self._ready: list[Act] = []
        event.listen(session, "after_commit", self._committed)
        event.listen(session, "after_transaction_end", self._ended)

    def add(self, act: Act) -> None:
        session = self._session
        asked_in = session.get_nested_transaction() or session.get_transaction() or session.begin()
        self._owed.setdefault(asked_in, []).append(act)

    def _committed(self, session: Session) -> None:
        savepoint = session.get_nested_transaction()
        if savepoint is None:
            root = session.get_transaction()
            assert root is not None
            self._ready += self._owed.pop(root, [])
            return
        passed_on = self._owed.pop(savepoint, [])
        if passed_on:
            self._owed.setdefault(_around(savepoint), []).extend(passed_on)

    def _ended(self, session: Session, transaction: SessionTransaction) -> None:
        self._owed.pop(transaction, None)
        # Filled as the outermost commits, whose end is the next one.
        ready, self._ready = self._ready, []
        for act in ready:
            try:
                act()
            except Exception:
                _log.exception("an act after a commit failed; the keeper makes up for it")


def _around(savepoint: SessionTransaction) -> SessionTransaction:
    """Return the savepoint or transaction around ``savepoint``, past the flushes between them."""
    around = savepoint.parent
    while around is not None and around.parent is not None and not around.nested:
        around = around.parent
    assert around is not None
    return around
