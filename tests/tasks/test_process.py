from __future__ import annotations

import os
import threading

from flask_spiderpool.tasks.process import ProcessRuntime


class FakeRuntime:
    def __init__(self) -> None:
        self.drained = False
        self.closed_with: list[float | None] = []

    def drain(self) -> None:
        self.drained = True

    def close(self, grace_s: float | None = None) -> None:
        self.closed_with.append(grace_s)


def test_one_runtime_a_process_however_many_threads_ask():
    """64 slice threads that begin together make one loop, one connection pool."""
    made: list[FakeRuntime] = []

    def build() -> FakeRuntime:
        made.append(FakeRuntime())
        return made[-1]

    process = ProcessRuntime(build)
    threads = [threading.Thread(target=process.get) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 1


def test_closing_forgets_and_passes_the_grace_on():
    """After a close the next need makes a new runtime."""
    process = ProcessRuntime(FakeRuntime)
    process.drain()  # nothing there: nothing happens
    process.close()
    first = process.get()
    process.drain()
    process.close(grace_s=0.0)
    assert first.drained
    assert first.closed_with == [0.0]
    assert process.get() is not first


def test_after_its_worker_no_message_makes_a_runtime():
    """What the pool still holds when the worker ends must not start loop, keeper and crawl again."""
    process = ProcessRuntime(FakeRuntime)
    first = process.get_unless_ended()
    process.end()
    assert first.closed_with == [None]
    assert process.get_unless_ended() is None
    process.begin()
    assert process.get_unless_ended() is not None


def test_a_forked_child_makes_its_own():
    """The parent's threads do not exist in the child, so neither does its runtime."""
    process = ProcessRuntime(FakeRuntime)
    parents = process.get()
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        process.close()  # not the parent's
        ok = not parents.closed_with and process.get() is not parents
        os.write(write, b"1" if ok else b"0")
        os._exit(0)
    os.waitpid(pid, 0)
    assert os.read(read, 1) == b"1"
    os.close(read)
    os.close(write)
