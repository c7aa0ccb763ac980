"""A slice between the store and the engine: real SQLite, a real site, the runtime in this process."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session

from flask_spiderpool import control
from flask_spiderpool.bus import EventMessage
from flask_spiderpool.bus.memory import MemoryBus, MemoryHub
from flask_spiderpool.config import Settings, settings_from
from flask_spiderpool.crawl.engine import SliceRun
from flask_spiderpool.crawl.request import Ticket
from flask_spiderpool.crawl.spider import ArticleSpider, SpiderRegistry
from flask_spiderpool.errors import SpiderPoolError, Unavailable
from flask_spiderpool.limiter.memory import MemoryLimiter
from flask_spiderpool.models import Slot, Task
from flask_spiderpool.store import Message, Store
from flask_spiderpool.tasks import slice as slices
from flask_spiderpool.tasks.pump import work_through
from flask_spiderpool.tasks.runtime import Runtime, RuntimeParts
from flask_spiderpool.tasks.slice import run_slice
from flask_spiderpool.terms import Event, Status, Verb
from tests.site.server import Reply, Site

MakeRing = Callable[..., Site]


class Pool:
    """A store, a runtime, and what control needs."""

    def __init__(self, folder: Path, site: Site, **settings: Any) -> None:
        url = f"sqlite:///{folder}/slice.db"
        self.site = site
        self.settings: Settings = settings_from(
            {
                "SPIDERPOOL_ALLOW_ADDRESSES": [site.host],
                "SPIDERPOOL_DELAY_S": 0,
                "SPIDERPOOL_SLICE_S": 5,
                "SPIDERPOOL_STOP_GRACE_S": 5,
                **settings,
            }
        )
        self.registry = SpiderRegistry()
        self.registry.add(ArticleSpider("pages", links_only=True))
        self.store = Store.open(url, self.settings)
        self.store.create_tables()
        self.engine = sa.create_engine(url, poolclass=sa.NullPool)
        self.sent: list[Message] = []
        self.hub = MemoryHub()
        parts = RuntimeParts(
            settings=self.settings,
            registry=self.registry,
            store=self.store,
            limiter=MemoryLimiter(),
            send=self.sent.extend,
            enter_app=nullcontext,
            bus=MemoryBus(self.hub),
        )
        self.runtime = Runtime(parts, threads=1, keeps=False)
        self.runtime.start()

    def send(self, messages: Any) -> None:
        self.sent.extend(messages)

    def tell(self, command: Any) -> None: ...

    def begin(self, path: str = "/p/0", **params: Any) -> UUID:
        with Session(self.engine) as session:
            task = control.start(session, self, "pages", start_urls=self.site.url + path, **params)
            task_id: UUID = task.id
            session.commit()
        return task_id

    def change(self, verb: Verb, task_id: UUID) -> None:
        with Session(self.engine) as session:
            control.change(session, self, verb, task_id)
            session.commit()

    def ticket(self) -> Ticket:
        return self.sent.pop(0).ticket

    def slot(self, task_id: UUID) -> Slot:
        with Session(self.engine, expire_on_commit=False) as session:
            return session.scalars(sa.select(Slot).where(Slot.task_id == task_id)).one()

    def task(self, task_id: UUID) -> Task:
        with Session(self.engine, expire_on_commit=False) as session:
            return session.get_one(Task, task_id)

    def close(self) -> None:
        self.runtime.close()
        self.store.close()


@pytest.fixture
def make_pool(tmp_path: Path) -> Iterator[Callable[..., Pool]]:
    made: list[Pool] = []

    def make(site: Site, **settings: Any) -> Pool:
        made.append(Pool(tmp_path, site, **settings))
        return made[-1]

    yield make
    for pool in made:
        pool.close()


@pytest.fixture
def pool(make_pool: Callable[..., Pool], make_ring: MakeRing) -> Pool:
    return make_pool(make_ring(10))


def test_a_slice_works_a_small_task_to_its_end(pool: Pool):
    """Claim, engine, hand-on: the task is finished, the slot rests, nothing is sent any more."""
    task_id = pool.begin()
    assert list(run_slice(pool.runtime, pool.ticket())) == []
    assert pool.task(task_id).status == Status.FINISHED
    assert pool.store.numbers(task_id)["done"] == 10
    assert pool.slot(task_id).state == "idle"


def test_the_end_of_a_slice_is_told_on_the_bus(pool: Pool):
    """Whoever listens hears in one message that the task has ended, and how; its seen-set is forgotten."""
    listener = MemoryBus(pool.hub)
    assert list(listener.subscribe(0)) == []
    task_id = pool.begin()
    run_slice(pool.runtime, pool.ticket())
    numbers = {"discovered": 10, "done": 10, "failed": 0, "skipped": 0}
    ended = {"task_id": str(task_id), **numbers, "status": "finished", "reason": "complete"}
    assert list(listener.subscribe(0)) == [EventMessage(Event.TASK_STATUS, ended)]
    assert pool.runtime.engine.seen.of(task_id) == set()
    listener.close()


def test_a_doubled_message_does_nothing(pool: Pool):
    """The second delivery of one message claims nothing and asks the site for nothing."""
    pool.begin()
    ticket = pool.ticket()
    run_slice(pool.runtime, ticket)
    before = len(pool.site.log)
    assert list(run_slice(pool.runtime, ticket)) == []
    assert len(pool.site.log) == before


def test_a_draining_process_claims_nothing(pool: Pool):
    """A message that arrives while the process winds up is put back: whoever keeps house next sends it on."""
    task_id = pool.begin()
    pool.runtime.drain()
    assert list(run_slice(pool.runtime, pool.ticket())) == []
    assert pool.slot(task_id).state == "due"
    assert pool.site.log == []


def test_a_drain_ends_a_running_slice_and_sends_its_slot_on(
    make_pool: Callable[..., Pool], make_ring: MakeRing
):
    """Started requests finish, the rest goes back, and the next message is there at once."""
    pool = make_pool(make_ring(200, delay_s=0.05), SPIDERPOOL_SLICE_S=60)
    task_id = pool.begin(concurrency=2)
    ticket = pool.ticket()
    sent: list[Message] = []
    thread = threading.Thread(target=lambda: sent.extend(run_slice(pool.runtime, ticket)))
    thread.start()
    while len(pool.site.log) < 6:
        thread.join(0.02)
    pool.runtime.close()
    thread.join(10)
    assert not thread.is_alive()
    numbers = pool.store.numbers(task_id)
    assert numbers["leased"] == 0
    assert numbers["status"] == "running"
    assert pool.store.reconcile(task_id)["ok"]
    asked = [path for path in pool.site.paths() if path != "/robots.txt"]
    assert numbers["done"] == len(asked) == len(set(asked))
    assert [message.ticket.task_id for message in sent] == [task_id]


def test_an_unknown_spider_fails_the_task(pool: Pool, caplog: pytest.LogCaptureFixture):
    """The history says why."""
    task_id = pool.begin()
    del pool.registry._spiders["pages"]
    run_slice(pool.runtime, pool.ticket())
    task = pool.task(task_id)
    assert (task.status, task.end_reason) == ("failed", "spider_missing")
    assert "there is no spider 'pages'" in caplog.text


def test_a_broken_spider_fails_the_task(pool: Pool, monkeypatch: pytest.MonkeyPatch):
    """Options that this version refuses (the code has changed since the start) end the task, visibly."""
    task_id = pool.begin()
    with pool.engine.begin() as connection:
        connection.execute(sa.text("""UPDATE spiderpool_task SET options = '{"max_depth": "deep"}'"""))
    run_slice(pool.runtime, pool.ticket())
    task = pool.task(task_id)
    assert (task.status, task.end_reason) == ("failed", "spider_broken")


def test_a_slice_that_crashes_is_tried_again_later(
    pool: Pool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    """A fault of ours is logged with its traceback; the slot rests a while instead of circling."""

    async def crash(self: SliceRun) -> float | None:
        raise KeyError("a bug")

    monkeypatch.setattr(SliceRun, "run", crash)
    task_id = pool.begin()
    before = pool.store.now()
    with caplog.at_level(logging.ERROR):
        assert list(run_slice(pool.runtime, pool.ticket())) == []
    slot = pool.slot(task_id)
    assert slot.state == "due"
    assert slot.due_at >= before + slices.CRASH_REST_S
    assert "a bug" in caplog.text
    assert pool.task(task_id).status == "running"


def test_a_slice_that_hangs_is_cancelled(pool: Pool, monkeypatch: pytest.MonkeyPatch):
    """Threads know no time limit of Celery's: the limit is round the coroutine."""
    import asyncio

    cancelled = threading.Event()

    async def hang(self: SliceRun) -> float | None:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    monkeypatch.setattr(SliceRun, "run", hang)
    monkeypatch.setattr(slices, "slice_limit_s", lambda runtime, rules: 0.05)
    task_id = pool.begin()
    run_slice(pool.runtime, pool.ticket())
    assert cancelled.is_set()
    assert pool.slot(task_id).state == "due"


def test_a_slice_without_database_ends(pool: Pool, monkeypatch: pytest.MonkeyPatch):
    """Nothing is raised into Celery; the keeper makes up for it."""
    pool.begin()

    def away(*args: Any) -> None:
        raise Unavailable("the database is away")

    monkeypatch.setattr(pool.store, "claim", away)
    assert list(run_slice(pool.runtime, pool.ticket())) == []


def test_the_pump_waits_for_what_ripens(make_pool: Callable[..., Pool]):
    """Eager mode and the foreground crawl: a retry that rests is waited for, without a queue or a keeper."""
    answers = iter([Reply("busy", status=503), Reply("<p>here</p>")])
    with Site({"/": lambda seen: next(answers)}) as site:
        pool = make_pool(site, SPIDERPOOL_BACKOFF_S=0.2)
        task_id = pool.begin("/")
        waits: list[float] = []

        def wait(seconds: float) -> None:
            waits.append(seconds)
            pool.runtime.wait_for_drain(seconds)

        status = work_through(pool.runtime, task_id, pool.sent, wait=wait)
        assert status is Status.FINISHED
        assert pool.store.numbers(task_id)["done"] == 1


def test_the_pump_rests_with_a_paused_task(pool: Pool):
    """It returns rather than wait for a resume that nobody can give."""
    task_id = pool.begin()
    messages, pool.sent = pool.sent, []
    pool.change(Verb.PAUSE, task_id)
    assert work_through(pool.runtime, task_id, messages, wait=pytest.fail) is Status.PAUSED
    assert pool.site.log == []


def test_the_pump_ends_with_the_event_loop(pool: Pool):
    """A loop that some code has ended cannot run the next slice either: an error, rather than a wait for ever."""
    task_id = pool.begin()
    loop = pool.runtime._loop
    loop.loop.call_soon_threadsafe(loop.loop.stop)
    loop._thread.join(5)
    assert pool.runtime.broken
    with pytest.raises(SpiderPoolError, match="event loop"):
        work_through(pool.runtime, task_id, pool.sent, wait=pytest.fail)
