"""How a crawl goes, while it goes: a bar on a terminal, a plain line now and then in a pipe."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import TextIO

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

ENDING = "ending: requests that were started finish first"  #: what commands say when asked to end
PLAIN_EVERY_S = 2.0  #: between two lines in a pipe

PACE_OVER_S = 10.0  #: the pace is that of the last seconds

Numbers = Mapping[str, int]


def settled(numbers: Numbers) -> int:
    """Return how many requests have an outcome."""
    return numbers["done"] + numbers["failed"] + numbers["skipped"]


@dataclass(frozen=True, slots=True)
class Waiting:
    """Nothing is under way, because something is waited for."""

    seconds: float
    what: str

    def __str__(self) -> str:
        """``waiting 58 s for http://...``."""
        return f"waiting {self.seconds:.0f} s for {self.what}"


def counted(number: int, noun: str) -> str:
    """Return ``1 page``, ``2 pages``."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def describe(numbers: Numbers, pace: float | None = None) -> str:
    """Return one line of plain words about a crawl under way; ``pace`` is in requests a second."""
    words = [counted(numbers["done"], "page"), f"{numbers['discovered'] - settled(numbers)} to go"]
    words += _beside_pages(numbers)
    if pace is not None:
        words.append(f"{pace:.1f} a second")
    return ", ".join(words)


def summary(numbers: Numbers) -> str:
    """Return one line about what a crawl came to; its numbers add up to all that was discovered."""
    parts = [f"{numbers['pages']} new or changed", f"{numbers['unchanged']} unchanged"]
    rest = numbers["done"] - numbers["pages"] - numbers["unchanged"]
    parts += [f"{rest} stored nothing"] if rest > 0 else []
    words = [f"{counted(numbers['done'], 'page')} ({', '.join(parts)})", *_beside_pages(numbers)]
    if left := numbers["discovered"] - settled(numbers):
        words.append(f"{left} to go")
    return ", ".join(words)


def _beside_pages(numbers: Numbers) -> list[str]:
    words = [f"{numbers[name]} {name}" for name in ("failed", "skipped") if numbers[name]]
    return [*words, counted(numbers["items"], "item")] if numbers.get("items") else words


class CrawlProgress:
    """Shows numbers of one task on ``stream``; nothing when ``quiet``. A context manager.

    A resumed crawl begins with what it had: the pace counts from the first numbers shown.
    """

    def __init__(
        self,
        title: str,
        stream: TextIO,
        *,
        quiet: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._title = title
        self._stream = stream
        self._quiet = quiet
        self._clock = clock
        self._seen: deque[tuple[float, int]] = deque()  #: when so many requests had an outcome
        self._shown_at: float | None = None
        self._shown = ""
        self._bar: Progress | None = None
        self._bar_id = TaskID(0)
        if not quiet and stream.isatty():
            self._bar = Progress(
                SpinnerColumn(),
                TextColumn("{task.description}"),
                BarColumn(),
                TextColumn("{task.fields[words]}"),
                TimeElapsedColumn(),
                console=Console(file=stream),
                transient=True,
            )
            self._bar_id = self._bar.add_task(title, total=None, words="starting")

    def __enter__(self) -> CrawlProgress:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def show(self, numbers: Numbers, waiting: Waiting | None = None) -> None:
        """Show these numbers, and instead of the pace what the crawl waits for."""
        now = self._clock()
        pace = self._pace(now, settled(numbers))
        words = describe(numbers, None if waiting else pace)
        news = f"{words}, {waiting.what}" if waiting else words  # without the seconds, which always change
        words = f"{words}, {waiting}" if waiting else words
        if self._bar is not None:
            self._bar.update(
                self._bar_id,
                total=max(numbers["discovered"], 1),
                completed=settled(numbers),
                words=words,
            )
            return
        due = self._shown_at is None or now - self._shown_at >= PLAIN_EVERY_S
        if due and news != self._shown:
            self._shown_at, self._shown = now, news
            self.say(f"{self._title}: {words}")

    def _pace(self, now: float, done: int) -> float | None:
        """Return the requests a second of late; None when there were none, rather than a mean that only falls."""
        self._seen.append((now, done))
        while now - self._seen[0][0] > PACE_OVER_S:
            self._seen.popleft()
        began, before = self._seen[0]
        return (done - before) / (now - began) if done > before and now > began else None

    def say(self, line: str) -> None:
        """Print one line above the bar."""
        if self._quiet:
            return
        if self._bar is not None:
            self._bar.console.print(line, markup=False, highlight=False)
        else:
            self._stream.write(line + "\n")
            self._stream.flush()
