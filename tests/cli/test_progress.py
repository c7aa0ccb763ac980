from __future__ import annotations

import io

from flask_spiderpool.cli.progress import PLAIN_EVERY_S, CrawlProgress, describe

NUMBERS = {"discovered": 10, "done": 4, "failed": 1, "skipped": 0, "items": 0}


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_words_say_what_is_done_and_what_is_left():
    """Only what there is: no ``0 skipped``."""
    assert describe(NUMBERS, 2.0) == "4 pages, 5 to go, 1 failed, 2.5 a second"


def test_a_pipe_gets_plain_lines_not_too_often_and_only_news():
    """A log file is not filled with the same line."""
    stream, clock = io.StringIO(), Clock()
    with CrawlProgress("news", stream, clock=clock) as progress:
        progress.show(NUMBERS)
        clock.now = PLAIN_EVERY_S / 2
        progress.show({**NUMBERS, "done": 5})
        clock.now = PLAIN_EVERY_S
        progress.show({**NUMBERS, "done": 6})
    lines = stream.getvalue().splitlines()
    assert len(lines) == 2
    assert lines[0].startswith("news: 4 pages")
    assert lines[1].startswith("news: 6 pages")


def test_a_terminal_gets_a_bar():
    """The bar moves in place: control sequences, which a pipe never gets."""
    stream = Terminal()
    with CrawlProgress("news", stream) as progress:
        progress.show(NUMBERS)
        progress.say("[bold] is no markup here")
    assert "\x1b[" in stream.getvalue()
    assert "[bold] is no markup here" in stream.getvalue()


def test_quiet_says_nothing():
    """Not on a terminal either."""
    stream = Terminal()
    with CrawlProgress("news", stream, quiet=True) as progress:
        progress.show(NUMBERS)
        progress.say("x")
    assert stream.getvalue() == ""
