"""Documents and their page versions, as a settle writes them.

A document is stored once a task: two requests that end at the same place point to one document, and the
second counts as unchanged. A run that finds a document as it was stores no page.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple
from uuid import UUID

from flask_spiderpool.crawl.request import FetchedPage, Outcome
from flask_spiderpool.store.sql import Statement, Tx, json_text
from flask_spiderpool.store.text import clean_json, clean_or_none, clean_url, sixteen

# Page ids are drawn before, so that a new document is written once, with the id of its page in it.
_DRAW = Statement(
    """
    SELECT nextval(pg_get_serial_sequence('spiderpool_page', 'id')) FROM generate_series(1, :k)
    """
)
# Returns the page id that stands there: the drawn one when the document is new.
_UPSERT = Statement(
    """
    INSERT INTO spiderpool_document AS d
        (spider, fingerprint, url, page_id, content_hash, first_seen, last_seen, last_changed, times_seen,
         times_changed)
    SELECT :spider, substring(:fingerprints::bytea FROM (16 * c.i - 15)::int FOR 16) AS fingerprint, c.url,
           c.page_id, substring(:hashes::bytea FROM (16 * c.i - 15)::int FOR 16), :at, :at, :at, c.times, 0
    FROM unnest(string_to_array(:urls, chr(10)), :page_ids::bigint[], :times::int[])
         WITH ORDINALITY AS c(url, page_id, times, i)
    ORDER BY fingerprint
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
    RETURNING id, content_hash, page_id
    """,
)
# Another task of the spider may have stored a version since: the document's current page does not tell.
_STORED = Statement(
    "SELECT document_id FROM spiderpool_page WHERE task_id = :task AND document_id = ANY(:ids::bigint[])",
    sqlite="""
    SELECT document_id FROM spiderpool_page
    WHERE task_id = :task AND document_id IN (SELECT value FROM json_each(:ids))
    """,
)
_COLUMNS = (
    "document_id, task_id, request_id, url, status_code, content_type, title, text, markdown, meta,"
    " content_hash, body_bytes, etag, last_modified, fetched_at"
)
_VALUES = (
    ":document_id, :task, :request_id, :url, :status_code, :content_type, :title, :text, :markdown,"
    " :meta::jsonb, :content_hash, :body_bytes, :etag, :last_modified, :fetched_at"
)
_INSERT = Statement(
    f"INSERT INTO spiderpool_page (id, {_COLUMNS}) VALUES (:id, {_VALUES})",
    sqlite=f"INSERT INTO spiderpool_page ({_COLUMNS}) VALUES ({_VALUES}) RETURNING id",
)
_CHANGE = Statement(
    """
    UPDATE spiderpool_document
    SET page_id = :page_id, content_hash = :content_hash, last_changed = :at, url = :url,
        times_changed = times_changed + CASE WHEN page_id IS NULL THEN 0 ELSE 1 END
    WHERE id = :id
    """
)


class Stored(NamedTuple):
    """What became of a batch's pages."""

    document_ids: Mapping[int, int]  #: request id -> document id
    new: int  #: page versions written
    unchanged: int


class _Document(NamedTuple):
    id: int
    content_hash: bytes | None
    page_id: int | None  #: the version that stood there before; None: the document is new


class _Visit(NamedTuple):
    """A document of this batch: the first outcome that ended there, and how many did."""

    outcome: Outcome
    page: FetchedPage
    times: int


def store_pages(tx: Tx, task_id: UUID, spider: str, outcomes: Sequence[Outcome], now: float) -> Stored:
    """Write the pages of ``outcomes``, documents in the order of their fingerprints."""
    visits: dict[bytes, _Visit] = {}
    for outcome in outcomes:
        if outcome.page is not None:
            known = visits.get(outcome.page.fingerprint)
            first = _Visit(outcome, outcome.page, 0) if known is None else known
            visits[outcome.page.fingerprint] = first._replace(times=first.times + 1)
    if not visits:
        return Stored({}, 0, 0)
    visits = {key: visits[key] for key in sorted(visits)}
    drawn = [row[0] for row in tx.all(_DRAW, k=len(visits))] if tx.postgres else []
    documents = (_upsert_postgres if tx.postgres else _upsert_sqlite)(tx, spider, visits, drawn, now)
    old = _unchanged(tx, task_id, visits, documents)
    changed = [key for key in visits if key not in old]
    _write(tx, task_id, visits, documents, dict(zip(visits, drawn, strict=False)), changed, now)
    ids = {
        outcome.request.id: documents[outcome.page.fingerprint].id
        for outcome in outcomes
        if outcome.page is not None
    }
    return Stored(ids, len(changed), len(ids) - len(changed))


def _upsert_postgres(
    tx: Tx, spider: str, visits: Mapping[bytes, _Visit], drawn: list[int], now: float
) -> dict[bytes, _Document]:
    rows = tx.all(
        _UPSERT,
        spider=spider,
        at=tx.moment(now),
        fingerprints=b"".join(sixteen(key) for key in visits),
        hashes=b"".join(sixteen(visit.page.content_hash) for visit in visits.values()),
        urls="\n".join(clean_url(visit.page.url) for visit in visits.values()),
        page_ids=drawn,
        times=[visit.times for visit in visits.values()],
    )
    new = set(drawn)
    return {
        bytes(key): _Document(id_, None, None) if page_id in new else _Document(id_, content_hash, page_id)
        for key, id_, content_hash, page_id in rows
    }


def _upsert_sqlite(
    tx: Tx, spider: str, visits: Mapping[bytes, _Visit], drawn: list[int], now: float
) -> dict[bytes, _Document]:
    at = tx.moment(now)
    return {
        key: _Document(
            *tx.all(
                _UPSERT_ONE,
                spider=spider,
                at=at,
                fingerprint=key,
                url=clean_url(visit.page.url),
                times=visit.times,
            )[0]
        )
        for key, visit in visits.items()
    }


def _unchanged(
    tx: Tx, task_id: UUID, visits: Mapping[bytes, _Visit], documents: Mapping[bytes, _Document]
) -> set[bytes]:
    """Return the documents that are as they were, or have their version of this task already."""
    old, doubtful = set(), {}
    for key, document in documents.items():
        if document.page_id is None:
            continue
        if document.content_hash == visits[key].page.content_hash:
            old.add(key)
        else:
            doubtful[document.id] = key
    if doubtful:
        ids = sorted(doubtful)
        for (document_id,) in tx.all(_STORED, task=task_id, ids=ids if tx.postgres else str(ids)):
            old.add(doubtful[document_id])
    return old


def _write(
    tx: Tx,
    task_id: UUID,
    visits: Mapping[bytes, _Visit],
    documents: Mapping[bytes, _Document],
    drawn: Mapping[bytes, int],
    changed: list[bytes],
    now: float,
) -> None:
    """Write a page version for each changed document, and point the document to it."""
    task = tx.key(task_id)
    rows = [_row(tx, documents[key].id, visits[key], now) | {"task": task} for key in changed]
    if tx.postgres:
        page_ids = [drawn[key] for key in changed]
        tx.many(_INSERT, [row | {"id": id_} for row, id_ in zip(rows, page_ids, strict=True)])
    else:
        page_ids = [tx.all(_INSERT, **row)[0][0] for row in rows]
    at = tx.moment(now)
    tx.many(
        _CHANGE,
        [
            {
                "id": row["document_id"],
                "page_id": page_id,
                "content_hash": row["content_hash"],
                "at": at,
                "url": row["url"],
            }
            for key, row, page_id in zip(changed, rows, page_ids, strict=True)
            # On PostgreSQL a new document was written with its page id.
            if documents[key].page_id is not None or not tx.postgres
        ],
    )


def _row(tx: Tx, document_id: int, visit: _Visit, now: float) -> dict[str, Any]:
    page = visit.page
    return {
        "document_id": document_id,
        "request_id": visit.outcome.request.id,
        "url": clean_url(page.url),
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
        "fetched_at": tx.moment(now if page.fetched_at is None else page.fetched_at.timestamp()),
    }
