"""Options are checked once, merged in layers, and survive JSON."""

from __future__ import annotations

import json
from typing import Any

import pytest

from flask_spiderpool.crawl.options import OPTION_NAMES, SpiderOptions
from flask_spiderpool.errors import InvalidParameter
from flask_spiderpool.terms import Reason

FULL: dict[str, Any] = {
    "start_urls": ["https://example.com/a?b=1"],
    "allowed_domains": ["example.com", "127.0.0.1:8000"],
    "include": ["/a"],
    "exclude": [r"\.pdf$"],
    "max_depth": 3,
    "max_pages": 7,
    "max_time_s": 60,
    "delay_s": 0.5,
    "concurrency": 4,
    "concurrency_per_host": 2,
    "headers": {"Accept-Language": "de"},
    "user_agent": "Bot/1 (+https://example.com/bot)",
    "obey_robots": False,
    "follow": True,
    "extract": False,
    "links_only": True,
    "max_parallel": 2,
    "queue": "news",
    "priority": -5,
    "respect_nofollow": True,
    "request_timeout_s": 5,
    "max_bytes": 4096,
    "max_unpacked_bytes": 8192,
    "attempts": 2,
    "backoff_s": 0.1,
    "description": "Two lines\nof text",
}


def test_every_option_survives_json() -> None:
    """Options written as JSON and read again are equal, each with a value other than its default."""
    assert set(FULL) == set(OPTION_NAMES)
    options = SpiderOptions.parse(**FULL)
    defaults = SpiderOptions.parse()
    assert all(getattr(options, name) != getattr(defaults, name) for name in OPTION_NAMES)
    assert SpiderOptions.from_json(json.loads(json.dumps(options.to_json()))) == options


def test_names_of_a_newer_version_are_left_out() -> None:
    """A task stored by a newer version still loads."""
    assert SpiderOptions.from_json({"max_pages": 3, "from_the_future": 1}).max_pages == 3


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("max_depth", -1),
        ("max_depth", True),
        ("max_depth", 1.5),
        ("max_depth", "3"),
        ("max_pages", 0),
        ("delay_s", float("nan")),
        ("delay_s", "fast"),
        ("obey_robots", 1),
        ("start_urls", ["ftp://example.com/"]),
        ("start_urls", ["https://example.com/", "http://["]),
        ("start_urls", 5),
        ("allowed_domains", ["*.example.com"]),
        ("allowed_domains", ["https://example.com/"]),
        ("include", ["("]),
        ("exclude", ["a" * 2000]),
        ("headers", {"Host": "evil.example"}),
        ("headers", {"X-A": "a\r\nX-B: b"}),
        ("headers", {"X A": "a"}),
        ("headers", ["X-A"]),
        ("user_agent", "a\nb"),
        ("queue", "two words"),
        ("concurrency", 0),
    ],
)
def test_a_wrong_value_names_its_field(field: str, value: Any) -> None:
    """A value that is not allowed is refused by an error that carries the field."""
    with pytest.raises(InvalidParameter) as caught:
        SpiderOptions.parse(**{field: value})
    assert caught.value.field == field


def test_an_unknown_option_gets_a_suggestion() -> None:
    """A misspelled option is refused with the nearest name."""
    with pytest.raises(InvalidParameter, match=r"did you mean max_depth\?"):
        SpiderOptions.parse(max_dept=3)


def test_all_faults_are_named_at_once() -> None:
    """The error for the first wrong field tells of the others too."""
    with pytest.raises(InvalidParameter, match="delay_s: must be a number") as caught:
        SpiderOptions.parse(max_depth=-1, delay_s="x")
    assert caught.value.field == "max_depth"


def test_later_wins() -> None:
    """What is given on top replaces what stood below; what is not given stays."""
    options = SpiderOptions.parse(max_pages=10, max_depth=2).override(max_pages=1000)
    assert (options.max_pages, options.max_depth) == (1000, 2)


@pytest.mark.parametrize(
    ("field", "own", "looser", "stricter"),
    [
        ("obey_robots", True, False, True),
        ("delay_s", 2.0, 1.0, 3.0),
        ("delay_s", 2.0, None, 2.0),
        ("concurrency_per_host", 4, 8, 1),
        ("max_bytes", 4096, 8192, 2048),
        ("max_unpacked_bytes", 4096, None, 2048),
        ("request_timeout_s", 10.0, 60.0, 5.0),
    ],
)
def test_limits_of_safety_only_tighten(field: str, own: Any, looser: Any, stricter: Any) -> None:
    """Loosening one is refused, tightening one goes through."""
    options = SpiderOptions.parse(**{field: own})
    with pytest.raises(InvalidParameter, match="stricter") as caught:
        options.override(**{field: looser})
    assert caught.value.field == field
    assert getattr(options.override(**{field: stricter}), field) == stricter


def test_robots_once_ignored_can_be_obeyed_again() -> None:
    """A start may obey robots.txt where the spider's author chose not to."""
    assert SpiderOptions.parse(obey_robots=False).override(obey_robots=True).obey_robots


def test_headers_are_merged_by_name_without_case() -> None:
    """A later header replaces the one of the same name and leaves the others."""
    options = SpiderOptions.parse(headers={"X-One": "1", "X-Two": "2"}).override(headers={"x-one": "3"})
    assert dict(options.headers) == {"X-One": "3", "X-Two": "2"}


def test_the_user_agent_goes_with_the_headers() -> None:
    """A spider's own user agent is the one User-Agent header of its requests."""
    options = SpiderOptions.parse(headers={"user-agent": "a", "X-A": "1"}, user_agent="Bot/1")
    assert options.request_headers() == {"X-A": "1", "User-Agent": "Bot/1"}


def test_start_urls_make_the_scope() -> None:
    """Without allowed domains, the crawl keeps to the hosts of its start URLs, with their ports."""
    scope = SpiderOptions.parse(start_urls=["http://127.0.0.1:8000/", "https://example.com/"]).scope()
    assert scope.admit("http://127.0.0.1:8000/a", 1) is None
    assert scope.admit("http://127.0.0.1:8001/a", 1) is Reason.SCOPE
    assert scope.admit("https://news.example.com/", 1) is None
    assert scope.admit("https://example.org/", 1) is Reason.SCOPE


def test_what_is_followed_and_extracted_depends_on_parse() -> None:
    """Article spiders follow and extract by default, spiders with parse do neither, and both can be told."""
    options = SpiderOptions.parse()
    assert (options.follows(False), options.extracts(False)) == (True, True)
    assert (options.follows(True), options.extracts(True)) == (False, False)
    told = SpiderOptions.parse(follow=True, extract=True)
    assert (told.follows(True), told.extracts(True)) == (True, True)
    assert not SpiderOptions.parse(links_only=True, extract=True).extracts(False)


def test_options_cannot_be_changed() -> None:
    """Neither a field nor the headers of checked options can be assigned."""
    options = SpiderOptions.parse(headers={"X-A": "1"})
    with pytest.raises(AttributeError):
        options.max_pages = 3  # type: ignore[misc]
    with pytest.raises(TypeError):
        options.headers["X-A"] = "2"  # type: ignore[index]
