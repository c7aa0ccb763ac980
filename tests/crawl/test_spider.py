"""Spiders, their callbacks and the registry."""

from __future__ import annotations

from typing import Any

import pytest

from flask_spiderpool.crawl.page import Page
from flask_spiderpool.crawl.spider import ArticleSpider, FunctionSpider, Spider, SpiderRegistry
from flask_spiderpool.crawl.wanted import Request
from flask_spiderpool.errors import SetupError, SpiderLoadError, UnknownSpider


class Quotes(Spider):
    name = "quotes"
    start_urls = ("https://quotes.example/",)
    max_depth = 3

    def parse(self, page: Page) -> Any:
        return {"url": page.url}

    def parse_author(self, page: Page) -> Any:
        return {"author": page.url}


def parse_top(page: Page) -> Any:
    """Take the top.

    More of it.
    """
    return {"top": page.url}


def parse_more(page: Page) -> Any:
    return {"more": page.url}


def test_class_attributes_are_options() -> None:
    """A spider's options are read from its class and checked; the rest is left to the pool."""
    spider = Quotes()
    assert (spider.options.max_depth, spider.options.max_pages) == (3, None)
    assert spider.has_parse


def test_wrong_options_name_spider_and_field() -> None:
    """A wrong option in code is a set-up fault that names both."""
    with pytest.raises(SetupError, match=r"spider 'x': max_depth: must be"):
        FunctionSpider("x", parse_top, max_depth=-1)


@pytest.mark.parametrize("name", ["", "a b", "-x", "x/y", "é", "x" * 101])
def test_names_are_checked(name: str) -> None:
    """A name that could not stand in a URL or a queue is refused."""
    with pytest.raises(SetupError, match="name"):
        FunctionSpider(name, parse_top)


def test_callbacks_are_found_by_name() -> None:
    """Methods of a class and top-level functions of a function's module are its callbacks."""
    page = Page.of("https://a.example/", "")
    assert Quotes().callback("parse_author")(page) == {"author": "https://a.example/"}
    assert Quotes().callback(None)(page) == {"url": "https://a.example/"}
    spider = FunctionSpider("top", parse_top)
    assert spider.callback(None) is parse_top
    assert spider.callback("parse_top") is parse_top
    assert spider.callback("parse_more") is parse_more


@pytest.mark.parametrize("name", ["gone", "closed", "__init__", "options", "start_requests"])
def test_what_is_no_callback_is_refused(name: str) -> None:
    """Neither a missing name nor the base class's own methods can be called with a page."""
    with pytest.raises(SpiderLoadError, match="must be a method"):
        Quotes().callback(name)


@pytest.mark.parametrize("name", ["Page", "Request", "pytest", "gone"])
def test_imported_names_are_no_callbacks(name: str) -> None:
    """What a module merely imported is no callback of its function spider."""
    with pytest.raises(SpiderLoadError, match="top level of"):
        FunctionSpider("top", parse_top).callback(name)


def test_a_function_describes_its_spider() -> None:
    """The first paragraph of the docstring is the description unless one is given."""
    assert FunctionSpider("top", parse_top).options.description == "Take the top."
    assert FunctionSpider("top", parse_top, description="Mine").options.description == "Mine"


def test_start_requests_come_from_the_options() -> None:
    """By default a task begins with the spider's start URLs."""
    assert [request.url for request in Quotes().start_requests()] == ["https://quotes.example/"]


def test_the_article_spider_is_always_there() -> None:
    """A new registry knows article, which has no parse."""
    registry = SpiderRegistry()
    assert registry.names() == ["article"]
    assert not registry.get("article").has_parse
    assert isinstance(registry.get("article"), ArticleSpider)


def test_a_taken_name_is_refused() -> None:
    """Two spiders of one name are a set-up fault that says where both stand; the same one twice is none."""
    registry = SpiderRegistry()
    spider = registry.add(Quotes)
    assert registry.add(spider) is spider
    with pytest.raises(SetupError, match=r"already \(.*Quotes\); give .*parse_top another name"):
        registry.add(FunctionSpider("quotes", parse_top))
    assert [known.name for known in registry] == ["article", "quotes"]


def test_registries_share_nothing() -> None:
    """A spider of one app is unknown in another."""
    one, other = SpiderRegistry(), SpiderRegistry()
    one.add(Quotes)
    assert "quotes" in one
    assert "quotes" not in other


def test_an_unknown_spider_gets_a_suggestion() -> None:
    """Asking for a misspelled name tells the nearest one."""
    registry = SpiderRegistry()
    registry.add(Quotes)
    with pytest.raises(UnknownSpider, match="did you mean 'quotes'"):
        registry.get("qoutes")


def test_the_decorator_leaves_the_function_as_it_is() -> None:
    """The registry's decorator registers and returns the function."""
    registry = SpiderRegistry()
    assert registry.spider("top", max_pages=5)(parse_top) is parse_top
    assert registry.get("top").options.max_pages == 5


def test_a_request_keeps_its_callback_by_name() -> None:
    """What the frontier keeps of a request is JSON: the callback's name, meta and headers; else nothing."""
    request = Request("/a", Quotes().parse_author, meta={"n": {1}}, headers={"X-A": "1"}, priority=-2)
    assert request.payload() == {"callback": "parse_author", "meta": {"n": [1]}, "headers": {"X-A": "1"}}
    assert Request("/a").payload() is None


@pytest.mark.parametrize(
    "arguments",
    [
        {"url": b"/a"},
        {"url": "/a", "callback": lambda page: None},
        {"url": "/a", "callback": 5},
        {"url": "/a", "meta": {"x": object()}},
        {"url": "/a", "meta": [1]},
        {"url": "/a", "headers": {"Host": "x"}},
        {"url": "/a", "priority": "high"},
    ],
)
def test_a_request_that_cannot_be_stored_is_refused(arguments: dict[str, Any]) -> None:
    """What has no form in the frontier fails where it is written, not in another process."""
    with pytest.raises((TypeError, ValueError)):
        Request(**arguments)
