"""The default broker: what is seen is whole, and what is gone is made anew."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from kombu import Connection, Exchange, Queue

from flask_spiderpool.extension.folder_broker import make_folders
from tests.extension.folder_traffic import connect

ROOT = Path(__file__).parents[2]
QUEUE = Queue("q", Exchange("q", type="direct"), routing_key="q")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A broker's folder."""
    root = tmp_path / "broker"
    make_folders(root / "queue", root / "control")
    return root


def _put(connection: Connection, *payloads: Any, queue: Queue = QUEUE) -> None:
    with connection.channel() as channel:
        producer = connection.Producer(channel)
        for payload in payloads:
            producer.publish(payload, exchange=queue.exchange, routing_key=queue.routing_key, declare=[queue])


def _take_all(connection: Connection, queue: Queue = QUEUE) -> list[Any]:
    with connection.channel() as channel:
        bound = queue(channel)
        found = []
        while (message := bound.get()) is not None:
            message.ack()
            found.append(message.payload)
        return found


def _messages(folder: Path) -> list[Path]:
    return sorted((folder / "queue").iterdir())


def test_many_processes_lose_and_double_nothing(folder: Path) -> None:
    """Two processes put and two take at once: each message is taken once, and no process falls over."""
    n = 80
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.extension.folder_traffic", act, str(folder), f"p{i}", str(n)],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            text=True,
        )
        for act in ("take", "put")
        for i in range(2)
    ]
    taken = []
    for process in processes:
        out, _ = process.communicate(timeout=120)
        assert process.returncode == 0
        taken += out.split()
    assert sorted(taken) == sorted(f"p{i}-{k}" for i in range(2) for k in range(n))
    assert _messages(folder) == []


def test_a_file_appears_whole(folder: Path) -> None:
    """A reader that looks as fast as it can sees no message that is still being written."""
    done = threading.Event()
    seen: list[bytes] = []

    def look() -> None:
        while not done.is_set():
            for path in (folder / "queue").iterdir():
                if path.suffix == ".msg":
                    seen.append(path.read_bytes())

    reader = threading.Thread(target=look)
    reader.start()
    with connect(folder) as connection:
        _put(connection, *({"n": i, "ballast": "x" * 100_000} for i in range(100)))
    done.set()
    reader.join()
    assert seen
    for text in seen:
        json.loads(text)


def test_messages_come_in_their_order(folder: Path) -> None:
    """First in, first out; other queues' messages stay."""
    other = Queue("other", Exchange("other", type="direct"), routing_key="other")
    with connect(folder) as connection:
        _put(connection, *range(12))
        _put(connection, "theirs", queue=other)
        assert _take_all(connection) == list(range(12))
        assert _take_all(connection, other) == ["theirs"]


@pytest.mark.parametrize(
    "text", [b"", b"{", b"[]", b"\xff\xfe", b'{"body": ""}', b'{"body": "", "properties": 7}', b"[" * 100_000]
)
def test_a_message_that_cannot_be_read_is_dropped(
    folder: Path, text: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """Its reader says so and takes the next."""
    (folder / "queue" / "0_bad.q.msg").write_bytes(text)
    with connect(folder) as connection:
        _put(connection, "good")
        assert _take_all(connection) == ["good"]
    assert "cannot be read" in caplog.text
    assert _messages(folder) == []


def test_a_deleted_folder_is_made_anew(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Neither side falls over, and what is put afterwards arrives, though both had bound the queue before."""
    with connect(folder) as putting, connect(folder) as taking:
        _put(putting, 1)
        assert _take_all(taking) == [1]
        shutil.rmtree(folder)
        assert _take_all(taking) == []
        assert "made anew" in caplog.text
        _put(putting, 2)
        assert _take_all(taking) == [2]
        shutil.rmtree(folder)
        _put(putting, 3)
        assert _take_all(taking) == [3]


def test_a_broadcast_reaches_whoever_was_bound_before_the_folder_was_deleted(folder: Path) -> None:
    """The taker's own bindings are in the folder that it makes anew: other processes know them from there only."""
    fanout = Queue("mine", Exchange("all", type="fanout"))
    with connect(folder) as taking:
        assert _take_all(taking, fanout) == []
        with taking.channel() as channel:
            fanout(channel).declare()
        shutil.rmtree(folder)
        assert _take_all(taking, fanout) == []
        assert json.loads((folder / "control" / "all.exchange").read_text()) == [["", "", "mine"]]


def test_an_empty_table_of_bindings_is_written_anew(folder: Path) -> None:
    """Half a table, left by a full disk, must not swallow every message."""
    with connect(folder) as connection:
        _put(connection, 1)
        (folder / "control" / "q.exchange").write_bytes(b"")
        _put(connection, 2)
        assert _take_all(connection) == [1, 2]
    assert json.loads((folder / "control" / "q.exchange").read_text()) == [["q", "", "q"]]


def test_threads_bind_at_once(folder: Path) -> None:
    """No binding gets lost when many are made at the same moment."""
    names = [f"q{i}" for i in range(12)]
    exchange = Exchange("shared", type="direct")

    def bind(name: str) -> None:
        with connect(folder) as connection, connection.channel() as channel:
            Queue(name, exchange, routing_key=name)(channel).declare()

    threads = [threading.Thread(target=bind, args=(name,)) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    rows = json.loads((folder / "control" / "shared.exchange").read_text())
    assert sorted(queue for _, _, queue in rows) == sorted(names)


def test_a_queue_that_is_deleted_gets_nothing_more(folder: Path) -> None:
    """Its messages go, and its binding."""
    with connect(folder) as connection:
        _put(connection, 1)
        with connection.channel() as channel:
            QUEUE(channel).delete()
        assert _messages(folder) == []
        assert json.loads((folder / "control" / "q.exchange").read_text()) == []


def test_two_apps_in_one_process_keep_apart(tmp_path: Path) -> None:
    """Each folder has its own bindings: what one app has bound is not bound for the other."""
    for name in ("one", "two"):
        folder = tmp_path / name
        make_folders(folder / "queue", folder / "control")
        with connect(folder) as connection:
            _put(connection, name)
            assert _take_all(connection) == [name]
        assert (folder / "control" / "q.exchange").exists()


def test_a_folder_without_rights_is_a_broker_that_is_away(folder: Path) -> None:
    """Its error is one of those at which a worker tries again."""
    with connect(folder) as connection:
        _put(connection, 1)
        shutil.rmtree(folder)
        folder.write_text("in the way")
        with pytest.raises(connection.connection_errors):
            _take_all(connection)
