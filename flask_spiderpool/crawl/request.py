"""The shapes that travel between frontier and engine. No behaviour, no IO."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, NamedTuple
from uuid import UUID


class Ticket(NamedTuple):
    """What a slice holds: the slot ``n`` of a task in one epoch. Every write of the slice is fenced by it."""

    task_id: UUID
    n: int
    epoch: int


@dataclass(frozen=True, slots=True)
class NewRequest:
    """A URL that a page or a spider asks for, canonicalised and inside scope, not yet in the frontier."""

    url: str  #: as the site spells it (goes on the wire), without fragment
    fingerprint: bytes  #: 16 bytes, of the canonical form; the key of dedupe within a task
    host_key: str  #: politeness key: ``host`` or ``host:port`` for other than default ports
    depth: int
    priority: int = 0  #: smaller goes first; the frontier's order within a host is (priority, id)
    payload: dict[str, Any] | None = None  #: JSON: callback, meta, headers of a spider's own request


@dataclass(frozen=True, slots=True)
class LeasedRequest:
    """A request that a slice holds until it settles or releases it."""

    id: int
    host_key: str
    host_id: int
    url: str
    fingerprint: bytes
    depth: int
    priority: int
    attempts: int  #: settled attempts before this one
    deaths: int  #: how many worker processes died with it; more than 0 makes it a suspect
    is_seed: bool = False
    payload: dict[str, Any] | None = None


class Verdict(StrEnum):
    """What became of one leased request."""

    DONE = "done"
    FAILED = "failed"
    SKIPPED = "skipped"
    RETRY = "retry"  #: failed for now; the store decides between WAITING and FAILED by attempts
    RELEASE = "release"  #: never started, or cancelled: queued again, uncounted


@dataclass(slots=True)
class FetchedPage:
    """One stored version of a document, ready to be written. Texts are any str; the store cleans them."""

    url: str  #: final URL, after redirects
    fingerprint: bytes  #: of the final canonical URL: the document's key
    status_code: int
    content_type: str
    body_bytes: int  #: bytes of the body after unpacking
    content_hash: bytes  #: 16 bytes over the body
    title: str | None = None
    text: str | None = None  #: extracted main text; None when extraction is off or found nothing
    markdown: str | None = None
    meta: dict[str, Any] = field(default_factory=dict)  #: author, published, language, description ...
    etag: str | None = None
    last_modified: str | None = None
    fetched_at: datetime | None = None  #: UTC; None: the store's clock


@dataclass(slots=True)
class Outcome:
    """What one request came to, settled in one transaction with its page, items, links and log lines."""

    request: LeasedRequest
    verdict: Verdict
    reason: str | None = None  #: a :class:`~flask_spiderpool.terms.Reason`, or ``http_<status>``
    message: str | None = None  #: one line for a person
    status_code: int | None = None
    retry_after_s: float | None = None  #: RETRY: not sooner than this
    rest_host: str | None = (
        None  #: the host that asked for ``retry_after_s``: after a redirect, not the request's
    )
    page: FetchedPage | None = None
    items: list[dict[str, Any]] = field(default_factory=list)
    links: list[NewRequest] = field(default_factory=list)  #: unknown to this process's seen-set
    logs: list[tuple[str, str]] = field(default_factory=list)  #: (level name, message)
    wire_bytes: int = 0
    elapsed_ms: int = 0


@dataclass(frozen=True, slots=True)
class Lease:
    """The answer to :meth:`~flask_spiderpool.crawl.store.FrontierStore.lease`."""

    requests: list[LeasedRequest]
    desired: str  #: :class:`~flask_spiderpool.terms.Desired`; other than ``run`` comes with no requests
    next_ready_in_s: float | None  #: seconds until something of this task ripens; None: nothing queued
    limit_reached: bool = False  #: max_pages or max_time: nothing more will be leased


@dataclass(frozen=True, slots=True)
class Settled:
    """The answer to :meth:`~flask_spiderpool.crawl.store.FrontierStore.settle`."""

    added: int  #: new requests that entered the frontier
    desired: str
    repeated: bool = False  #: the batch had been settled before (its answer was lost on the wire)


@dataclass(frozen=True, slots=True)
class Renewal:
    """One slot's answer to a renewal."""

    desired: str
    lease_s: float
