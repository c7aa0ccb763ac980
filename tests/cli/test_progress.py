from __future__ import annotations

import io

from flask_spiderpool.cli.progress import PLAIN_EVERY_S, CrawlProgress, Waiting, counted, describe, summary

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
    assert describe(NUMBERS, 2.5) == "4 pages, 5 to go, 1 failed, 2.5 a second"


def test_one_is_not_called_many():
    """``1 page``, ``1 item``."""
    assert counted(1, "row") == "1 row"
    assert describe({**NUMBERS, "done": 1, "items": 1}).startswith("1 page, 8 to go, 1 failed, 1 item")


def test_the_last_line_explains_its_numbers():
    """Pages are told apart by what was stored of them; what is not there is not named."""
    numbers = {**NUMBERS, "discovered": 125, "done": 123, "pages": 122, "unchanged": 1, "failed": 2}
    assert summary(numbers) == "123 pages (122 new or changed, 1 unchanged), 2 failed"
    assert summary({**numbers, "pages": 120, "discovered": 130}) == (
        "123 pages (120 new or changed, 1 unchanged, 2 stored nothing), 2 failed, 5 to go"
    )


def test_the_pace_counts_from_the_first_numbers_shown():
    """A resumed crawl does not claim the pages of its earlier life; where nothing happens there is no pace."""
    stream, clock = io.StringIO(), Clock()
    with CrawlProgress("news", stream, clock=clock) as progress:
        progress.show({**NUMBERS, "discovered": 2000, "done": 1000})
        clock.now = 10.0
        progress.show({**NUMBERS, "discovered": 2000, "done": 1020})
        clock.now = 21.0
        progress.show({**NUMBERS, "discovered": 2001, "done": 1020})
    first, second, third = stream.getvalue().splitlines()
    assert "a second" not in first
    assert second.endswith("2.0 a second")
    assert "a second" not in third


def test_what_is_waited_for_is_said_once():
    """In place of a pace that only falls; in a pipe not again every two seconds."""
    stream, clock = io.StringIO(), Clock()
    with CrawlProgress("news", stream, clock=clock) as progress:
        for second in range(0, 9, 3):
            clock.now = float(second)
            progress.show(NUMBERS, Waiting(58.0 - second, "http://a.example (dns), 1 retry"))
    assert stream.getvalue() == (
        "news: 4 pages, 5 to go, 1 failed, waiting 58 s for http://a.example (dns), 1 retry\n"
    )


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
