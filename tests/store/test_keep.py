"""The keeper: what nobody else will do (PROTOCOL, *The slot ...*, *Deaths*, *Keeper*)."""

from __future__ import annotations

from typing import Any

import pytest

from flask_spiderpool.config import Settings
from flask_spiderpool.crawl.request import Ticket
from flask_spiderpool.store import expire, keep
from flask_spiderpool.terms import RequestState, Status, Verb
from tests.store.frontiers import Frontier, again, done, links


def deaths(frontier: Frontier, ticket: Ticket) -> list[int]:
    """Return the deaths of a task's requests, in order."""
    rows = frontier.sql(
        "SELECT deaths FROM spiderpool_request WHERE task_id = :t ORDER BY id", t=frontier.key(ticket.task_id)
    )
    return [row[0] for row in rows]


def pauses(frontier: Frontier, task_id: Any, passes: int) -> list[float]:
    """Let a message go unanswered; return the pause before each of the next re-sends."""
    found = []
    for _ in range(passes):
        slot = frontier.slot(task_id)
        pause_s = slot.until - frontier.store.now()
        found.append(pause_s)
        frontier.advance(pause_s - 1)
        assert all(message.ticket.task_id != task_id for message in frontier.store.keep("k"))
        frontier.advance(2)
        sent = [message for message in frontier.store.keep("k") if message.ticket.task_id == task_id]
        assert [message.ticket.epoch for message in sent] == [slot.epoch + 1]
    return found


def test_lost_message_is_sent_again(frontier: Frontier) -> None:
    """A message that nobody claims is sent again every 30 s, with a new epoch, while the queue is short."""
    message = frontier.start()
    found = pauses(frontier, message.ticket.task_id, 4)
    assert found == pytest.approx([30, 30, 30, 30], abs=1)


class TestBacklog:
    """A queue that is longer than what can run."""

    @pytest.fixture
    def settings(self) -> Settings:
        """Return settings of a worker with one thread, so that two messages are a long queue."""
        return Settings(worker_threads=1)

    def test_pauses_double_while_the_queue_is_long(self, frontier: Frontier) -> None:
        """With more sent than can run the pause doubles up to ten minutes, else the backlog feeds itself."""
        one, _ = frontier.start(), frontier.start()
        assert pauses(frontier, one.ticket.task_id, 7) == pytest.approx(
            [30, 60, 120, 240, 480, 600, 600], abs=2
        )

    def test_pauses_begin_anew_after_a_run(self, frontier: Frontier) -> None:
        """A slot that ran begins at 30 s again."""
        one, _ = frontier.start(2), frontier.start()
        pauses(frontier, one.ticket.task_id, 3)
        slot = frontier.slot(one.ticket.task_id)
        assert slot.sends == 3
        ticket = frontier.claim(one._replace(ticket=one.ticket._replace(epoch=slot.epoch))).ticket
        frontier.store.hand_on(ticket, next_in_s=None)
        slot = frontier.slot(one.ticket.task_id)
        assert (slot.state, slot.sends) == ("sent", 0)
        assert slot.until - frontier.store.now() == pytest.approx(30, abs=1)


def test_resend_returns_what_the_slot_holds(frontier: Frontier) -> None:
    """Should a sent slot hold leases, they are returned before it is sent again."""
    ticket = frontier.claimed(3)
    frontier.take(ticket)
    frontier.sql("UPDATE spiderpool_slot SET state = 'sent', until = 0")
    frontier.store.keep("k")
    frontier.check(ticket.task_id)
    assert frontier.store.numbers(ticket.task_id)["leased"] == 0


def test_resend_of_an_unwanted_task_rests(frontier: Frontier) -> None:
    """The slot of a task that is not wanted is laid to rest instead."""
    message = frontier.start()
    frontier.sql("UPDATE spiderpool_task SET desired = 'pause', status = 'paused'")
    frontier.advance(31)
    assert frontier.store.keep("k") == []
    assert frontier.slot(message.ticket.task_id).state == "idle"


def test_expired_slot_is_returned_and_sent_again(frontier: Frontier) -> None:
    """A slice that stopped renewing loses its leases, each with a death, and its slot is sent again."""
    ticket = frontier.claimed(3)
    frontier.take(ticket, 2)
    frontier.advance(19)
    assert frontier.store.keep("k") == []
    frontier.advance(2)
    (message,) = frontier.store.keep("k")
    assert message.ticket.task_id == ticket.task_id
    assert message.ticket.epoch > ticket.epoch
    assert deaths(frontier, ticket) == [1, 1, 0]
    frontier.check(ticket.task_id)


def test_expired_slot_is_due_in_the_same_transaction(frontier: Frontier) -> None:
    """What an expired slot held is queued, and the slot due, in one transaction: nothing is left to be mended."""
    ticket = frontier.claimed(3)
    frontier.take(ticket, 2)
    frontier.advance(21)
    slot = (ticket.task_id, ticket.n, ticket.epoch)
    assert frontier.store.write(lambda tx: expire.expire(tx, frontier.context, slot)) == 0
    assert frontier.slot(ticket.task_id).state == "due"
    assert frontier.slot(ticket.task_id).leased == 0
    assert frontier.store.read(keep.stranded) == []


def test_hand_back_is_no_death(frontier: Frontier) -> None:
    """What a worker hands back in order counts no death."""
    ticket = frontier.claimed(3)
    taken = frontier.take(ticket, 2)
    frontier.release(ticket, taken[:1])
    frontier.store.hand_on(ticket, next_in_s=None)
    assert deaths(frontier, ticket) == [0, 0, 0]


def test_renewed_slot_does_not_expire(frontier: Frontier) -> None:
    """A slot found expired and renewed before it was locked is left alone."""
    ticket = frontier.claimed(3)
    frontier.advance(21)
    (slot,) = frontier.store.read(lambda tx: expire.expired(tx, 10))
    assert ticket in frontier.store.renew([ticket])
    assert frontier.store.write(lambda tx: expire.expire(tx, frontier.context, slot)) is None
    assert len(frontier.take(ticket)) == 3


def test_suspect_alone_gets_the_death(frontier: Frontier) -> None:
    """When a worker dies with a suspect in flight its neighbours are innocent."""
    ticket = frontier.claimed(5)
    frontier.sql(
        "UPDATE spiderpool_request SET deaths = 1 WHERE id = (SELECT min(id) FROM spiderpool_request)"
    )
    assert len(frontier.take(ticket)) == 5
    frontier.advance(21)
    frontier.store.keep("k")
    assert deaths(frontier, ticket) == [2, 0, 0, 0, 0]


@pytest.mark.parametrize("suspect_first", [True, False])
def test_suspect_spares_the_other_slices_of_its_worker(frontier: Frontier, suspect_first: bool) -> None:
    """The slices of one process expire one by one; whichever comes first, only the suspect gets the death."""
    guilty, innocent, elsewhere = (frontier.claimed(2, worker=worker) for worker in ("w1", "w1", "w2"))
    frontier.sql(
        "UPDATE spiderpool_request SET deaths = 1 WHERE task_id = :t", t=frontier.key(guilty.task_id)
    )
    assert len(frontier.take(guilty)) == 1
    for ticket in (innocent, elsewhere):
        assert len(frontier.take(ticket)) == 2
    order = (guilty, innocent) if suspect_first else (innocent, guilty)
    frontier.sql(
        "UPDATE spiderpool_slot SET until = until - 10 WHERE task_id = :t", t=frontier.key(order[0].task_id)
    )
    frontier.advance(11)
    frontier.store.keep("k")
    assert frontier.slot(order[0].task_id).state == "sent"
    assert frontier.slot(order[1].task_id).state == "running"
    frontier.advance(10)
    frontier.store.keep("k")
    assert sorted(deaths(frontier, guilty)) == [1, 2]
    assert deaths(frontier, innocent) == [0, 0]
    assert deaths(frontier, elsewhere) == [1, 1]


def test_spared_slot_counts_again_in_its_next_life(frontier: Frontier) -> None:
    """Being spared holds for one life of the slot."""
    ticket = frontier.claimed(2)
    frontier.sql("UPDATE spiderpool_slot SET spared = TRUE")
    frontier.take(ticket)
    frontier.advance(21)
    (message,) = frontier.store.keep("k")
    assert deaths(frontier, ticket) == [0, 0]
    ticket = frontier.claim(message).ticket
    frontier.take(ticket)
    frontier.advance(21)
    frontier.store.keep("k")
    assert deaths(frontier, ticket) == [1, 1]


def test_three_deaths_set_a_request_aside(frontier: Frontier) -> None:
    """The request that killed three workers is failed(deaths), and the keeper says the task's verdict."""
    ticket = frontier.claimed(2)
    _, good = frontier.take(ticket)
    frontier.store.settle(ticket, [done(good)])
    for death in (1, 2, 3):
        assert frontier.status(ticket.task_id) == Status.RUNNING
        frontier.advance(21)
        messages = frontier.store.keep("k")
        if death < 3:
            ticket = frontier.claim(messages[0]).ticket
            (request,) = frontier.take(ticket)
            assert request.deaths == death
    assert messages == []
    assert frontier.status(ticket.task_id) == Status.FINISHED
    frontier.check(ticket.task_id)
    rows = frontier.sql("SELECT state, reason, message FROM spiderpool_request WHERE reason IS NOT NULL")
    assert rows == [(RequestState.FAILED, "deaths", "its worker process died with it 3 times")]
    assert frontier.store.numbers(ticket.task_id)["seeds_failed"] == 1


def test_ripe_retry_wakes_an_idle_slot(frontier: Frontier) -> None:
    """A retry that ripened while its task's slot was idle is queued, and a slot is due, in one transaction."""
    ticket = frontier.claimed(2)
    one, two = frontier.take(ticket)
    frontier.store.settle(ticket, [done(one), again(two, retry_after_s=30)])
    frontier.store.hand_on(ticket, next_in_s=None)
    frontier.sql("UPDATE spiderpool_slot SET state = 'idle', due_at = NULL")
    frontier.advance(31)
    (task_id,) = frontier.store.read(keep.ripe_tasks)
    frontier.store.write(lambda tx: keep.promote(tx, task_id))
    assert frontier.slot(task_id).state == "due"
    frontier.check(task_id)
    (message,) = frontier.store.keep("k")
    assert len(frontier.take(frontier.claim(message).ticket)) == 1


def test_ripe_retry_hastens_a_slot_that_is_due_later(frontier: Frontier) -> None:
    """A slot that is due for a later host is due now when a retry has ripened."""
    ticket = frontier.claimed(2)
    frontier.take(ticket)
    frontier.sql("UPDATE spiderpool_request SET state = 2, ready_at = 5, slot = NULL, epoch = NULL")
    frontier.sql("UPDATE spiderpool_slot SET leased = 0, state = 'due', due_at = 1e12")
    assert len(frontier.store.keep("k")) == 1


@pytest.mark.parametrize("verb", [Verb.PAUSE, Verb.STOP])
def test_retries_of_an_unwanted_task_go_on_resting(frontier: Frontier, verb: Verb) -> None:
    """The keeper wakes nothing of a task that is paused or stopped; its verdict it says."""
    ticket = frontier.claimed(1)
    frontier.store.settle(ticket, [again(*frontier.take(ticket))])
    frontier.verb(ticket.task_id, verb)
    frontier.advance(100)
    assert frontier.store.keep("k") == []
    assert frontier.slot(ticket.task_id).state == "idle"
    assert frontier.status(ticket.task_id) == (Status.PAUSED if verb is Verb.PAUSE else Status.STOPPED)
    assert frontier.value("SELECT state FROM spiderpool_request") == RequestState.WAITING


def test_keeper_says_what_nobody_said(frontier: Frontier) -> None:
    """A slice that died between its last settle and its hand-on leaves a complete task: the keeper finishes it."""
    ticket = frontier.claimed(1)
    frontier.store.settle(ticket, [done(*frontier.take(ticket))])
    frontier.store.keep("k")
    assert frontier.status(ticket.task_id) == Status.FINISHED


def test_time_limit_without_a_slice(frontier: Frontier) -> None:
    """A task past its time is finished by the keeper also when no slice runs."""
    ticket = frontier.claimed(3, max_time_s=60)
    frontier.store.hand_on(ticket, next_in_s=500)
    frontier.advance(61)
    frontier.store.keep("k")
    assert frontier.status(ticket.task_id) == Status.FINISHED
    frontier.store.keep("k")
    assert frontier.slot(ticket.task_id).state == "idle"


def test_two_keepers_at_once_do_no_harm(postgres_frontier: Frontier) -> None:
    """Every act is a compare-and-set: two passes side by side send each message once and count each death once."""
    f = postgres_frontier
    tickets = [f.claimed(4, worker=f"w{number}") for number in range(12)]
    for ticket in tickets:
        f.take(ticket)
    waiting = [f.start() for _ in range(5)]
    f.advance(31)
    other = f.another_store()
    futures = [f.thread(store.keep_house) for store in (f.store, other, f.store, other)]
    sent = [message.ticket for future in futures for message in future.result(60)]
    assert len(sent) == len(set(sent))
    assert {ticket.task_id for ticket in sent} == {ticket.task_id for ticket in tickets} | {
        message.ticket.task_id for message in waiting
    }
    assert len(sent) == 17
    for ticket in tickets:
        assert deaths(f, ticket) == [1, 1, 1, 1]
        f.check(ticket.task_id)


def test_one_keeper_is_elected(frontier: Frontier) -> None:
    """The office is one worker's for three passes; then another may take it."""
    frontier.start()
    frontier.advance(31)
    assert len(frontier.store.keep("one")) == 1
    frontier.advance(31)
    assert len(frontier.store.keep("one")) == 1
    frontier.advance(5)
    frontier.sql("UPDATE spiderpool_slot SET until = 0")
    assert frontier.store.keep("two") == []
    assert len(frontier.store.keep("one")) == 1
    frontier.advance(7)
    frontier.sql("UPDATE spiderpool_slot SET until = 0")
    assert len(frontier.store.keep("two")) == 1


def test_stranded_task_is_found(frontier: Frontier, caplog: pytest.LogCaptureFixture) -> None:
    """A task with work and no slot awake (a damaged database) gets a slot, and it is said aloud."""
    ticket = frontier.claimed(3)
    frontier.sql("UPDATE spiderpool_slot SET state = 'idle'")
    assert len(frontier.store.keep("k")) == 1
    assert str(ticket.task_id) in caplog.text


def test_old_rows_are_pruned(frontier: Frontier) -> None:
    """Old bus messages, beats and counters go; the last message's id is never given again."""
    for age_s in (9000, 400, 10):
        frontier.sql(
            "INSERT INTO spiderpool_bus_message (topic, name, data, at) VALUES ('event', 'x', '{}', :at)",
            at=frontier.store.now() - age_s,
        )
    minute = int(frontier.store.now() // 60)
    for age in (43_300, 0):
        frontier.sql("INSERT INTO spiderpool_counter VALUES (:minute, 'n', 1)", minute=minute - age)
    frontier.store.keep("k")
    assert frontier.value("SELECT count(*) FROM spiderpool_bus_message") == 1
    assert frontier.value("SELECT count(*) FROM spiderpool_counter") == 1
    frontier.advance(1000)
    frontier.store.keep("k")
    assert frontier.value("SELECT id FROM spiderpool_bus_message") == 3


def test_old_rows_are_pruned_once_a_minute(frontier: Frontier) -> None:
    """Passes within a minute of the last deletion delete nothing."""

    def old_counters() -> int:
        return int(frontier.value("SELECT count(*) FROM spiderpool_counter"))

    frontier.store.keep("k")
    frontier.sql("INSERT INTO spiderpool_counter VALUES (1, 'n', 1)")
    frontier.advance(50)
    frontier.store.keep("k")
    assert old_counters() == 1
    frontier.advance(12)
    frontier.store.keep("k")
    assert old_counters() == 0


def test_keeper_waits_for_nobody(postgres_frontier: Frontier) -> None:
    """A slot that another transaction holds just now is left for the next pass."""
    f = postgres_frontier
    held, free = f.claimed(links(2)), f.claimed(links(2))
    f.advance(21)
    with f.transaction() as tx:
        tx.all(keep._LOCK_SLOTS, task=held.task_id)
        messages = f.thread(f.store.keep, "k").result(10)
    assert [message.ticket.task_id for message in messages] == [free.task_id]
    assert [message.ticket.task_id for message in f.store.keep("k")] == [held.task_id]
