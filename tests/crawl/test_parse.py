"""Running a spider's code: everything becomes a result."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
import json
import sys
import uuid
from collections import namedtuple
from typing import Any

import pytest

from flask_spiderpool.crawl import parse as parse_module
from flask_spiderpool.crawl.items import BadItem, json_item
from flask_spiderpool.crawl.page import Page
from flask_spiderpool.crawl.parse import ParseResult, run_parse
from flask_spiderpool.crawl.spider import FunctionSpider, Spider
from flask_spiderpool.crawl.wanted import Request


def run(function: Any, callback: str | None = None) -> ParseResult:
    return run_parse(FunctionSpider("s", function), Page.of("https://a.example/", "<p>x</p>"), callback)


def test_generator_list_single_and_nothing() -> None:
    """parse may yield, return a list, one item or nothing."""

    def generator(page: Page) -> Any:
        yield {"n": 1}
        yield Request("/a")

    for function in (
        generator,
        lambda page: [{"n": 1}, Request("/a")],
        lambda page: ({"n": 1}, Request("/a")),
    ):
        result = run(function)
        assert (result.items, [r.url for r in result.requests], result.error) == ([{"n": 1}], ["/a"], None)
    assert run(lambda page: {"n": 1}).items == [{"n": 1}]
    assert run(lambda page: Request("/a")).requests[0].url == "/a"
    assert run(lambda page: None) == ParseResult()


def test_async_functions_and_generators() -> None:
    """async parse functions run to their end in the calling thread."""

    async def coroutine(page: Page) -> Any:
        return [{"n": 1}]

    async def generator(page: Page) -> Any:
        yield {"n": 1}

    assert run(coroutine).items == run(generator).items == [{"n": 1}]


def test_what_was_yielded_before_an_exception_is_kept() -> None:
    """A generator that raises midway keeps its items, and the error says where in the spider's code."""

    def broken(page: Page) -> Any:
        yield {"n": 1}
        page.log("info", "half way")
        raise ValueError("no\nprice")

    result = run(broken)
    assert result.items == [{"n": 1}]
    assert result.error is not None
    assert result.error.startswith("ValueError: no price (")
    assert "test_parse.py:" in result.error
    assert result.error.endswith(" in broken)")
    assert result.logs == [("INFO", "half way"), ("ERROR", result.error)]


def test_the_place_is_the_spiders_even_if_a_library_raised() -> None:
    """The location is the last line of the spider's own code, not of what it called."""

    def broken(page: Page) -> Any:
        return json.loads("{")

    assert " in broken)" in (run(broken).error or "")


def test_sys_exit_costs_a_page_only() -> None:
    """A callback that calls sys.exit() is an error like others."""
    assert (run(lambda page: sys.exit(3)).error or "").startswith("SystemExit: 3")


@pytest.mark.parametrize("value", ["https://a.example/", 5, object(), b"x", [{"n": 1}]])
def test_a_bad_yield_names_spider_and_type(value: Any) -> None:
    """What is neither item nor request is refused with the spider's name and the type."""

    def function(page: Page) -> Any:
        yield {"n": 0}
        yield value

    result = run(function)
    assert result.items == [{"n": 0}]
    assert f"spider 's' yielded a {type(value).__name__}" in (result.error or "")


def test_a_returned_string_is_not_taken_apart() -> None:
    """A string that parse returns is one bad value, not its letters."""
    assert "returned" in (run(lambda page: 5).error or "")
    assert "yielded a str" in (run(lambda page: "abc").error or "")


def test_an_unknown_callback_is_refused_when_yielded() -> None:
    """A request whose callback nobody could call later fails now."""
    assert "no callback 'gone'" in (run(lambda page: Request("/a", "gone")).error or "")


def test_items_and_requests_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """An endless generator ends at the limit, with what it gave until then."""
    monkeypatch.setattr(parse_module, "MAX_ITEMS", 10)

    def endless(page: Page) -> Any:
        while True:
            yield {"n": 1}

    result = run(endless)
    assert len(result.items) == 10
    assert "more than 10 items" in (result.error or "")


def test_a_method_is_called_by_name() -> None:
    """A callback name chooses the method."""

    class Two(Spider):
        name = "two"

        def parse(self, page: Page) -> Any:
            return {"by": "parse"}

        def other(self, page: Page) -> Any:
            return {"by": "other"}

    assert run_parse(Two(), Page.of("https://a.example/", ""), "other").items == [{"by": "other"}]


class Colour(enum.Enum):
    RED = "red"


@dataclasses.dataclass
class Quote:
    text: str
    when: datetime.date


class Model:
    def model_dump(self) -> dict[str, Any]:
        return {"a": decimal.Decimal("1.10")}


def test_items_become_json() -> None:
    """Every usual value has its form in JSON."""
    pair = namedtuple("pair", "x y")(1, 2)
    item = json_item(
        {
            "date": datetime.datetime(2024, 1, 2, 3, tzinfo=datetime.UTC),
            "price": decimal.Decimal("1.10"),
            "id": uuid.UUID(int=1),
            "raw": "é".encode(),
            "set": {1},
            "nan": float("nan"),
            "enum": Colour.RED,
            "pair": pair,
            "quote": Quote("a", datetime.date(2024, 1, 2)),
            "gen": (n for n in range(2)),
            "nul": "a\x00b\ud800",
            5: None,
        }
    )
    assert json.loads(json.dumps(item, allow_nan=False)) == {
        "date": "2024-01-02T03:00:00+00:00",
        "price": "1.10",
        "id": "00000000-0000-0000-0000-000000000001",
        "raw": "é",
        "set": [1],
        "nan": None,
        "enum": "red",
        "pair": [1, 2],
        "quote": {"text": "a", "when": "2024-01-02"},
        "gen": [0, 1],
        "nul": "a\ufffdb\ufffd",
        "5": None,
    }


def test_objects_are_items() -> None:
    """Dataclasses and objects with model_dump are items; classes and numbers are not."""
    assert json_item(Quote("a", datetime.date(2024, 1, 2))) == {"text": "a", "when": "2024-01-02"}
    assert json_item(Model()) == {"a": "1.10"}
    assert json_item(Quote) is None
    assert json_item(5) is None


def test_what_has_no_json_says_where_it_stands() -> None:
    """A forgotten .get(), odd bytes, an item that holds itself: each error names the place."""
    page = Page.of("https://a.example/", "<p>x</p>")
    with pytest.raises(BadItem, match=r"item\['t'\] is a SelectorList; add \.get\(\)"):
        json_item({"t": page.css("p::text")})
    with pytest.raises(BadItem, match="base64"):
        json_item({"a": b"\xff"})
    with pytest.raises(BadItem, match=r"item\['a'\]\[1\]\['b'\] is a object"):
        json_item({"a": [0, {"b": object()}]})
    knot: dict[str, Any] = {}
    knot["self"] = knot
    with pytest.raises(BadItem, match="levels deep"):
        json_item(knot)
