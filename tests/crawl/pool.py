"""A whole engine over a real store, for tests: one process, no broker."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.orm import Session

from flask_spiderpool import control
from flask_spiderpool.bus.base import CommandMessage
from flask_spiderpool.config import settings_from
from flask_spiderpool.crawl.request import Ticket
from flask_spiderpool.crawl.spider import SpiderRegistry
from flask_spiderpool.limiter.memory import MemoryLimiter
from flask_spiderpool.models import Base, History, Task
from flask_spiderpool.store import Message, Store
from flask_spiderpool.tasks.pump import work_through
from flask_spiderpool.tasks.runtime import Runtime, RuntimeParts
from flask_spiderpool.terms import Status, Verb


class EnginePool:
    """What ``control`` is given, and what runs the slices that it asks for."""

    def __init__(self, url: str, **config: Any) -> None:
        self.settings = settings_from({f"SPIDERPOOL_{key.upper()}": value for key, value in config.items()})
        self.registry = SpiderRegistry()
        self.store = Store.open(url, self.settings)
        self.store.create_tables()
        self.engine = sa.create_engine(url)
        self.messages: list[Message] = []
        self.runtime = Runtime(
            RuntimeParts(
                settings=self.settings,
                registry=self.registry,
                store=self.store,
                limiter=MemoryLimiter(),
                send=self.send,
                enter_app=nullcontext,
            ),
            threads=4,
            keeps=False,
        )
        self.runtime.start()

    def send(self, messages: Sequence[Message]) -> None:
        """Keep messages until :meth:`work` runs their slices."""
        self.messages.extend(messages)

    def tell(self, command: CommandMessage) -> None:
        """Bring a command to the slices as the bus would."""
        for guard in self.runtime.renewals.of_task(UUID(command.data["task_id"])):
            guard.want(command.data["desired"])

    def start(self, spider: str, *urls: str, **params: Any) -> UUID:
        """Start a task and commit."""
        with Session(self.engine) as session:
            task = control.start(session, self, spider, start_urls=list(urls), **params)
            task_id = task.id
            session.commit()
        return task_id

    def change(self, verb: Verb, task_id: UUID) -> None:
        """Pause, resume, stop or retry, and commit."""
        with Session(self.engine) as session:
            if verb is Verb.RETRY:
                control.retry(session, self, task_id)
            else:
                control.change(session, self, verb, task_id)
            session.commit()

    def work(self, task_id: UUID) -> Status:
        """Run slices until the task rests."""
        messages, self.messages = self.messages, []
        return work_through(self.runtime, task_id, messages, wait=threading.Event().wait, pause_s=0.02)

    def ticket(self) -> Ticket:
        """Return the only message's ticket."""
        (message,) = self.messages
        return message.ticket

    def rows(self, model: type[Base], *where: Any) -> list[Any]:
        """Return the rows of a table."""
        with Session(self.engine, expire_on_commit=False) as session:
            return list(session.scalars(sa.select(model).where(*where)))

    def task(self, task_id: UUID) -> Task:
        """Return the task as it is now."""
        (task,) = self.rows(Task, Task.id == task_id)
        return task  # type: ignore[no-any-return]

    def statuses(self, task_id: UUID) -> list[str]:
        """Return what the task has been, in order."""
        return [row.to_status for row in self.rows(History, History.task_id == task_id)]

    def close(self) -> None:
        """End all threads."""
        self.runtime.close(grace_s=0.0)
        self.store.close()
        self.engine.dispose()
