"""A crawl without an app: a pool of its own in one SQLite file, kept until the crawl is finished.

No host database, no message, no broker: slots, leases and counters are those of any pool, so an interrupted
crawl goes on where it was.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.orm import Session

from flask_spiderpool import control
from flask_spiderpool.bus.base import CommandMessage
from flask_spiderpool.cli.faults import Fault, faults
from flask_spiderpool.cli.progress import Waiting
from flask_spiderpool.cli.waiting import waiting
from flask_spiderpool.config import Settings, settings_from
from flask_spiderpool.crawl.spider import ArticleSpider, SpiderRegistry
from flask_spiderpool.errors import InvalidParameter, SetupError
from flask_spiderpool.limiter.memory import MemoryLimiter
from flask_spiderpool.limiter.process_lock import ProcessLock
from flask_spiderpool.models import Page, Request, Setting, Task
from flask_spiderpool.store import Message, Store
from flask_spiderpool.tasks.runtime import Runtime, RuntimeParts

SPIDER = "crawl"
SCOPE = "flask spiderpool crawl"  #: the row of the settings table that holds the command's own words
TEMPORARY = "spiderpool-crawl-"  #: folders of crawls that write to stdout
ROWS_AT_ONCE = 500

_parent = sa.orm.aliased(Request)
_ROWS = (
    sa.select(
        Page.id,
        Page.url,
        Page.status_code,
        Page.title,
        Page.text,
        Page.markdown,
        Page.meta,
        Page.content_type,
        Page.body_bytes,
        Page.fetched_at,
        Request.depth,
        _parent.url.label("found_on"),
    )
    .join(Request, Request.id == Page.request_id)
    .outerjoin(_parent, _parent.id == Request.found_on)
    .order_by(Page.id)
    .limit(ROWS_AT_ONCE)
)


class _Alone:
    """What the verbs are given where there is no app (:class:`flask_spiderpool.control.Parts`)."""

    def __init__(self, settings: Settings, registry: SpiderRegistry) -> None:
        self.settings = settings
        self.registry = registry
        self.messages: list[Message] = []

    def send(self, messages: Sequence[Message]) -> None:
        """Keep them for the loop that runs slices."""
        self.messages.extend(messages)

    def tell(self, command: CommandMessage) -> None:
        """Nobody else listens."""


class CrawlFile:
    """One crawl's pool. Make it by :meth:`new` or :meth:`open`; close it."""

    def __init__(self, path: Path, words: dict[str, Any], lock: ProcessLock) -> None:
        self.path = path
        self.words = words  #: what the command was told, JSON
        self.settings = settings_from(words["settings"])
        self._lock = lock
        self._engine = _engine(path)
        self._parts = _Alone(self.settings, _registry())
        self.store = Store.open(f"sqlite:///{path}", self.settings)

    @classmethod
    def new(cls, path: Path, words: dict[str, Any]) -> CrawlFile:
        """Begin a file. Refuses one that is there: it holds a crawl that can go on."""
        lock = _lock(path)
        if path.exists():
            lock.release(delete=True)
            raise InvalidParameter(
                "output",
                f"{path} holds an unfinished crawl; go on with 'crawl --resume {path}' or delete it",
            )
        crawl = cls(path, words, lock)
        try:
            crawl.store.create_tables()
            with Session(crawl._engine) as session:
                session.add(Setting(scope=SCOPE, data=words, at=datetime.now(UTC)))
                session.commit()
        except BaseException:
            crawl.close(delete=True)
            raise
        return crawl

    @classmethod
    def open(cls, path: Path) -> CrawlFile:
        """Open a file that an interrupted crawl has left."""
        _check_is_there(path)
        lock = _lock(path)
        try:
            _check_is_there(path)  # a crawl that ended meanwhile has deleted it
        except InvalidParameter:
            lock.release(delete=True)
            raise
        engine = _engine(path)
        try:
            with Session(engine) as session:
                words = session.scalar(sa.select(Setting.data).where(Setting.scope == SCOPE))
        except sa.exc.DatabaseError:
            words = None
        finally:
            engine.dispose()
        if words is None:
            lock.release(delete=True)
            raise InvalidParameter("resume", f"{path} was not made by 'flask spiderpool crawl'")
        return cls(path, words, lock)

    def start(self, url: str, **params: Any) -> UUID:
        """Write the task; returns its id."""
        with Session(self._engine, expire_on_commit=False) as session:
            task = control.start(session, self._parts, SPIDER, start_urls=[url], **params)
            session.commit()
        return task.id

    def task_id(self) -> UUID:
        """Return the id of the file's only task."""
        with Session(self._engine) as session:
            found: UUID = session.scalars(sa.select(Task.id)).one()
            return found

    def task(self) -> Task:
        """Return the file's only task as it is now."""
        with Session(self._engine, expire_on_commit=False) as session:
            return session.scalars(sa.select(Task)).one()

    def messages(self) -> list[Message]:
        """Return the messages that the start has left, once."""
        messages, self._parts.messages = self._parts.messages, []
        return messages

    def take_over(self) -> None:
        """Let whatever another life of this crawl still held expire now.

        The file's lock says that this process is alone, so nobody can be working under those leases; waiting
        for them would only cost the time of a lease. A request whose process was killed counts a death.
        """
        with self._engine.begin() as connection:
            connection.execute(
                sa.text("UPDATE spiderpool_slot SET until = 0 WHERE state IN ('sent', 'running')")
            )

    def runtime(self) -> Runtime:
        """Make and start what runs the slices."""
        parts = RuntimeParts(
            settings=self.settings,
            registry=self._parts.registry,
            store=self.store,
            limiter=MemoryLimiter(),
            send=self._parts.send,
            enter_app=nullcontext,
        )
        runtime = Runtime(parts, threads=1, keeps=False)
        runtime.start()
        return runtime

    def numbers(self) -> dict[str, int]:
        """Return the task's counters."""
        return dict(self.store.numbers(self.task_id()))

    def rows(self, after: int) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yield (id, row) of the pages stored after the page ``after``, oldest first."""
        while True:
            with self._engine.connect() as connection:
                found = connection.execute(_ROWS.where(Page.id > after)).all()
            for row in found:
                yield row.id, _row(row)
            if len(found) < ROWS_AT_ONCE:
                return
            after = found[-1].id

    def waiting(self) -> Waiting | None:
        """Return what the crawl waits for just now."""
        with Session(self._engine) as session:
            return waiting(session, time.time())

    def faults(self) -> list[Fault]:
        """Return why requests failed or were skipped."""
        with Session(self._engine) as session:
            return list(faults(session, self.task_id()))

    def close(self, *, delete: bool) -> None:
        """Close; ``delete`` says that the crawl is finished and nothing is kept."""
        self.store.close()
        self._engine.dispose()
        if delete:
            for suffix in ("", "-wal", "-shm"):
                Path(f"{self.path}{suffix}").unlink(missing_ok=True)
        self._lock.release(delete=True)
        if delete and self.path.parent.name.startswith(TEMPORARY):
            with contextlib.suppress(OSError):
                self.path.parent.rmdir()


@contextmanager
def closing(crawl: CrawlFile) -> Iterator[CrawlFile]:
    """Close the file at the end; delete it if its task has ended."""
    delete = False
    try:
        yield crawl
        delete = crawl.task().ended_at is not None
    finally:
        crawl.close(delete=delete)


def _registry() -> SpiderRegistry:
    registry = SpiderRegistry()
    registry.add(ArticleSpider(SPIDER))
    return registry


def _engine(path: Path) -> sa.Engine:
    return sa.create_engine(f"sqlite:///{path}", connect_args={"timeout": 15.0})


def _lock_path(path: Path) -> Path:
    return path.with_name(path.name + ".lock")


def _check_is_there(path: Path) -> None:
    if not path.is_file():
        raise InvalidParameter("resume", f"{path} is not there; it is deleted when its crawl is finished")


def _lock(path: Path) -> ProcessLock:
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        return ProcessLock(_lock_path(path))
    except SetupError:
        raise InvalidParameter("resume", f"another process is at work on {path}") from None


def _row(row: Any) -> dict[str, Any]:
    return {
        "url": row.url,
        "status": row.status_code,
        "title": row.title,
        "text": row.text,
        "markdown": row.markdown,
        "metadata": row.meta or {},
        "depth": row.depth,
        "found_on": row.found_on,
        "content_type": row.content_type,
        "bytes": row.body_bytes,
        "fetched_at": row.fetched_at.isoformat() if row.fetched_at else None,
    }
