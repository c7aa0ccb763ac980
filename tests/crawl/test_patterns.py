"""Patterns: RE2's syntax, linear time, faults in words."""

from __future__ import annotations

import time

import pytest

from flask_spiderpool.crawl.patterns import compile_any, compile_pattern
from flask_spiderpool.crawl.scope import Scope
from flask_spiderpool.errors import InvalidParameter


@pytest.mark.parametrize("pattern", ["(a+)+$", "^(([a-z0-9:/.]+)+)+#", "(a|a)*b"])
def test_a_pattern_that_would_backtrack_takes_no_time(pattern: str) -> None:
    """Patterns that hold Python's own engine for ages answer at once, in CPU time of this thread."""
    url = "http://site.example/" + "a" * 1900 + "!"
    started = time.thread_time()
    assert compile_pattern(pattern).search(url) is None
    assert time.thread_time() - started < 0.5


@pytest.mark.parametrize(
    "pattern",
    ["(", "(?=x)", r"(a)\1", "[z-a]", "*", "a{99999999999}", "a{1,99999999999}", "a{" + "9" * 900 + "}"],
)
def test_a_wrong_pattern_is_told_with_its_field(pattern: str) -> None:
    """No pattern raises anything but a parameter's fault."""
    with pytest.raises(InvalidParameter, match=r"include: .*not a regular expression"):
        Scope(include=(pattern,))


def test_any_of_several_is_found() -> None:
    """Flags of one pattern do not reach the others."""
    found = compile_any(["(?i)NEWS", "^http://b/"])
    assert found is not None
    assert found.search("http://a/news")
    assert found.search("http://b/")
    assert not found.search("http://c/B/")
    assert compile_any([]) is None


def test_a_pattern_that_would_take_too_much_memory_is_refused() -> None:
    """Repeats of repeats are refused when they are written, not met when they are matched."""
    with pytest.raises(ValueError, match=r"too large|repetition"):
        compile_pattern("((((a{100}){100}){100}){100})")
