"""New requests enter the frontier: sorted by fingerprint, once a task."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple
from uuid import UUID

from flask_spiderpool.crawl.request import NewRequest
from flask_spiderpool.store.hosts import host_id
from flask_spiderpool.store.sql import Statement, Tx, json_text
from flask_spiderpool.store.text import clean_json, clean_url, sixteen

# Columns travel as joined texts and one row of bytes: the driver's own arrays cost 30 ms for 2,000 links.
_INSERT = Statement(
    """
    INSERT INTO spiderpool_request
        (task_id, host_id, fingerprint, url, depth, priority, state, attempts, deaths, is_seed, payload, found_on)
    SELECT :task, c.host, substring(:fingerprints::bytea FROM (16 * c.i - 15)::int FOR 16) AS fingerprint, c.url,
           c.depth, c.priority, 0, 0, 0, :seed, :payloads::jsonb -> (c.i)::text, c.found_on
    FROM unnest(string_to_array(:hosts, ',')::bigint[], string_to_array(:urls, chr(10)),
                string_to_array(:depths, ',')::int[], string_to_array(:priorities, ',')::int[],
                string_to_array(:found_on, ',', '')::bigint[])
         WITH ORDINALITY AS c(host, url, depth, priority, found_on, i)
    ORDER BY fingerprint
    ON CONFLICT (task_id, fingerprint) DO NOTHING
    RETURNING host_id
    """
)
_INSERT_ONE = Statement(
    "",
    sqlite="""
    INSERT INTO spiderpool_request
        (task_id, host_id, fingerprint, url, depth, priority, is_seed, payload, found_on, state, attempts, deaths)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, 0, 0, 0)
    ON CONFLICT (task_id, fingerprint) DO NOTHING
    """,
)


class Found(NamedTuple):
    """A link, and the request whose page named it first (None: a seed)."""

    link: NewRequest
    found_on: int | None


def insert(tx: Tx, task_id: UUID, found: Iterable[Found], *, seed: bool = False) -> dict[int, int]:
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
    if not tx.postgres:
        return _insert_sqlite(tx, task_id, ordered, seed=seed)
    counts: dict[int, int] = {}
    for (host,) in tx.all(_INSERT, task=task_id, seed=seed, **_columns(ordered)):
        counts[host] = counts.get(host, 0) + 1
    return counts


def _columns(ordered: list[Found]) -> dict[str, Any]:
    payloads = {str(i): clean_json(one.link.payload) for i, one in enumerate(ordered, 1) if one.link.payload}
    return {
        "hosts": ",".join(str(host_id(one.link.host_key)) for one in ordered),
        "fingerprints": b"".join(sixteen(one.link.fingerprint) for one in ordered),
        "urls": "\n".join(clean_url(one.link.url) for one in ordered),
        "depths": ",".join(str(one.link.depth) for one in ordered),
        "priorities": ",".join(str(one.link.priority) for one in ordered),
        "payloads": json_text(payloads) if payloads else None,
        "found_on": ",".join("" if one.found_on is None else str(one.found_on) for one in ordered),
    }


def _insert_sqlite(tx: Tx, task_id: UUID, ordered: list[Found], *, seed: bool) -> dict[int, int]:
    task = tx.key(task_id)
    rows: dict[int, list[tuple[Any, ...]]] = {}
    for link, found_on in ordered:
        host = host_id(link.host_key)
        payload = None if link.payload is None else json_text(clean_json(link.payload))
        url, key = clean_url(link.url), sixteen(link.fingerprint)
        rows.setdefault(host, []).append(
            (task, host, key, url, link.depth, link.priority, seed, payload, found_on)
        )
    # Host by host, because the driver counts what a call inserted, not which rows.
    return {host: tx.many_tuples(_INSERT_ONE, rows[host]) for host in sorted(rows)}
