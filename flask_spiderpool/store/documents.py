"""Documents and their page versions, as a settle writes them.

A document is stored once a task: two requests that end at the same place point to one document, and the
second counts as unchanged. A run that finds a document as it was stores no page.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple
from uuid import UUID

from flask_spiderpool.crawl.request import FetchedPage, Outcome
from flask_spiderpool.store.sql import Statement, Tx, json_text, task_uuid
from flask_spiderpool.store.text import clean, clean_json, clean_or_none

_UPSERT = Statement(
    """
    INSERT INTO spiderpool_document AS d
        (spider, fingerprint, url, first_seen, last_seen, last_changed, times_seen, times_changed)
    SELECT :spider, c.fingerprint, c.url, :at, :at, :at, c.times, 0
    FROM unnest(:fingerprints::bytea[], :urls::text[], :times::int[]) AS c(fingerprint, url, times)
    ORDER BY c.fingerprint
    ON CONFLICT (spider, fingerprint) DO UPDATE SET
        last_seen = excluded.last_seen, times_seen = d.times_seen + excluded.times_seen
    RETURNING fingerprint, id, content_hash, page_id
    """
)
_UPSERT_ONE = Statement(
    "",
    sqlite="""
    INSERT INTO spiderpool_document
        (spider, fingerprint, url, first_seen, last_seen, last_changed, times_seen, times_changed)
    VALUES (:spider, :fingerprint, :url, :at, :at, :at, :times, 0)
    ON CONFLICT (spider, fingerprint) DO UPDATE SET
        last_seen = excluded.last_seen, times_seen = times_seen + excluded.times_seen
    RETURNING fingerprint, id, content_hash, page_id
    """,
)
_TASKS_OF = Statement(
    "SELECT id, task_id FROM spiderpool_page WHERE id = ANY(:ids::bigint[])",
    sqlite="SELECT id, task_id FROM spiderpool_page WHERE id IN (SELECT value FROM json_each(:ids))",
)
_PAGE_COLUMNS = (
    "document_id, task_id, request_id, url, status_code, content_type, title, text, markdown, meta,"
    " content_hash, body_bytes, etag, last_modified, fetched_at"
)
_INSERT = Statement(
    f"""
    INSERT INTO spiderpool_page ({_PAGE_COLUMNS})
    SELECT c.document_id, :task, c.request_id, c.url, c.status_code, c.content_type, c.title, c.text,
           c.markdown, c.meta::jsonb, c.content_hash, c.body_bytes, c.etag, c.last_modified, c.fetched_at
    FROM unnest(:document_id::bigint[], :request_id::bigint[], :url::text[], :status_code::int[],
                :content_type::text[], :title::text[], :text::text[], :markdown::text[], :meta::text[],
                :content_hash::bytea[], :body_bytes::bigint[], :etag::text[], :last_modified::text[],
                :fetched_at::timestamptz[])
         AS c(document_id, request_id, url, status_code, content_type, title, text, markdown, meta,
              content_hash, body_bytes, etag, last_modified, fetched_at)
    RETURNING document_id, id
    """
)
_INSERT_ONE = Statement(
    "",
    sqlite=f"""
    INSERT INTO spiderpool_page ({_PAGE_COLUMNS})
    VALUES (:document_id, :task, :request_id, :url, :status_code, :content_type, :title, :text, :markdown,
            :meta, :content_hash, :body_bytes, :etag, :last_modified, :fetched_at)
    RETURNING document_id, id
    """,
)
_CHANGE = Statement(
    """
    UPDATE spiderpool_document AS d
    SET page_id = c.page_id, content_hash = c.content_hash, last_changed = :at, url = c.url,
        times_changed = d.times_changed + CASE WHEN d.page_id IS NULL THEN 0 ELSE 1 END
    FROM unnest(:ids::bigint[], :page_ids::bigint[], :hashes::bytea[], :urls::text[])
         AS c(id, page_id, content_hash, url)
    WHERE d.id = c.id
    """
)
_CHANGE_ONE = Statement(
    "",
    sqlite="""
    UPDATE spiderpool_document
    SET page_id = :page_id, content_hash = :content_hash, last_changed = :at, url = :url,
        times_changed = times_changed + CASE WHEN page_id IS NULL THEN 0 ELSE 1 END
    WHERE id = :id
    """,
)


class Stored(NamedTuple):
    """What became of a batch's pages."""

    document_ids: dict[int, int]  #: request id -> document id
    new: int  #: page versions written
    unchanged: int


class _Found(NamedTuple):
    id: int
    content_hash: bytes | None
    page_id: int | None


def store_pages(tx: Tx, task_id: UUID, spider: str, outcomes: Sequence[Outcome], now: float) -> Stored:
    """Write the pages of ``outcomes`` (each has one), documents in the order of their fingerprints."""
    if not outcomes:
        return Stored({}, 0, 0)
    first: dict[bytes, Outcome] = {}
    times: dict[bytes, int] = {}
    for outcome in outcomes:
        fingerprint = _page(outcome).fingerprint
        first.setdefault(fingerprint, outcome)
        times[fingerprint] = times.get(fingerprint, 0) + 1
    found = _upsert(tx, spider, sorted(first), first, times, now)
    old = _unchanged(tx, task_id, first, found)
    changed = [(found[key].id, first[key]) for key in sorted(first) if key not in old]
    if changed:
        _write(tx, task_id, changed, now)
    ids = {outcome.request.id: found[_page(outcome).fingerprint].id for outcome in outcomes}
    return Stored(ids, len(changed), len(outcomes) - len(changed))


def _page(outcome: Outcome) -> FetchedPage:
    if outcome.page is None:
        raise ValueError("an outcome without a page has no document")
    return outcome.page


def _upsert(
    tx: Tx,
    spider: str,
    keys: list[bytes],
    first: dict[bytes, Outcome],
    times: dict[bytes, int],
    now: float,
) -> dict[bytes, _Found]:
    at = tx.moment(now)
    urls = [clean(_page(first[key]).url) for key in keys]
    if tx.postgres:
        rows = tx.all(
            _UPSERT, spider=spider, at=at, fingerprints=keys, urls=urls, times=[times[key] for key in keys]
        )
    else:
        rows = [
            tx.all(_UPSERT_ONE, spider=spider, at=at, fingerprint=key, url=url, times=times[key])[0]
            for key, url in zip(keys, urls, strict=True)
        ]
    return {bytes(row[0]): _Found(row[1], None if row[2] is None else bytes(row[2]), row[3]) for row in rows}


def _unchanged(tx: Tx, task_id: UUID, first: dict[bytes, Outcome], found: dict[bytes, _Found]) -> set[bytes]:
    """Return the documents that are as they were, or have their version of this task already."""
    old = {key for key, doc in found.items() if doc.content_hash == _page(first[key]).content_hash}
    doubtful = {doc.page_id: key for key, doc in found.items() if doc.page_id is not None and key not in old}
    if doubtful:
        ids = sorted(doubtful)
        for page_id, owner in tx.all(_TASKS_OF, ids=ids if tx.postgres else str(ids)):
            if task_uuid(owner) == task_id:
                old.add(doubtful[page_id])
    return old


def _write(tx: Tx, task_id: UUID, changed: list[tuple[int, Outcome]], now: float) -> None:
    rows = [_row(tx, document_id, outcome, now) for document_id, outcome in changed]
    at = tx.moment(now)
    if tx.postgres:
        columns = {name: [row[name] for row in rows] for name in rows[0]}
        page_ids = dict(tx.all(_INSERT, task=task_id, **columns))
        tx.run(
            _CHANGE,
            at=at,
            ids=columns["document_id"],
            page_ids=[page_ids[id_] for id_ in columns["document_id"]],
            hashes=columns["content_hash"],
            urls=columns["url"],
        )
        return
    changes = []
    for row in rows:
        written = tx.all(_INSERT_ONE, task=task_id, **row)[0]
        changes.append(
            {
                "id": row["document_id"],
                "page_id": written[1],
                "content_hash": row["content_hash"],
                "at": at,
                "url": row["url"],
            }
        )
    tx.many(_CHANGE_ONE, changes)


def _row(tx: Tx, document_id: int, outcome: Outcome, now: float) -> dict[str, Any]:
    page = _page(outcome)
    fetched_s = now if page.fetched_at is None else page.fetched_at.timestamp()
    return {
        "document_id": document_id,
        "request_id": outcome.request.id,
        "url": clean(page.url),
        "status_code": page.status_code,
        "content_type": clean_or_none(page.content_type, 200),
        "title": clean_or_none(page.title),
        "text": clean_or_none(page.text),
        "markdown": clean_or_none(page.markdown),
        "meta": json_text(clean_json(page.meta)),
        "content_hash": page.content_hash,
        "body_bytes": page.body_bytes,
        "etag": clean_or_none(page.etag),
        "last_modified": clean_or_none(page.last_modified),
        "fetched_at": tx.moment(fetched_s),
    }
