"""Verbs: rows on the host's session, and nothing else."""

from __future__ import annotations

from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session

from flask_spiderpool.config import Settings
from flask_spiderpool.errors import UnknownTask, VerbConflict
from flask_spiderpool.models import Task
from flask_spiderpool.store import verbs
from flask_spiderpool.store.fence import hold
from flask_spiderpool.terms import VERB_TABLE, Effect, Status, Verb
from tests.store.frontiers import Frontier, done, failed, link, links


def create(session: Session, **more: Any) -> tuple[Task, list[Any]]:
    """Create a task with two seeds."""
    given: dict[str, Any] = {"spider": "news", "options": {}, "seeds": links(2), "queue": "q"} | more
    return verbs.create_task(session, **given)


def test_task_is_created_whole(frontier: Frontier) -> None:
    """Task, slots, seeds, lanes, history and the message; the clock is the store's."""
    frontier.advance(1000)
    with Session(frontier.host) as session:
        seeds = [link(1, depth=0), link(1, depth=0), link(2, "b.example", depth=0)]
        task, messages = create(
            session,
            seeds=seeds,
            options={"a": [1]},
            priority=3,
            max_parallel=3,
            max_pages=9,
            owner="ann",
            by="bob",
            note="why",
        )
        session.commit()
        (message,) = messages
        assert (message.ticket.task_id, message.ticket.n, message.ticket.epoch) == (task.id, 0, 1)
        assert (message.queue, message.priority) == ("q", 3)
        assert (task.status, task.discovered, task.seeds, task.owner, task.created_by) == (
            "pending", 2, 2, "ann", "bob",
        )  # fmt: skip
        assert task.created_at.timestamp() == pytest.approx(frontier.store.now(), abs=5)
    frontier.check(task.id)
    assert [frontier.slot(task.id, n).state for n in range(3)] == ["sent", "idle", "idle"]
    (row,) = frontier.sql("SELECT * FROM spiderpool_history")
    assert (row.from_status, row.to_status, row.by, row.note) == (None, "pending", "bob", "why")


def test_rollback_means_it_never_was(frontier: Frontier) -> None:
    """A verb rolled back by the host leaves no row."""
    with Session(frontier.host) as session:
        create(session)
        session.rollback()
    for table in ("task", "slot", "request", "lane", "history"):
        assert frontier.value(f"SELECT count(*) FROM spiderpool_{table}") == 0


def test_savepoint_of_the_host(frontier: Frontier) -> None:
    """A verb inside a savepoint that the host rolls back is undone; the rest of the transaction stands."""
    if frontier.host.dialect.name == "sqlite":
        # The driver begins a transaction at the first write only: one must stand before the savepoint.
        sa.event.listen(
            frontier.host, "connect", lambda connection, _: setattr(connection, "isolation_level", None)
        )
        sa.event.listen(frontier.host, "begin", lambda connection: connection.exec_driver_sql("BEGIN"))
        frontier.host.dispose()
    with Session(frontier.host) as session:
        kept, _ = create(session)
        savepoint = session.begin_nested()
        create(session, spider="other")
        savepoint.rollback()
        session.commit()
        assert session.scalars(sa.select(Task.id)).all() == [kept.id]


def test_nothing_is_seen_before_the_commit(postgres_frontier: Frontier) -> None:
    """A verb writes on the session it was given and on no other connection."""
    f = postgres_frontier
    ticket = f.claimed(3)
    with Session(f.host) as session:
        verbs.change(session, ticket.task_id, Verb.PAUSE)
        assert f.status(ticket.task_id) == Status.RUNNING
        session.rollback()
    assert f.status(ticket.task_id) == Status.RUNNING
    assert f.value("SELECT desired FROM spiderpool_task") == "run"


def bring(frontier: Frontier, status: Status) -> Any:
    """Return the id of a task in the status."""
    message = frontier.start(2)
    task_id = message.ticket.task_id
    if status in (Status.RUNNING, Status.PAUSING, Status.STOPPING):
        frontier.take(frontier.claim(message).ticket, 1)
    if status in (Status.PAUSING, Status.PAUSED):
        frontier.verb(task_id, Verb.PAUSE)
    if status in (Status.STOPPING, Status.STOPPED):
        frontier.verb(task_id, Verb.STOP)
    if status in (Status.FINISHED, Status.FAILED):
        ticket = frontier.claim(message).ticket
        outcome = done if status is Status.FINISHED else failed
        frontier.store.settle(ticket, [outcome(request) for request in frontier.take(ticket)])
        frontier.store.hand_on(ticket, next_in_s=None)
    assert frontier.store.verdict(task_id) == status
    return task_id


@pytest.mark.parametrize("status", list(Status))
def test_table_of_verbs(frontier: Frontier, status: Status) -> None:
    """Each verb in each status has the effect of the table, and a conflict writes nothing."""
    task_id = bring(frontier, status)
    for verb in (Verb.PAUSE, Verb.RESUME, Verb.STOP, Verb.RETRY):
        before = len(frontier.history(task_id))
        with Session(frontier.host) as session:
            expected = VERB_TABLE[verb][status]
            if expected is Effect.CONFLICT:
                with pytest.raises(VerbConflict) as caught:
                    call(session, task_id, verb)
                assert (caught.value.verb, caught.value.status) == (verb, status)
            else:
                task, effect, messages = call(session, task_id, verb)
                assert effect is expected
                if effect is Effect.UNCHANGED:
                    assert (messages, task.status) == ([], status)
            rows = session.scalar(sa.text("SELECT count(*) FROM spiderpool_history"))
            assert rows == before + (expected is Effect.ACCEPTED)
            session.rollback()


def call(session: Session, task_id: Any, verb: Verb) -> Any:
    """Carry out a verb."""
    if verb is Verb.RETRY:
        return verbs.retry(session, task_id)
    return verbs.change(session, task_id, verb)


def test_unknown_task(frontier: Frontier) -> None:
    """A verb on no task is an error of the caller."""
    task_id = frontier.start().ticket.task_id.__class__(int=0)
    with Session(frontier.host) as session:
        with pytest.raises(UnknownTask):
            verbs.change(session, task_id, Verb.STOP)
        with pytest.raises(UnknownTask):
            verbs.retry(session, task_id)
        with pytest.raises(ValueError, match="retry"):
            verbs.change(session, task_id, Verb.RETRY)


def test_slots_are_locked_before_the_task(postgres_frontier: Frontier) -> None:
    """A verb that waits for a slice's settle holds nothing of the task, whose row that settle needs."""
    f = postgres_frontier
    ticket = f.claimed(3)
    with f.transaction() as tx:
        hold(tx, ticket)
        verb = f.waiting(f.verb, ticket.task_id, Verb.PAUSE)
        f.sql("SELECT 1 FROM spiderpool_task FOR UPDATE NOWAIT")
    assert verb.result() == []
    assert f.status(ticket.task_id) == Status.PAUSING


def test_resume_before_the_pause_was_reached(frontier: Frontier) -> None:
    """A pause is taken back while its slice still runs: the slice goes on and no second slot is sent."""
    ticket = frontier.claimed(3)
    frontier.verb(ticket.task_id, Verb.PAUSE)
    assert frontier.verb(ticket.task_id, Verb.RESUME) == []
    assert frontier.status(ticket.task_id) == Status.RUNNING
    assert len(frontier.take(ticket)) == 3


def test_resume_of_a_task_that_never_ran(frontier: Frontier) -> None:
    """A task paused while pending is pending again, and begins at its first claim, time limit too."""
    message = frontier.start(3, max_time_s=40)
    task_id = message.ticket.task_id
    frontier.verb(task_id, Verb.PAUSE)
    frontier.store.verdict(task_id)
    frontier.advance(1000)
    (message,) = frontier.verb(task_id, Verb.RESUME)
    assert frontier.status(task_id) == Status.PENDING
    assert frontier.claim(message).deadline_in_s == pytest.approx(40, abs=1)


def test_old_message_after_pause_and_resume(frontier: Frontier) -> None:
    """The message that was under way before a pause claims nothing after the resume; the new one does."""
    message = frontier.start(3)
    frontier.verb(message.ticket.task_id, Verb.PAUSE)
    (newer,) = frontier.verb(message.ticket.task_id, Verb.RESUME)
    assert frontier.store.claim(*message.ticket, "w1") is None
    frontier.claim(newer)


def test_retry_queues_what_failed(frontier: Frontier) -> None:
    """Failed requests are queued again with no attempts and no deaths; what was done or skipped stays."""
    ticket = frontier.claimed(3)
    one, two, three = frontier.take(ticket)
    frontier.store.settle(ticket, [failed(one), done(two), failed(three)])
    frontier.sql("UPDATE spiderpool_request SET deaths = 3, attempts = 3 WHERE state = 4")
    frontier.store.hand_on(ticket, next_in_s=None)
    assert frontier.status(ticket.task_id) == Status.FINISHED
    (message,) = frontier.verb(ticket.task_id, Verb.RETRY, by="ann", reason="site is back")
    frontier.check(ticket.task_id)
    assert frontier.status(ticket.task_id) == Status.PENDING
    numbers = frontier.store.numbers(ticket.task_id)
    assert (numbers["failed"], numbers["done"], numbers["queued"], numbers["seeds_failed"]) == (0, 1, 2, 0)
    assert numbers["end_reason"] is None
    ticket = frontier.claim(message).ticket
    taken = frontier.take(ticket)
    assert {(request.attempts, request.deaths, request.is_seed) for request in taken} == {(0, 0, True)}
    frontier.store.settle(ticket, [done(request) for request in taken])
    frontier.store.hand_on(ticket, next_in_s=None)
    assert frontier.history(ticket.task_id)[-3:] == ["pending", "running", "finished"]


def test_retry_with_a_larger_limit_goes_on(frontier: Frontier) -> None:
    """Queued requests of a task that ended at its limit stay queued; a retry with a larger one goes on with them."""
    ticket = frontier.claimed(10, max_pages=2)
    frontier.store.settle(ticket, [done(request) for request in frontier.take(ticket)])
    frontier.store.hand_on(ticket, next_in_s=None)
    assert frontier.status(ticket.task_id) == Status.FINISHED
    (message,) = frontier.verb(ticket.task_id, Verb.RETRY, max_pages=5)
    assert len(frontier.take(frontier.claim(message).ticket)) == 3


def test_retry_while_the_last_slice_winds_down(frontier: Frontier) -> None:
    """A retry that comes before the last slice has handed its slot on is taken up by that hand-on."""
    ticket = frontier.claimed(2, max_pages=1)
    frontier.store.settle(ticket, [done(*frontier.take(ticket))])
    assert frontier.store.verdict(ticket.task_id) == Status.FINISHED
    assert frontier.verb(ticket.task_id, Verb.RETRY, max_pages=9) == []
    (message,) = frontier.store.hand_on(ticket, next_in_s=None)
    assert len(frontier.take(frontier.claim(message).ticket)) == 1


class TestFullCluster:
    """What starts when twice the slice threads are sent already."""

    @pytest.fixture
    def settings(self) -> Settings:
        """Return settings of a worker with one thread."""
        return Settings(worker_threads=1)

    def test_start_is_due_instead_of_sent(self, frontier: Frontier) -> None:
        """The third start is due, and sent by the dispatch when there is room."""
        first = frontier.start()
        frontier.start()
        with Session(frontier.host) as session:
            task, messages = create(session, settings=frontier.store.settings)
            session.commit()
            assert messages == []
            task_id = task.id
        assert frontier.slot(task_id).state == "due"
        assert frontier.store.dispatch(10) == []
        frontier.claim(first)
        (message,) = frontier.store.dispatch(10)
        assert message.ticket.task_id == task_id


def test_time_limit_outlives_a_pause_before_the_claim(frontier: Frontier) -> None:
    """A retry that is paused and resumed before its first claim still gets its time limit from that claim."""
    ticket = frontier.claimed(2, max_time_s=100.0)
    task_id = ticket.task_id
    frontier.store.settle(ticket, [failed(request) for request in frontier.take(ticket)])
    frontier.store.hand_on(ticket, next_in_s=None)
    frontier.verb(task_id, Verb.RETRY)
    frontier.verb(task_id, Verb.PAUSE)
    assert frontier.store.verdict(task_id) == Status.PAUSED
    (message,) = frontier.verb(task_id, Verb.RESUME)
    assert frontier.status(task_id) == Status.PENDING
    assert frontier.claim(message).deadline_in_s == pytest.approx(100, abs=2)
    assert frontier.status(task_id) == Status.RUNNING


@pytest.mark.parametrize("reached", [True, False])
def test_a_pause_is_not_of_the_time_limit(frontier: Frontier, reached: bool) -> None:
    """The time that a task stands still between pause and resume is given back to it, each time."""
    message = frontier.start(3, max_time_s=100.0)
    task_id = message.ticket.task_id
    ticket = frontier.claim(message).ticket
    for left_s in (70, 40):
        frontier.advance(30)
        frontier.verb(task_id, Verb.PAUSE)
        if reached:
            frontier.store.hand_on(ticket, next_in_s=None)
            assert frontier.status(task_id) == Status.PAUSED
        frontier.advance(1000)
        messages = frontier.verb(task_id, Verb.RESUME)
        if reached:
            claim = frontier.claim(messages[0])
            ticket = claim.ticket
            assert claim.deadline_in_s == pytest.approx(left_s, abs=2)
        deadline_at = frontier.value("SELECT deadline_at FROM spiderpool_task")
        assert deadline_at - frontier.store.now() == pytest.approx(left_s, abs=2)
