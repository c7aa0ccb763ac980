"""What leaves the process after a commit."""

from __future__ import annotations

import logging
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any
from uuid import uuid4

import pytest
from celery import Celery

from flask_spiderpool.bus import Bus, CommandMessage
from flask_spiderpool.bus.memory import MemoryBus, MemoryHub
from flask_spiderpool.crawl.request import Ticket
from flask_spiderpool.extension import outbox as module
from flask_spiderpool.extension.outbox import Outbox, publish
from flask_spiderpool.store import Message
from flask_spiderpool.terms import TASK_SLICE, Command
from tests.servers.redis import RedisServer

WAIT_S = 20.0


def _message(n: int = 0) -> Message:
    return Message(Ticket(uuid4(), n, 1), "spiderpool", 0)


def _celery(broker: str) -> Celery:
    return Celery("t", broker=broker, set_as_current=False, broker_connection_timeout=0.5)


Make = Callable[..., Outbox]


@pytest.fixture
def make() -> Iterator[Make]:
    """Make outboxes that are closed with the test."""
    made: list[Outbox] = []

    def outbox(
        celery: Celery | None = None, bus: Bus | None = None, task: Callable[[], Any] = lambda: None
    ) -> Outbox:
        theirs = celery or _celery("memory://")
        one = Outbox(lambda: theirs, lambda: bus, task)  # type: ignore[arg-type, return-value]
        made.append(one)
        return one

    yield outbox
    for one in made:
        one.close()


def test_a_message_names_the_task_and_carries_the_ticket() -> None:
    """What is published is the slice's name with (task, n, epoch) as JSON, on the message's queue."""
    celery = _celery("memory://")
    queue = f"q{uuid4().hex}"
    message = Message(Ticket(uuid4(), 3, 7), queue, 2)
    with celery.connection_for_write() as connection:
        publish(celery, celery.amqp.Producer(connection), message)
    with celery.connection_for_read() as connection:
        received = connection.SimpleQueue(queue).get(timeout=WAIT_S)
    assert received.headers["task"] == TASK_SLICE
    assert received.headers["ignore_result"] is True
    assert received.payload[0] == [str(message.ticket.task_id), 3, 7]
    assert received.content_type == "application/json"
    assert received.properties["priority"] == 2


def test_messages_leave_by_a_thread_in_their_order(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """The caller is not held up; order is kept."""
    sent: list[tuple[int, str]] = []
    done = threading.Event()

    def keep(celery: Any, producer: Any, message: Message) -> None:
        sent.append((message.ticket.n, threading.current_thread().name))
        if message.ticket.n == 2:
            done.set()

    monkeypatch.setattr(module, "publish", keep)
    make().send([_message(0), _message(1), _message(2)])
    assert done.wait(WAIT_S)
    assert sent == [(n, "spiderpool-broker") for n in range(3)]


def test_a_broker_that_hangs_costs_the_caller_nothing(make: Make) -> None:
    """A server that takes connections and never answers holds up neither send nor the bus."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        hub = MemoryHub()
        outbox = make(_celery(f"amqp://127.0.0.1:{port}//"), MemoryBus(hub))
        listener = MemoryBus(hub)
        list(listener.commands(0))
        outbox.send([_message()])
        outbox.tell(CommandMessage(Command.DESIRED, {"desired": "stop"}))
        assert next(listener.commands(WAIT_S)).data == {"desired": "stop"}


def test_a_broker_that_is_away_is_logged_once(make: Make, caplog: pytest.LogCaptureFixture) -> None:
    """Every message is tried; only the first failure of a row is told, and no password with it."""
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    celery = _celery(f"redis://:secret@127.0.0.1:{port}/0")
    with caplog.at_level(logging.WARNING, logger=module.__name__):
        outbox = make(celery)
        outbox.send([_message(), _message(), _message()])
        outbox.close()
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "the broker cannot be reached" in caplog.text
    assert "secret" not in caplog.text


def test_the_end_of_a_row_of_failures_is_told(
    make: Make, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Whoever reads the log learns that the broker answers again."""
    answers = iter([OSError("refused"), OSError("refused"), None])

    def flaky(celery: Any, producer: Any, message: Message) -> None:
        error = next(answers)
        if error is not None:
            raise error

    monkeypatch.setattr(module, "publish", flaky)
    with caplog.at_level(logging.INFO, logger=module.__name__):
        outbox = make()
        outbox.send([_message(), _message(), _message()])
        outbox.close()
    assert [record.getMessage().split(" (")[0] for record in caplog.records] == [
        "the broker cannot be reached",
        "the broker answers again",
    ]


def test_too_many_waiting_are_dropped(
    make: Make, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Memory is bounded while the broker hangs: the keeper sends again what was dropped."""
    monkeypatch.setattr(module, "MAX_WAITING", 2)
    monkeypatch.setattr(module, "CLOSE_WAIT_S", 0.01)
    entered, release, sent = threading.Event(), threading.Event(), []

    def hang(celery: Any, producer: Any, message: Message) -> None:
        entered.set()
        release.wait(WAIT_S)
        sent.append(message.ticket.n)

    monkeypatch.setattr(module, "publish", hang)
    outbox = make()
    outbox.send([_message(0)])
    assert entered.wait(WAIT_S)
    with caplog.at_level(logging.WARNING, logger=module.__name__):
        outbox.send([_message(n) for n in range(1, 6)])
    assert caplog.text.count("are dropped until it answers") == 1
    release.set()
    monkeypatch.setattr(module, "CLOSE_WAIT_S", WAIT_S)
    outbox.close()
    assert sent == [0, 1, 2]


def test_nothing_that_fails_reaches_the_caller(make: Make, caplog: pytest.LogCaptureFixture) -> None:
    """A Celery app that cannot be made is logged, not raised after the host's commit."""

    def broken() -> Any:
        raise OSError("no instance folder")

    with caplog.at_level(logging.ERROR):
        make(task=broken).send([_message()])
    assert "could not be sent" in caplog.text


def test_closing_waits_for_what_is_on_its_way(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """A script that starts a task and ends has sent its message; a closed outbox can be used again."""
    sent: list[int] = []
    monkeypatch.setattr(module, "publish", lambda celery, producer, message: sent.append(message.ticket.n))
    outbox = make()
    outbox.send([_message(n) for n in range(50)])
    outbox.close()
    assert sent == list(range(50))
    outbox.close()
    outbox.send([_message(50)])
    outbox.close()
    assert sent[-1] == 50


def _waiting(celery: Celery, queue: str) -> int:
    """How many messages wait in a queue."""
    with celery.connection_for_read() as connection:
        return int(connection.default_channel.queue_declare(queue, passive=False).message_count)


def _until(true: Callable[[], bool]) -> None:
    """Wait for what a thread does."""
    deadline = time.monotonic() + WAIT_S
    while not true():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.01)


def test_a_stale_connection_costs_no_message(make: Make, own_redis: RedisServer) -> None:
    """After a restart of the broker the first message finds its connection dead, and goes on a new one."""
    celery = _celery(own_redis.url)
    outbox, queue = make(celery), f"q{uuid4().hex}"
    outbox.send([Message(Ticket(uuid4(), 0, 1), queue, 0)])
    _until(lambda: _waiting(celery, queue) == 1)
    own_redis.kill()
    own_redis.start()
    outbox.send([Message(Ticket(uuid4(), 1, 1), queue, 0)])
    _until(lambda: _waiting(celery, queue) >= 1)


def test_a_forked_child_has_a_connection_of_its_own(make: Make, redis_url: str) -> None:
    """Parent and child publish side by side, and every message arrives whole."""
    celery = _celery(redis_url)
    queue = f"q{uuid4().hex}"

    def send(outbox: Outbox, *numbers: int) -> None:
        outbox.send([Message(Ticket(uuid4(), n, 1), queue, 0) for n in numbers])
        outbox.close()

    outbox = make(celery)
    send(outbox, 1)
    outbox.send([Message(Ticket(uuid4(), 2, 1), queue, 0)])
    _until(lambda: _waiting(celery, queue) == 2)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            send(outbox, *range(3, 50))
            code = 0
        finally:
            os._exit(code)
    send(outbox, *range(50, 100))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    received = []
    with celery.connection_for_read() as connection:
        box = connection.SimpleQueue(queue)
        for _ in range(99):
            message = box.get(timeout=WAIT_S)
            message.ack()
            received.append(message.payload[0][1])
    assert sorted(received) == list(range(1, 100))


def test_a_forked_child_does_not_wait_for_its_parents_threads() -> None:
    """At its end a child leaves an inherited thread's jobs alone, even if its lock was held at the fork."""
    thread = module._JobThread("broker")
    with thread._jobs.mutex:
        child = os.fork()
        if child == 0:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(10)  # ends a child that hangs
            thread.close(5.0)
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    thread.close(WAIT_S)
    assert thread._ended.is_set()


# -- eager mode


class _Task:
    """A slice task that sends more messages while it runs, as a real one does."""

    def __init__(self, outbox: Callable[[], Outbox]) -> None:
        self.ran: list[int] = []
        self.depth = self.deepest = 0
        self._outbox = outbox

    def apply(self, args: tuple[str, int, int], throw: bool) -> Any:
        """Run as Celery does."""
        assert throw is False
        self.depth += 1
        self.deepest = max(self.deepest, self.depth)
        self.ran.append(args[1])
        if args[1] < 3:
            self._outbox().send([_message(args[1] + 1)])
        self.depth -= 1
        return _Result()


class _Result:
    result = traceback = None

    def failed(self) -> bool:
        """It went well."""
        return False


def test_eager_mode_runs_inline_in_a_loop(make: Make) -> None:
    """The message, and those that it brings forth, have run when ``send`` returns; nothing recurses."""
    outboxes: list[Outbox] = []
    task = _Task(lambda: outboxes[0])
    outboxes.append(make(task=lambda: task))
    outboxes[0].send([_message(0)])
    assert task.ran == [0, 1, 2, 3]
    assert task.deepest == 1


def test_a_slice_that_fails_in_eager_mode_is_logged(make: Make, caplog: pytest.LogCaptureFixture) -> None:
    """The host's commit does not raise for it."""
    celery = Celery("t", set_as_current=False)

    @celery.task(name="broken", shared=False)
    def broken(task_id: str, n: int, epoch: int) -> None:
        raise ZeroDivisionError

    with caplog.at_level(logging.ERROR, logger=module.__name__):
        make(task=lambda: broken).send([_message()])
    assert "a slice failed in eager mode" in caplog.text
