"""A pool under test, and short ways to say what happens to it."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.orm import Session

from flask_spiderpool.crawl.request import (
    FetchedPage,
    Lease,
    LeasedRequest,
    NewRequest,
    Outcome,
    Ticket,
    Verdict,
)
from flask_spiderpool.store import Claim, Message, Store, verbs
from flask_spiderpool.store.context import Context
from flask_spiderpool.store.sql import Tx
from flask_spiderpool.terms import Status, Verb

T = TypeVar("T")

WAITS_S = 10.0  #: how long a test waits for another transaction to stand before a lock


def key_of(text: str) -> bytes:
    """Return a fingerprint."""
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def link(name: str | int, host: str = "a.example", *, depth: int = 1, **more: Any) -> NewRequest:
    """Return a request for ``/name`` on ``host``."""
    url = f"http://{host}/{name}"
    return NewRequest(url=url, fingerprint=key_of(url), host_key=host, depth=depth, **more)


def links(count: int, host: str = "a.example", *, start: int = 0) -> list[NewRequest]:
    """Return ``count`` requests on one host."""
    return [link(number, host) for number in range(start, start + count)]


def page(url: str, body: str = "body", **more: Any) -> FetchedPage:
    """Return a fetched page whose content hash is that of ``body``."""
    return FetchedPage(
        url=url,
        fingerprint=key_of(url),
        status_code=200,
        content_type="text/html",
        body_bytes=len(body),
        content_hash=key_of(body),
        **more,
    )


def done(request: LeasedRequest, new: Iterable[NewRequest] = (), **more: Any) -> Outcome:
    """Return an outcome: fetched, with the links ``new``."""
    more.setdefault("page", page(request.url))
    return Outcome(request, Verdict.DONE, status_code=200, links=list(new), wire_bytes=10, **more)


def failed(request: LeasedRequest, reason: str = "http_404") -> Outcome:
    """Return an outcome: failed."""
    return Outcome(request, Verdict.FAILED, reason=reason)


def again(request: LeasedRequest, retry_after_s: float | None = None) -> Outcome:
    """Return an outcome: failed for now."""
    return Outcome(request, Verdict.RETRY, reason="timeout_total", retry_after_s=retry_after_s)


class Frontier:
    """A store, a host's session on the same database, and the steps of slices in one line each."""

    def __init__(self, store: Store, url: str) -> None:
        self.store = store
        self.url = url
        self.host = sa.create_engine(url)
        if self.host.dialect.name == "sqlite":
            # No test cuts the power.
            sa.event.listen(self.host, "connect", lambda made, _: made.execute("PRAGMA synchronous=OFF"))
        self._stores = [store]
        self._threads = ThreadPoolExecutor(4)

    def close(self) -> None:
        """Close every store and the host's engine."""
        self._threads.shutdown()
        for store in self._stores:
            store.close()
        self.host.dispose()

    @property
    def context(self) -> Context:
        """Return the store's own context, for functions that a test calls inside a transaction of its own."""
        return self.store._here

    @contextmanager
    def transaction(self) -> Iterator[Tx]:
        """A transaction (PostgreSQL) that a test drives step by step; committed at the end."""
        engine = self.host.execution_options(isolation_level="READ COMMITTED")
        with engine.begin() as connection:
            yield Tx(connection)

    def thread(self, fn: Callable[..., T], *args: Any, **more: Any) -> Future[T]:
        """Run ``fn`` in another thread."""
        return self._threads.submit(fn, *args, **more)

    def waiting(self, fn: Callable[..., T], *args: Any, **more: Any) -> Future[T]:
        """Run ``fn`` in another thread and return when it stands before another transaction's lock (PostgreSQL)."""
        future = self._threads.submit(fn, *args, **more)
        pause = threading.Event()
        for _ in range(int(WAITS_S / 0.01)):
            if future.done():
                raise AssertionError(f"it did not wait: {future.result()!r}")
            if self.value(
                "SELECT count(*) FROM pg_stat_activity"
                " WHERE datname = current_database() AND wait_event_type = 'Lock'"
            ):
                return future
            pause.wait(0.01)
        raise AssertionError("it neither ended nor waited for a lock")

    def another_store(self) -> Store:
        """Return a store as another process would have it."""
        store = Store.open(self.url, self.store.settings)
        self._stores.append(store)
        return store

    def advance(self, by_s: float) -> None:
        """Let the database's clock go forward."""
        self.sql(
            "INSERT INTO spiderpool_keeper (id, clock_offset_s) VALUES (1, :s) "
            "ON CONFLICT (id) DO UPDATE SET clock_offset_s = spiderpool_keeper.clock_offset_s + :s",
            s=by_s,
        )

    def sql(self, text: str, **values: Any) -> list[Any]:
        """Run SQL as the host would, committed at once."""
        with self.host.begin() as connection:
            result = connection.execute(sa.text(text), values)
            return list(result) if result.returns_rows else []

    def value(self, text: str, **values: Any) -> Any:
        """Return the one value of a query."""
        return self.sql(text, **values)[0][0]

    def key(self, task_id: UUID) -> Any:
        """Return a task id as the database keeps it, for :meth:`sql`."""
        return task_id if self.host.dialect.name == "postgresql" else task_id.hex

    def start(self, seeds: Sequence[NewRequest] | int = 1, *, spider: str = "news", **more: Any) -> Message:
        """Start a task in a committed host transaction and return its first message."""
        given = links(seeds) if isinstance(seeds, int) else seeds
        more = {"options": {}, "queue": "spiderpool", "settings": self.store.settings} | more
        with Session(self.host) as session:
            _, messages = verbs.create_task(session, spider=spider, seeds=given, **more)
            session.commit()
        assert len(messages) <= 1
        return messages[0] if messages else self.dispatched()

    def dispatched(self) -> Message:
        """Dispatch, and return the one message."""
        messages = self.store.dispatch(10)
        assert len(messages) == 1
        return messages[0]

    def claim(self, message: Message, worker: str = "w1", store: Store | None = None) -> Claim:
        """Claim a message that must be claimable."""
        claimed = (store or self.store).claim(*message.ticket, worker)
        assert claimed is not None
        return claimed

    def claimed(self, seeds: Sequence[NewRequest] | int = 1, *, worker: str = "w1", **more: Any) -> Ticket:
        """Start a task and claim its first slot."""
        return self.claim(self.start(seeds, **more), worker).ticket

    def lease(
        self,
        ticket: Ticket,
        n: int = 100,
        *,
        per_host: Mapping[int, int] | None = None,
        default: int = 100,
        suspects: bool = True,
        rest: Mapping[int, float] | None = None,
    ) -> Lease:
        """Lease, with roomy limits unless told otherwise."""
        return self.store.lease(ticket, n, per_host or {}, default, suspects=suspects, rest_hosts=rest or {})

    def take(self, ticket: Ticket, n: int = 100, **more: Any) -> list[LeasedRequest]:
        """Lease and return the requests."""
        return self.lease(ticket, n, **more).requests

    def release(self, ticket: Ticket, requests: Iterable[LeasedRequest]) -> None:
        """Give requests back that were not started."""
        self.store.settle(ticket, [Outcome(request, Verdict.RELEASE) for request in requests])

    def verb(self, task_id: UUID, verb: Verb, **more: Any) -> list[Message]:
        """Carry out a verb in a committed host transaction."""
        with Session(self.host) as session:
            if verb is Verb.RETRY:
                _, _, messages = verbs.retry(session, task_id, settings=self.store.settings, **more)
            else:
                _, _, messages = verbs.change(session, task_id, verb, settings=self.store.settings, **more)
            session.commit()
        return messages

    def status(self, task_id: UUID) -> Status:
        """Return a task's status as it stands in its row."""
        return Status(self.value("SELECT status FROM spiderpool_task WHERE id = :id", id=self.key(task_id)))

    def slot(self, task_id: UUID, n: int = 0) -> Any:
        """Return a slot's row."""
        return self.sql(
            "SELECT * FROM spiderpool_slot WHERE task_id = :id AND n = :n", id=self.key(task_id), n=n
        )[0]

    def request(self, task_id: UUID, fingerprint: bytes) -> Any:
        """Return a request's row."""
        return self.sql(
            "SELECT * FROM spiderpool_request WHERE task_id = :id AND fingerprint = :f",
            id=self.key(task_id),
            f=fingerprint,
        )[0]

    def history(self, task_id: UUID) -> list[str]:
        """Return the statuses that a task came to, in order."""
        rows = self.sql(
            "SELECT to_status FROM spiderpool_history WHERE task_id = :id ORDER BY id", id=self.key(task_id)
        )
        return [row[0] for row in rows]

    def check(self, task_id: UUID) -> None:
        """Assert that the task's numbers reconcile with its rows."""
        told = self.store.reconcile(task_id)
        assert told["ok"], told
