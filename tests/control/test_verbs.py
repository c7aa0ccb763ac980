"""start, pause, resume, stop, retry, on a session of the caller's."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID, uuid4

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session

from flask_spiderpool import control
from flask_spiderpool.bus import CommandMessage
from flask_spiderpool.config import Settings
from flask_spiderpool.crawl.spider import Request as SpiderRequest
from flask_spiderpool.crawl.spider import Spider, SpiderRegistry
from flask_spiderpool.errors import (
    InvalidParameter,
    SetupError,
    Unavailable,
    UnknownSpider,
    UnknownTask,
    VerbConflict,
)
from flask_spiderpool.models import History, Request, Slot, Task, metadata
from flask_spiderpool.store import Message, Store
from flask_spiderpool.terms import Command, Effect, SlotState, Verb


@dataclass
class Parts:
    """What control is given; keeps what leaves."""

    registry: SpiderRegistry = field(default_factory=SpiderRegistry)
    settings: Settings = field(default_factory=Settings)
    messages: list[Message] = field(default_factory=list)
    commands: list[CommandMessage] = field(default_factory=list)

    def send(self, messages: Any) -> None:
        """Keep them."""
        self.messages.extend(messages)

    def tell(self, command: CommandMessage) -> None:
        """Keep it."""
        self.commands.append(command)


@pytest.fixture
def parts() -> Parts:
    """A pool with one spider."""
    made = Parts()
    made.registry.spider("quotes", start_urls=["https://quotes.example/"], max_pages=50)(lambda page: None)
    return made


@pytest.fixture
def engine(db_url: str) -> Iterator[sa.Engine]:
    """The host's engine, on SQLite and on PostgreSQL."""
    engine = sa.create_engine(db_url)
    metadata.create_all(engine)
    yield engine
    engine.dispose()


@pytest.fixture
def session(engine: sa.Engine) -> Iterator[Session]:
    """The host's session."""
    with Session(engine) as session:
        yield session


def _ended(engine: sa.Engine, task_id: UUID) -> None:
    store = Store(engine, Settings(), owns_engine=False)
    store.verdict(task_id)
    store.close()


def test_start_joins_the_callers_transaction(session: Session, engine: sa.Engine, parts: Parts) -> None:
    """Nothing is committed and nothing leaves before the caller commits; then one message does."""
    task = control.start(session, parts, "quotes", by="ada", owner="ada", note="first")
    with Session(engine) as other:
        assert other.get(Task, task.id) is None
    assert parts.messages == []
    session.commit()
    [message] = parts.messages
    assert message.ticket == (task.id, 0, 1)
    assert (message.queue, message.priority) == ("spiderpool", 0)
    with Session(engine) as other:
        found = other.get(Task, task.id)
        assert found is not None
        assert (found.status, found.desired, found.discovered) == ("pending", "run", 1)
        assert (found.max_pages, found.owner, found.created_by) == (50, "ada", "ada")
        [request] = other.scalars(sa.select(Request))
        assert (request.url, request.is_seed, request.depth) == ("https://quotes.example/", True, 0)
        [history] = other.scalars(sa.select(History))
        assert (history.to_status, history.by, history.note) == ("pending", "ada", "first")


def test_a_rollback_means_it_never_was(session: Session, engine: sa.Engine, parts: Parts) -> None:
    """No task, no message, also not at a later commit."""
    control.start(session, parts, "quotes")
    session.rollback()
    session.commit()
    assert parts.messages == []
    with Session(engine) as other:
        assert other.scalar(sa.select(sa.func.count()).select_from(Task)) == 0


def test_a_rolled_back_savepoint_takes_only_its_own(session: Session, parts: Parts) -> None:
    """What was started outside the savepoint stays, and only its message leaves."""
    kept = control.start(session, parts, "quotes")
    savepoint = session.begin_nested()
    control.start(session, parts, "quotes")
    savepoint.rollback()
    session.commit()
    assert [message.ticket.task_id for message in parts.messages] == [kept.id]
    assert session.scalar(sa.select(sa.func.count()).select_from(Task)) == 1


def test_parameters_are_for_this_task_alone(session: Session, parts: Parts) -> None:
    """Options given at the start lie over the spider's and do not change it."""
    task = control.start(
        session,
        parts,
        "quotes",
        max_pages=5,
        max_depth=1,
        priority=-2,
        max_parallel=3,
        queue="slow",
        max_time_s=60,
    )
    session.commit()
    assert (task.max_pages, task.priority, task.queue, task.max_parallel) == (5, -2, "slow", 3)
    assert (task.max_time_s, task.options["max_depth"]) == (60, 1)
    assert session.scalar(sa.select(sa.func.count()).select_from(Slot)) == 3
    assert [(message.queue, message.priority) for message in parts.messages] == [("slow", -2)]
    assert parts.registry.get("quotes").options.max_pages == 50


def test_the_pools_queue_is_the_default(session: Session) -> None:
    """A spider without a queue of its own goes to that of the settings."""
    parts = Parts(settings=Settings(queue="crawl"))
    task = control.start(session, parts, "article", start_urls="https://a.example/")
    assert task.queue == "crawl"


def test_start_urls_are_canonicalised_and_made_one(session: Session, parts: Parts) -> None:
    """Spellings of one document are one seed; the frontier keeps what goes on the wire."""
    urls = ["HTTPS://Quotes.example:443/a#x", "https://quotes.example/a", "https://quotes.example/%7Ea"]
    task = control.start(session, parts, "quotes", start_urls=urls)
    assert task.discovered == 2
    found = session.scalars(sa.select(Request.url).order_by(Request.url)).all()
    assert found == ["https://quotes.example/%7Ea", "https://quotes.example/a"]


@pytest.mark.parametrize(
    ("params", "field"),
    [
        ({"start_urls": "mailto:a@b.example"}, "start_urls"),
        ({"start_urls": []}, "start_urls"),
        ({"max_pages": 0}, "max_pages"),
        ({"max_page": 1}, "max_page"),
        ({"obey_robots": False}, "obey_robots"),
        ({"note": "x" * 1001}, "reason"),
    ],
)
def test_a_wrong_parameter_is_named_before_anything_is_written(
    session: Session, parts: Parts, params: dict[str, Any], field: str
) -> None:
    """The error names the field, and the session has nothing to roll back."""
    with pytest.raises(InvalidParameter) as caught:
        control.start(session, parts, "quotes", **params)
    assert caught.value.field == field
    assert not session.in_transaction()


def test_an_unknown_spider(session: Session, parts: Parts) -> None:
    """The nearest name is suggested."""
    with pytest.raises(UnknownSpider, match="did you mean 'quotes'"):
        control.start(session, parts, "quote")


def test_a_start_outside_the_spiders_domains(session: Session, parts: Parts) -> None:
    """A spider that is bound to its hosts cannot be started elsewhere."""
    parts.registry.spider("bound", start_urls=["https://a.example/"], allowed_domains=["a.example"])(print)
    with pytest.raises(InvalidParameter, match="outside the spider's scope"):
        control.start(session, parts, "bound", start_urls="https://b.example/")


def test_a_start_page_need_not_match_include(session: Session, parts: Parts) -> None:
    """``include`` says what to follow; the page that lists the links is the way there. ``exclude`` counts."""
    parts.registry.spider("posts", start_urls=["https://a.example/"], include=["/post/"])(print)
    assert control.start(session, parts, "posts").discovered == 1
    with pytest.raises(InvalidParameter, match="exclude"):
        control.start(session, parts, "posts", exclude=[r"example/$"])


class _Own(Spider):
    """A spider that makes its first requests itself."""

    name = "own"

    def start_requests(self) -> Iterator[SpiderRequest]:
        yield SpiderRequest("https://a.example/1", callback="parse", meta={"page": 1}, priority=5)
        yield SpiderRequest("https://b.example:8443/2")

    def parse(self, page: Any) -> None:
        """Take nothing."""


def test_a_spider_may_make_its_first_requests(session: Session, parts: Parts) -> None:
    """They keep what they carry, and their hosts, and no others, are the task's scope."""
    parts.registry.add(_Own)
    task = control.start(session, parts, "own")
    first = session.scalars(sa.select(Request).where(Request.url == "https://a.example/1")).one()
    assert first.payload == {"callback": "parse", "meta": {"page": 1}}
    assert first.priority == 5
    assert task.options["allowed_domains"] == ["a.example", "b.example:8443"]


def test_first_requests_are_checked_and_made_one(session: Session, parts: Parts) -> None:
    """Two of one document are one seed; one that cannot be asked for is an error, as a start URL would be."""

    class Twice(_Own):
        name = "twice"

        def start_requests(self) -> Iterator[SpiderRequest]:
            yield from [SpiderRequest("https://a.example/1"), SpiderRequest("https://A.example/1#x")]

    class Relative(_Own):
        name = "relative"

        def start_requests(self) -> Iterator[SpiderRequest]:
            yield SpiderRequest("/page")

    parts.registry.add(Twice)
    parts.registry.add(Relative)
    assert control.start(session, parts, "twice").discovered == 1
    with pytest.raises(InvalidParameter, match="'/page'"):
        control.start(session, parts, "relative")


def test_named_start_urls_go_before_the_spiders_own_requests(session: Session, parts: Parts) -> None:
    """Whoever names where to begin means it."""
    parts.registry.add(_Own)
    control.start(session, parts, "own", start_urls="https://c.example/")
    assert session.scalars(sa.select(Request.url)).all() == ["https://c.example/"]


def test_a_spider_without_a_beginning(session: Session, parts: Parts) -> None:
    """``article`` has no start URLs of its own."""
    with pytest.raises(InvalidParameter, match="no start URLs of its own"):
        control.start(session, parts, "article")


def test_too_many_first_requests(session: Session, parts: Parts, monkeypatch: pytest.MonkeyPatch) -> None:
    """An endless ``start_requests`` ends at the limit."""
    monkeypatch.setattr("flask_spiderpool.control.seeds.MAX_SEEDS", 1)
    parts.registry.add(_Own)
    with pytest.raises(InvalidParameter, match="more than 1"):
        control.start(session, parts, "own")


# -- the other verbs


def test_pause_resume_and_stop(session: Session, engine: sa.Engine, parts: Parts) -> None:
    """Each is told to the slices after the commit; resume and retry send a slot, pause and stop rest it."""
    task = control.start(session, parts, "quotes")
    session.commit()
    parts.messages.clear()

    found, effect = control.change(session, parts, Verb.PAUSE, task.id, by="ada", note="lunch")
    assert (found.status, found.desired, effect) == ("pausing", "pause", Effect.ACCEPTED)
    assert parts.commands == []
    session.commit()
    data = {"task_id": str(task.id), "desired": "pause"}
    assert parts.commands == [CommandMessage(Command.DESIRED, data)]
    assert session.scalars(sa.select(Slot.state)).one() == SlotState.IDLE
    assert parts.messages == []

    assert control.change(session, parts, Verb.RESUME, str(task.id))[1] is Effect.ACCEPTED
    session.commit()
    assert len(parts.messages) == 1

    assert control.change(session, parts, Verb.STOP, task.id)[1] is Effect.ACCEPTED
    session.commit()
    assert [command.data["desired"] for command in parts.commands] == ["pause", "run", "stop"]
    notes = session.execute(sa.select(History.by, History.note).order_by(History.id)).all()
    assert ("ada", "lunch") in [tuple(row) for row in notes]


def test_what_changes_nothing_tells_nothing(session: Session, parts: Parts) -> None:
    """A second pause is no news."""
    task = control.start(session, parts, "quotes")
    control.change(session, parts, Verb.PAUSE, task.id)
    session.commit()
    told = len(parts.commands)
    assert control.change(session, parts, Verb.PAUSE, task.id)[1] is Effect.UNCHANGED
    session.commit()
    assert len(parts.commands) == told


def test_a_rolled_back_verb_tells_nothing(session: Session, parts: Parts) -> None:
    """The slices hear of it only when it is true."""
    task = control.start(session, parts, "quotes")
    session.commit()
    control.change(session, parts, Verb.STOP, task.id)
    session.rollback()
    session.commit()
    assert parts.commands == []


def test_retry_goes_on_with_an_ended_task(session: Session, engine: sa.Engine, parts: Parts) -> None:
    """The same task, with a new limit if one is given, sends a slot again."""
    task = control.start(session, parts, "quotes")
    control.change(session, parts, Verb.STOP, task.id)
    session.commit()
    _ended(engine, task.id)
    parts.messages.clear()
    found, effect = control.retry(session, parts, task.id, by="ada", max_pages=99, note="again")
    session.commit()
    assert (found.status, found.max_pages, effect) == ("pending", 99, Effect.ACCEPTED)
    assert [message.ticket.task_id for message in parts.messages] == [task.id]
    assert parts.commands[-1].data["desired"] == "run"


@pytest.mark.parametrize(("limit", "refused"), [(None, True), (5, True), (30, True), (31, False)])
def test_a_retry_needs_room_below_the_limit(
    session: Session, engine: sa.Engine, parts: Parts, limit: int | None, refused: bool
) -> None:
    """A task that would end again at once stays as it is, and the error names the remedy."""
    task_id = control.start(session, parts, "quotes", max_pages=30).id
    session.commit()
    with engine.begin() as connection:
        connection.execute(
            sa.update(Task).values(status="finished", end_reason="max_pages", done=30, discovered=30)
        )
    session.expire_all()
    parts.messages.clear()
    if not refused:
        assert control.retry(session, parts, task_id, max_pages=limit)[0].status == "pending"
        return
    with pytest.raises(
        VerbConflict, match=rf"limit of {limit or 30} pages is reached .*; name a larger one"
    ) as caught:
        control.retry(session, parts, task_id, max_pages=limit)
    assert (caught.value.verb, caught.value.status) == ("retry", "finished")
    session.commit()
    row = session.execute(sa.select(Task.status, Task.end_reason, Task.max_pages, Task.done)).one()
    assert tuple(row) == ("finished", "max_pages", 30, 30)
    assert session.scalar(sa.select(sa.func.count()).select_from(History)) == 1
    assert (parts.messages, parts.commands) == ([], [])


@pytest.mark.parametrize("max_pages", [0, -1, True, 10**30, 1.5])
def test_retry_with_a_wrong_limit(session: Session, parts: Parts, max_pages: int) -> None:
    """The field is named."""
    with pytest.raises(InvalidParameter) as caught:
        control.retry(session, parts, uuid4(), max_pages=max_pages)
    assert caught.value.field == "max_pages"


def test_a_conflict_names_verb_and_status(session: Session, parts: Parts) -> None:
    """A pending task cannot be retried."""
    task = control.start(session, parts, "quotes")
    with pytest.raises(VerbConflict) as caught:
        control.retry(session, parts, task.id)
    assert (caught.value.verb, caught.value.status) == ("retry", "pending")


def test_an_unknown_task(session: Session, parts: Parts) -> None:
    """An id that nobody has, and text that is no id."""
    with pytest.raises(UnknownTask):
        control.change(session, parts, Verb.STOP, uuid4())
    with pytest.raises(InvalidParameter) as caught:
        control.change(session, parts, Verb.STOP, "seven")
    assert caught.value.field == "task_id"


# -- the border to the database


def test_missing_tables_have_a_remedy(db_url: str, parts: Parts) -> None:
    """The driver's error becomes one that says what to run."""
    engine = sa.create_engine(db_url)
    with Session(engine) as session, pytest.raises(SetupError, match="flask spiderpool db upgrade"):
        control.start(session, parts, "quotes")
    engine.dispose()


def test_a_database_that_is_away(parts: Parts) -> None:
    """Nothing of the driver reaches the host, nor the password."""
    engine = sa.create_engine("postgresql+psycopg://me:secret@127.0.0.1:1/none")
    with Session(engine) as session, pytest.raises(Unavailable) as caught:
        control.start(session, parts, "quotes")
    assert "secret" not in str(caught.value)


def test_a_database_that_cannot_be_opened(parts: Parts) -> None:
    """A file in a folder that is not there is a database that is away."""
    engine = sa.create_engine("sqlite:////nowhere/at/all/pool.db")
    with Session(engine) as session, pytest.raises(Unavailable, match="unable to open"):
        control.start(session, parts, "quotes")


def test_a_busy_database(sqlite_url: str, parts: Parts) -> None:
    """A lock that is not to be had is ``Unavailable``: roll back and try again."""
    engine = sa.create_engine(sqlite_url, connect_args={"timeout": 0})
    metadata.create_all(engine)
    other = sqlite3.connect(str(engine.url.database), isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with Session(engine) as session, pytest.raises(Unavailable, match="locked"):
        control.start(session, parts, "quotes")
    other.close()
    engine.dispose()


def test_other_faults_pass() -> None:
    """What is nobody's but ours keeps its type."""
    with pytest.raises(ZeroDivisionError), control.translated():
        1 / 0  # noqa: B018
    assert control.translate(ValueError("x")) is None
