from __future__ import annotations

import logging
from uuid import UUID, uuid4

import pytest

from flask_spiderpool.bus.base import CommandMessage
from flask_spiderpool.crawl.guard import LeaseGuard
from flask_spiderpool.crawl.request import Ticket
from flask_spiderpool.tasks.commands import CommandListener
from flask_spiderpool.terms import Command


class Renewals:
    """The guards of one process, and how often it was told to look again."""

    def __init__(self, *guards: LeaseGuard) -> None:
        self.guards = guards
        self.looks = 0

    def of_task(self, task_id: UUID) -> list[LeaseGuard]:
        return [guard for guard in self.guards if guard.ticket.task_id == task_id]

    def look_again(self) -> None:
        self.looks += 1


def guard_of(task_id: UUID, desired: str = "run") -> LeaseGuard:
    ticket = Ticket(task_id, 0, 1)
    return LeaseGuard(ticket, asked_at=0.0, lease_s=20.0, margin_s=1.0, desired=desired, clock=lambda: 0.0)


def desire(task_id: UUID, desired: str) -> CommandMessage:
    return CommandMessage(Command.DESIRED, {"task_id": str(task_id), "desired": desired})


@pytest.mark.parametrize("desired", ["pause", "stop"])
def test_pause_and_stop_are_believed_at_once(desired: str):
    """The slice stops sending before the database is asked; the renewal then brings the truth."""
    mine, other = guard_of(uuid4()), guard_of(uuid4())
    renewals = Renewals(mine, other)
    CommandListener(None, renewals).take(desire(mine.ticket.task_id, desired))
    assert not mine.may_send()
    assert other.may_send()
    assert renewals.looks == 1


def test_a_late_resume_makes_nothing_send():
    """Only the database says ``run``: a hint that was overtaken by a stop must not wake a slice."""
    guard = guard_of(uuid4(), desired="stop")
    renewals = Renewals(guard)
    CommandListener(None, renewals).take(desire(guard.ticket.task_id, "run"))
    assert guard.desired == "stop"
    assert renewals.looks == 1


def test_a_task_that_does_not_run_here_costs_nothing():
    """Every process hears every command; only those concerned ask the database."""
    renewals = Renewals(guard_of(uuid4()))
    CommandListener(None, renewals).take(desire(uuid4(), "stop"))
    assert renewals.looks == 0


@pytest.mark.parametrize("data", [{}, {"task_id": "x", "desired": "stop"}, {"task_id": None, "desired": 1}])
def test_nonsense_is_dropped(data: dict[str, object], caplog: pytest.LogCaptureFixture):
    """Whoever can reach the bus must not be able to end the listening thread."""
    with caplog.at_level(logging.WARNING):
        CommandListener(None, Renewals()).take(CommandMessage(Command.DESIRED, data))
    assert "makes no sense" in caplog.text
