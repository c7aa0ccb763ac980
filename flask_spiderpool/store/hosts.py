"""Host keys and their ids: written once, remembered by every process."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping

from flask_spiderpool.store.sql import Statement, Tx, json_text

_REMEMBERED = 200_000  #: hosts a process remembers; about 30 MB

_INSERT = Statement(
    """
    INSERT INTO spiderpool_host (key, created_at)
    SELECT c.key, :at FROM unnest(:keys::text[]) AS c(key) ORDER BY c.key
    ON CONFLICT (key) DO NOTHING
    """
)
_INSERT_ONE = Statement(
    "", sqlite="INSERT INTO spiderpool_host (key, created_at) VALUES (:key, :at) ON CONFLICT (key) DO NOTHING"
)
_SELECT = Statement(
    "SELECT key, id FROM spiderpool_host WHERE key = ANY(:keys::text[])",
    sqlite="SELECT key, id FROM spiderpool_host WHERE key IN (SELECT value FROM json_each(:keys))",
)
_KEYS = Statement(
    "SELECT id, key FROM spiderpool_host WHERE id = ANY(:ids::bigint[])",
    sqlite="SELECT id, key FROM spiderpool_host WHERE id IN (SELECT value FROM json_each(:ids))",
)
_NOW = Statement("SELECT @now")


def find_ids(tx: Tx, keys: Iterable[str]) -> dict[str, int]:
    """Return the ids of the hosts that are known."""
    wanted = sorted(set(keys))
    if not wanted:
        return {}
    return dict(tx.all(_SELECT, keys=wanted if tx.postgres else json_text(wanted)))


def make_ids(tx: Tx, keys: Iterable[str]) -> dict[str, int]:
    """Return the ids of ``keys``, writing those that are new, in the order of their keys."""
    wanted = sorted(set(keys))
    known = find_ids(tx, wanted)
    new = [key for key in wanted if key not in known]
    if not new:
        return known
    row = tx.one(_NOW)
    at = tx.moment(row[0] if row else 0.0)
    if tx.postgres:
        tx.run(_INSERT, keys=new, at=at)
    else:
        tx.many(_INSERT_ONE, [{"key": key, "at": at} for key in new])
    return known | find_ids(tx, new)


class HostIds:
    """The hosts that this process has met. Only committed ids are remembered."""

    def __init__(self, transact: Callable[[Callable[[Tx], dict[str, int]]], dict[str, int]]) -> None:
        self._transact = transact
        self._ids: dict[str, int] = {}
        self._keys: dict[int, str] = {}
        self._lock = threading.Lock()

    def of(self, keys: Iterable[str]) -> Mapping[str, int]:
        """Return ids for all ``keys``; unknown ones cost a small transaction of their own."""
        wanted = set(keys)
        found = {key: self._ids[key] for key in wanted if key in self._ids}
        missing = wanted - found.keys()
        if missing:
            made = self._transact(lambda tx: make_ids(tx, missing))
            self._remember(made)
            found.update(made)
        return found

    def keys(self, tx: Tx, ids: Iterable[int]) -> Mapping[int, str]:
        """Return the keys of host ids, inside a transaction under way."""
        wanted = set(ids)
        found = {id_: self._keys[id_] for id_ in wanted if id_ in self._keys}
        missing = sorted(wanted - found.keys())
        if missing:
            rows = tx.all(_KEYS, ids=missing if tx.postgres else str(missing))
            found.update(dict(rows))
            self._remember({key: id_ for id_, key in rows})
        return found

    def _remember(self, ids: Mapping[str, int]) -> None:
        with self._lock:
            if len(self._ids) + len(ids) > _REMEMBERED:
                self._ids, self._keys = {}, {}
            self._ids.update(ids)
            self._keys.update({id_: key for key, id_ in ids.items()})
