"""Text, Markdown and metadata of pages, through one killable child process per worker process.

trafilatura holds the interpreter in C and a page can keep it for a minute, so it runs in a child
(:mod:`~flask_spiderpool.crawl.extract_child`) that is fed by one thread. A page that takes longer than
``timeout_s``, kills the child or finds its memory limit gets the plain text of its tags instead, and says so in
``meta["extraction"]``; the pages behind it are sent to a new child. Pages are never lost.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import logging
import math
import os
import selectors
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Final

from flask_spiderpool.crawl.extract_child import HELLO_ID, extract_document, language_of, storable
from flask_spiderpool.crawl.extract_pipe import Answer, ChildProcess
from flask_spiderpool.crawl.plain_text import plain_text, title_of, wild_markup
from flask_spiderpool.errors import Unavailable

log = logging.getLogger(__name__)

META_KEYS: Final = ("author", "published", "language", "description", "sitename", "tags", "extraction")
_START_TIMEOUT_S = 60.0  #: importing trafilatura takes 0.4 s, on a machine that thrashes much longer
_IN_FLIGHT = 4  #: one is worked on, the next ones lie ready in the pipe: the child never idles
_MAX_BACKOFF_S = 60.0


@dataclass(frozen=True, slots=True)
class Extracted:
    """What a page says, without its furniture."""

    title: str | None
    text: str | None  #: ``None``: no text was found
    markdown: str | None
    #: :data:`META_KEYS`; what the page does not say is ``None`` (``tags``: an empty list). ``extraction`` is
    #: ``trafilatura``, or ``fallback:<why>`` with why one of ``nothing`` (trafilatura found nothing), ``timeout``,
    #: ``crashed``, ``memory``, ``nesting``, ``error``, ``attributes``, ``too_large``, ``unavailable``.
    meta: dict[str, Any] = field(default_factory=dict)


def _meta(values: dict[str, Any], extraction: str) -> dict[str, Any]:
    return {
        **{key: values.get(key) for key in META_KEYS},
        "tags": values.get("tags") or [],
        "extraction": extraction,
    }


def fallback(html: str, why: str, meta: dict[str, Any] | None = None) -> Extracted:
    """Return the visible text of a page, in time linear in its length whatever it holds."""
    html = storable(html)
    text = plain_text(html)
    return Extracted(
        title=title_of(html),
        text=text,
        markdown=text,
        meta=_meta({"language": language_of(html), **(meta or {})}, f"fallback:{why}"),
    )


def _from_answer(payload: dict[str, Any], html: str) -> Extracted:
    if "error" in payload:
        why = payload["error"]
        return fallback(html, why if why in ("memory", "nesting") else "error")
    if payload["text"] is None:
        return fallback(html, "nothing", payload["meta"])
    return Extracted(
        payload["title"], payload["text"], payload["markdown"], _meta(payload["meta"], "trafilatura")
    )


def extract_inline(html: str, url: str | None = None) -> Extracted:
    """Extract in this process, unguarded: for trying a spider out on a page of your own, not for crawling."""
    if why := wild_markup(html):
        return fallback(html, why)
    return _from_answer(extract_document(html, url), html)


@dataclass(slots=True)
class _Job:
    id: int
    url: str
    html: str
    future: Future[Extracted]


class Extractor:
    """The worker process's way to the extraction child.

    Thread-safe, and usable after a fork (the child and its thread stay with the parent; the forked process starts
    its own). Nothing is started before the first page. ``close`` ends the child; so does the end of the process,
    of whatever kind.

    :param timeout_s: how long one page may take in the child.
    :param memory_limit_bytes: address space of the child; beyond half of it resident it is replaced.
    :param recycle_after: pages after which the child is replaced (costs 0.4 s).
    :param max_html_chars: longer pages are not given to the child.
    :param idle_s: a child without work for so long is ended, and its 100 MB with it.
    """

    def __init__(
        self,
        timeout_s: float = 10.0,
        memory_limit_bytes: int = 1024 * 1024 * 1024,
        recycle_after: int = 20_000,
        *,
        max_html_chars: int = 8 * 1024 * 1024,
        idle_s: float = 300.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.timeout_s = timeout_s
        self.memory_limit_bytes = memory_limit_bytes
        self.recycle_after = recycle_after
        self.max_html_chars = max_html_chars
        self.idle_s = idle_s
        self._clock = clock
        self._begin()
        _living.add(self)

    def _begin(self) -> None:
        """Set the state of a process that has started nothing yet."""
        self._lock = threading.Lock()
        self._waiting: deque[_Job] = deque()
        self._flight: deque[_Job] = deque()
        self._next_id = HELLO_ID + 1
        self._thread: threading.Thread | None = None
        self._closing = False
        self._child: ChildProcess | None = None
        self._ready = False
        self._head_since = 0.0  #: when the child turned to the page that it works on (or to its start)
        self._idle_since = 0.0
        self._failed_starts = 0
        self._next_start_at = 0.0
        self._selector: selectors.BaseSelector | None = None
        self._wake: tuple[int, int] | None = None

    @property
    def child_pid(self) -> int | None:
        """The process id of the running child, for metrics and tests."""
        child = self._child
        return child.pid if child else None

    def extract(self, html: str, url: str = "") -> Extracted:
        """Extract a page and wait for it. Never fails on account of the page.

        :raises Unavailable: the extractor is closed.
        """
        return self.submit(html, url).result()

    async def aextract(self, html: str, url: str = "") -> Extracted:
        """As :meth:`extract`, from an event loop; a cancelled call costs the child nothing if still waiting."""
        return await asyncio.wrap_future(self.submit(html, url))

    def submit(self, html: str, url: str = "") -> Future[Extracted]:
        """Hand in a page; the future's result comes from the child, in the order of submission."""
        future: Future[Extracted] = Future()
        with self._lock:
            if self._closing:
                raise Unavailable("the extractor is closed")
            self._waiting.append(_Job(self._next_id, url, html, future))
            self._next_id += 1
            if self._thread is None:
                self._wake = os.pipe()
                for fd in self._wake:
                    os.set_blocking(fd, False)
                self._thread = threading.Thread(target=self._run, name="spiderpool-extract", daemon=True)
                self._thread.start()
            self._poke()
        return future

    def close(self) -> None:
        """End the child and the thread; pages still waiting raise :class:`Unavailable`. Safe to repeat."""
        with self._lock:
            self._closing = True
            thread = self._thread
            self._poke()
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    def _poke(self) -> None:
        if self._wake is not None:
            with contextlib.suppress(OSError):
                os.write(self._wake[1], b"\0")

    # From here on everything runs in the thread that owns the child.

    def _run(self) -> None:
        assert self._wake is not None
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._wake[0], selectors.EVENT_READ)
        try:
            while not self._closing:
                self._feed()
                for key, _ in self._selector.select(self._pause_s()):
                    if key.fd == self._wake[0]:
                        with contextlib.suppress(BlockingIOError):
                            os.read(self._wake[0], 65536)
                self._turn()
        finally:
            self._finish()

    def _finish(self) -> None:
        self._drop_child()
        with self._lock:
            self._closing = True
            jobs = [*self._flight, *self._waiting]
            self._flight.clear()
            self._waiting.clear()
            assert self._selector is not None
            assert self._wake is not None
            self._selector.close()
            for fd in self._wake:
                os.close(fd)
            self._wake = None
        for job in jobs:
            if job.future.running() or job.future.set_running_or_notify_cancel():
                job.future.set_exception(Unavailable("the extractor is closed"))

    def _feed(self) -> None:
        """Start a child if there is work for one, and keep its pipe filled."""
        while len(self._flight) < _IN_FLIGHT and self._waiting:
            job = self._waiting[0]
            if not job.future.running() and not job.future.set_running_or_notify_cancel():
                self._waiting.popleft()
                continue
            if why := self._unfit(job):
                self._waiting.popleft()
                job.future.set_result(fallback(job.html, why))
                continue
            if self._child is None and not self._start():
                self._waiting.popleft()
                job.future.set_result(fallback(job.html, "unavailable"))
                continue
            assert self._child is not None
            self._waiting.popleft()
            if not self._flight and self._ready:
                self._head_since = self._clock()
            self._flight.append(job)
            html = storable(job.html).encode("utf-8")
            self._child.send(job.id, job.url.encode("utf-8", "replace"), html)
        if self._child is not None and self._selector is not None:
            self._watch_writes(self._child.wants_write)

    def _unfit(self, job: _Job) -> str | None:
        return "too_large" if len(job.html) > self.max_html_chars else wild_markup(job.html)

    def _watch_writes(self, wanted: bool) -> None:
        assert self._child is not None
        assert self._selector is not None
        registered = self._child.stdin_fd in self._selector.get_map()
        if wanted and not registered:
            self._selector.register(self._child.stdin_fd, selectors.EVENT_WRITE)
        elif registered and not wanted:
            self._selector.unregister(self._child.stdin_fd)

    def _start(self) -> bool:
        """Start a child. False: the last ones could not start, and it is not yet time to try again."""
        now = self._clock()
        if now < self._next_start_at:
            return False
        try:
            self._child = ChildProcess(
                memory_limit_bytes=self.memory_limit_bytes,
                recycle_after=self.recycle_after,
                # The child's own alarm: only for when nobody is left to kill it.
                alarm_s=math.ceil(self.timeout_s) + 5,
            )
        except OSError as error:
            self._start_failed(str(error))
            return False
        self._ready, self._head_since = False, now
        assert self._selector is not None
        self._selector.register(self._child.stdout_fd, selectors.EVENT_READ)
        return True

    def _start_failed(self, why: str) -> None:
        self._failed_starts += 1
        rest_s = min(_MAX_BACKOFF_S, 2.0 ** (self._failed_starts - 1))
        self._next_start_at = self._clock() + rest_s
        log.warning(
            "the extraction child did not start (%s); pages keep plain text, next try in %g s", why, rest_s
        )

    def _pause_s(self) -> float | None:
        """How long the thread may sleep; ``None``: until something comes."""
        if self._child is None:
            return None
        now = self._clock()
        if not self._ready:
            return max(0.0, self._head_since + _START_TIMEOUT_S - now)
        if self._flight:
            return max(0.0, self._head_since + self.timeout_s - now)
        return max(0.0, self._idle_since + self.idle_s - now)

    def _turn(self) -> None:
        """Take what the child has said, then judge its time: in this order, or a frozen parent would blame it."""
        if self._child is None:
            return
        self._child.flush()
        answers, alive = self._child.receive()
        for answer in answers:
            self._take(answer)
            if answer.last:
                self._drop_child()
                return
        if not alive:
            self._died()
        else:
            self._judge_time()

    def _take(self, answer: Answer) -> None:
        now = self._clock()
        self._head_since = self._idle_since = now
        if answer.request_id == HELLO_ID:
            if "error" in answer.payload:
                self._start_failed(answer.payload["error"])
            else:
                self._ready, self._failed_starts = True, 0
            return
        job = self._flight.popleft()
        assert job.id == answer.request_id, "the child answers in order"
        job.future.set_result(_from_answer(answer.payload, job.html))

    def _judge_time(self) -> None:
        now = self._clock()
        if not self._ready:
            if now - self._head_since >= _START_TIMEOUT_S:
                self._start_failed(f"not ready after {_START_TIMEOUT_S:g} s")
                self._drop_child()
        elif self._flight:
            if now - self._head_since >= self.timeout_s:
                self._blame_head("timeout")
        elif now - self._idle_since >= self.idle_s:
            self._drop_child()

    def _died(self) -> None:
        if self._ready and self._flight:
            self._blame_head("crashed")
            return
        if not self._ready:
            self._start_failed("it ended at once")
        self._drop_child()

    def _blame_head(self, why: str) -> None:
        """Give up on the page that the child was at; the ones behind it go to the next child."""
        job = self._flight.popleft()
        log.warning("extraction gave up on %s: %s", job.url or "a page", why)
        self._drop_child()
        job.future.set_result(fallback(job.html, why))

    def _drop_child(self) -> None:
        """End the child and put what it had not answered back at the head of the queue."""
        if self._child is None:
            return
        assert self._selector is not None
        for fd in (self._child.stdin_fd, self._child.stdout_fd):
            with contextlib.suppress(KeyError):
                self._selector.unregister(fd)
        self._child.kill()
        self._child = None
        self._ready = False
        self._waiting.extendleft(reversed(self._flight))
        self._flight.clear()

    def _forked(self) -> None:
        """In a forked process: leave the parent's child alone and begin anew."""
        child, wake, selector = self._child, self._wake, self._selector
        closing = self._closing
        self._begin()
        self._closing = closing
        if child is not None:
            child.abandon()
        if selector is not None:
            selector.close()
        for fd in wake or ():
            os.close(fd)


#: Only for the end of the process and for forks; nobody finds an extractor through this.
_living: weakref.WeakSet[Extractor] = weakref.WeakSet()


def _close_all() -> None:
    for extractor in list(_living):
        extractor.close()


def _begin_anew_after_fork() -> None:
    for extractor in list(_living):
        extractor._forked()


atexit.register(_close_all)
os.register_at_fork(after_in_child=_begin_anew_after_fork)
