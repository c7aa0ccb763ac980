"""Which due slot is sent next, and how many at a time."""

from __future__ import annotations

from collections import Counter

import pytest

from flask_spiderpool.config import Settings
from flask_spiderpool.store import Message, dispatch
from flask_spiderpool.terms import Verb
from tests.store.frontiers import Frontier


@pytest.fixture
def settings() -> Settings:
    """Return settings of a worker with five threads: ten slots are sent at most."""
    return Settings(worker_threads=5)


def due(frontier: Frontier, spider: str, count: int, **more: int) -> list[object]:
    """Start ``count`` tasks of a spider whose slots are due."""
    ids = []
    for _ in range(count):
        message = frontier.start(spider=spider, **more)
        ids.append(message.ticket.task_id)
        frontier.sql("UPDATE spiderpool_slot SET state = 'due', due_at = 0 WHERE state = 'sent'")
    return ids


def share(frontier: Frontier, spider: str, **columns: float) -> None:
    """Give a spider's row a weight, or what it was served."""
    given = {"weight": 1.0, "served": 0.0} | columns
    frontier.sql("DELETE FROM spiderpool_spider WHERE name = :name", name=spider)
    frontier.sql(
        "INSERT INTO spiderpool_spider (name, kind, enabled, weight, served, created_at)"
        " VALUES (:name, 'code', TRUE, :weight, :served, '2026-01-01 00:00:00')",
        name=spider,
        **given,
    )


def spiders(frontier: Frontier, messages: list[Message]) -> list[str]:
    """Return the spiders of messages, in order."""
    return [
        frontier.value(
            "SELECT spider FROM spiderpool_task WHERE id = :t", t=frontier.key(message.ticket.task_id)
        )
        for message in messages
    ]


def settled(frontier: Frontier, messages: list[Message]) -> None:
    """Claim messages and hand them on, so that they are due again."""
    for message in messages:
        frontier.claim(message)
    frontier.sql("UPDATE spiderpool_slot SET state = 'due', due_at = 0 WHERE state = 'running'")


def test_at_most_twice_the_threads_are_sent(frontier: Frontier) -> None:
    """Ten at most with five threads; each claim makes room for one."""
    due(frontier, "one", 14)
    messages = frontier.store.dispatch(100)
    assert len(messages) == 10
    assert frontier.store.dispatch(100) == []
    frontier.claim(messages[0])
    assert len(frontier.store.dispatch(100)) == 1


def test_room_grows_with_the_cluster(frontier: Frontier) -> None:
    """The threads of all workers that beat lately count; those of silent ones do not."""
    due(frontier, "one", 30)
    now = frontier.store.now()
    for name, seen_at in (("a", now), ("b", now - 5), ("dead", now - 100)):
        frontier.sql("INSERT INTO spiderpool_worker VALUES (:name, :at, 6, 0, '{}')", name=name, at=seen_at)
    assert len(frontier.store.dispatch(100)) == 24


def test_priority_goes_first(frontier: Frontier) -> None:
    """A smaller priority is sent before any larger one."""
    due(frontier, "low", 3, priority=5)
    due(frontier, "high", 3, priority=-5)
    assert spiders(frontier, frontier.store.dispatch(4)) == ["high", "high", "high", "low"]


def test_one_spider_with_many_tasks_cannot_take_all(frontier: Frontier) -> None:
    """Slots are shared by spider, not by task."""
    due(frontier, "crowd", 30)
    due(frontier, "small", 2)
    due(frontier, "other", 5)
    counts = Counter(spiders(frontier, frontier.store.dispatch(8)))
    assert counts == {"crowd": 3, "small": 2, "other": 3}


def test_shares_over_many_rounds(frontier: Frontier) -> None:
    """A spider of weight 3 is sent three times as often as one of weight 1."""
    due(frontier, "heavy", 6)
    due(frontier, "light", 6)
    share(frontier, "heavy", weight=3)
    counts: Counter[str] = Counter()
    for _ in range(20):
        messages = frontier.store.dispatch(2)
        counts.update(spiders(frontier, messages))
        settled(frontier, messages)
    assert counts["heavy"] == pytest.approx(30, abs=2)


def test_spider_that_rested_does_not_catch_up(frontier: Frontier) -> None:
    """A spider that was idle long begins where the least served of the working ones stands."""
    due(frontier, "worker", 8)
    due(frontier, "sleeper", 8)
    share(frontier, "worker", served=1000)
    settled(frontier, [])
    first = frontier.store.dispatch(1)
    assert spiders(frontier, first) == ["sleeper"]
    frontier.sql("UPDATE spiderpool_slot SET state = 'due', due_at = 0 WHERE state = 'sent'")
    share(frontier, "sleeper")
    # The worker is at work again when the sleeper comes back.
    frontier.sql(
        "UPDATE spiderpool_slot SET state = 'running' WHERE task_id IN"
        " (SELECT id FROM spiderpool_task WHERE spider = 'worker' ORDER BY id LIMIT 4)"
    )
    counts = Counter(spiders(frontier, frontier.store.dispatch(8)))
    assert counts == {"worker": 4, "sleeper": 4}


def test_only_what_is_due_and_wanted(frontier: Frontier) -> None:
    """A slot that is due later, or whose task is paused, is not sent; its spider loses nothing by it."""
    later, paused, now = due(frontier, "one", 3)
    frontier.sql(
        "UPDATE spiderpool_slot SET due_at = :at WHERE task_id = :t",
        at=frontier.store.now() + 50,
        t=frontier.key(later),  # type: ignore[arg-type]
    )
    frontier.verb(paused, Verb.PAUSE)  # type: ignore[arg-type]
    frontier.sql("UPDATE spiderpool_slot SET state = 'due', due_at = 0 WHERE state = 'idle'")
    assert [message.ticket.task_id for message in frontier.store.dispatch(10)] == [now]
    frontier.store.keep("k")
    assert frontier.slot(paused).state == "idle"  # type: ignore[arg-type]


def test_two_dispatches_at_once(postgres_frontier: Frontier) -> None:
    """A dispatch that comes while another is under way waits for it, and keeps the cap: it sends nothing more."""
    f = postgres_frontier
    due(f, "one", 20)
    with f.transaction() as tx:
        assert len(dispatch.dispatch(tx, f.store.settings, 100)) == 10
        other = f.waiting(f.another_store().dispatch, 100)
    assert other.result(10) == []
    assert f.value("SELECT count(*) FROM spiderpool_slot WHERE state = 'sent'") == 10
