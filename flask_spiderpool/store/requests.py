"""New requests enter the frontier: sorted by fingerprint, once a task."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple
from uuid import UUID

from flask_spiderpool.crawl.request import NewRequest
from flask_spiderpool.store.sql import Statement, Tx, json_text
from flask_spiderpool.store.text import clean, clean_json

_INSERT = Statement(
    """
    INSERT INTO spiderpool_request
        (task_id, host_id, fingerprint, url, depth, priority, state, attempts, deaths, is_seed, payload, found_on)
    SELECT :task, c.host, c.fingerprint, c.url, c.depth, c.priority, 0, 0, 0, :seed, c.payload::jsonb, c.found_on
    FROM unnest(:hosts::bigint[], :fingerprints::bytea[], :urls::text[], :depths::int[], :priorities::int[],
                :payloads::text[], :found_on::bigint[])
         AS c(host, fingerprint, url, depth, priority, payload, found_on)
    ORDER BY c.fingerprint
    ON CONFLICT (task_id, fingerprint) DO NOTHING
    RETURNING host_id
    """
)
_INSERT_ONE = Statement(
    "",
    sqlite="""
    INSERT INTO spiderpool_request
        (task_id, host_id, fingerprint, url, depth, priority, state, attempts, deaths, is_seed, payload, found_on)
    VALUES (:task, :host, :fingerprint, :url, :depth, :priority, 0, 0, 0, :seed, :payload, :found_on)
    ON CONFLICT (task_id, fingerprint) DO NOTHING
    """,
)


class Found(NamedTuple):
    """A link, and the request whose page named it first (None: a seed)."""

    link: NewRequest
    found_on: int | None


def insert(
    tx: Tx, task_id: UUID, found: Iterable[Found], host_ids: Mapping[str, int], *, seed: bool = False
) -> dict[int, int]:
    """Insert what the task does not know yet; return how many were really new, by host.

    The caller counts them: lanes and ``discovered``. Sorted, because two settles that insert the same links
    in different orders wait for each other (PROTOCOL, lock order).
    """
    by_fingerprint: dict[bytes, Found] = {}
    for one in found:
        known = by_fingerprint.get(one.link.fingerprint)
        # Of the same link on several pages of a batch the nearest to the seed counts.
        if known is None or one.link.depth < known.link.depth:
            by_fingerprint[one.link.fingerprint] = one
    if not by_fingerprint:
        return {}
    ordered = [by_fingerprint[key] for key in sorted(by_fingerprint)]
    counts: dict[int, int] = {}
    if tx.postgres:
        hosts = [row[0] for row in tx.all(_INSERT, task=task_id, seed=seed, **_columns(ordered, host_ids))]
    else:
        hosts = _insert_sqlite(tx, task_id, ordered, host_ids, seed=seed)
    for host in hosts:
        counts[host] = counts.get(host, 0) + 1
    return counts


def _columns(ordered: list[Found], host_ids: Mapping[str, int]) -> dict[str, list[Any]]:
    return {
        "hosts": [host_ids[one.link.host_key] for one in ordered],
        "fingerprints": [one.link.fingerprint for one in ordered],
        "urls": [clean(one.link.url) for one in ordered],
        "depths": [one.link.depth for one in ordered],
        "priorities": [one.link.priority for one in ordered],
        "payloads": [_payload(one.link) for one in ordered],
        "found_on": [one.found_on for one in ordered],
    }


def _insert_sqlite(
    tx: Tx, task_id: UUID, ordered: list[Found], host_ids: Mapping[str, int], *, seed: bool
) -> list[int]:
    hosts = []
    for one in ordered:
        host = host_ids[one.link.host_key]
        inserted = tx.run(
            _INSERT_ONE,
            task=task_id,
            host=host,
            fingerprint=one.link.fingerprint,
            url=clean(one.link.url),
            depth=one.link.depth,
            priority=one.link.priority,
            seed=seed,
            payload=_payload(one.link),
            found_on=one.found_on,
        )
        if inserted:
            hosts.append(host)
    return hosts


def _payload(link: NewRequest) -> str | None:
    return None if link.payload is None else json_text(clean_json(link.payload))
