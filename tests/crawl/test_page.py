"""The page as parse sees it."""

from __future__ import annotations

import pytest

from flask_spiderpool.crawl.extract import Extracted
from flask_spiderpool.crawl.page import MAX_LOG_LINES, Page
from flask_spiderpool.crawl.scope import Scope
from flask_spiderpool.crawl.wanted import Request

HTML = """<html lang="en"><head><title>T</title></head><body>
<ul><li class="next"><a href="/p/2">2</a></li><li class="next"><a href="/p/2#x">2</a></li>
<li><a class="bad" href="http://[">bad</a><a class="bad" href="mailto:a@b.example">mail</a><a class="bad" href="p/3">3</a></li></ul>
<a class="off" href="https://other.example/">other</a></body></html>"""


def page(html: str = HTML) -> Page:
    return Page.of("https://a.example/dir/one", html)


def urls(requests: object) -> list[str]:
    return [request.url for request in requests]  # type: ignore[attr-defined]


def test_css_and_xpath_select() -> None:
    """parsel's selections work, with its pseudo-elements."""
    assert page().css("title::text").get() == "T"
    assert page().xpath("//li[@class=$c]/a/@href", c="next").getall() == ["/p/2", "/p/2#x"]


def test_follow_takes_each_url_once() -> None:
    """Two hrefs that differ in their fragment are one request."""
    assert urls(page().follow("li.next a")) == ["https://a.example/p/2"]


def test_follow_looks_inside_what_is_no_link() -> None:
    """An element without href stands for the links inside it."""
    assert urls(page().follow("li.next")) == ["https://a.example/p/2"]


def test_one_bad_href_is_skipped() -> None:
    """A malformed URL and another scheme cost nothing but themselves, and leave a line in the log."""
    subject = page()
    assert urls(subject.follow("a.bad")) == ["https://a.example/dir/p/3"]
    assert [level for level, _ in subject.logs] == ["DEBUG", "DEBUG"]


def test_follow_takes_selections_and_lists() -> None:
    """Selected elements, selected attributes and lists of hrefs are followed like a selector."""
    subject = page()
    assert urls(subject.follow(subject.css("li.next a"))) == ["https://a.example/p/2"]
    assert urls(subject.follow(subject.css("li.next a")[0])) == ["https://a.example/p/2"]
    assert urls(subject.follow(subject.xpath("//a[@class='off']/@href"))) == ["https://other.example/"]
    assert urls(subject.follow(["x", "/y"])) == ["https://a.example/dir/x", "https://a.example/y"]


def test_follow_carries_what_it_is_given() -> None:
    """Callback, meta, headers and priority go into each request."""
    (request,) = page().follow("a.off", "detail", meta={"n": 1}, headers={"X-A": "1"}, priority=3)
    assert (request.callback_name, request.meta, request.headers, request.priority) == (
        "detail",
        {"n": 1},
        {"X-A": "1"},
        3,
    )


@pytest.mark.parametrize("url", ["https://a.example/", "/p/2", "../x", "?page=2"])
def test_follow_refuses_a_url(url: str) -> None:
    """A URL in place of a selector is an error that names the method for it."""
    with pytest.raises(ValueError, match="follow_url"):
        page().follow(url)


def test_a_selector_may_hold_a_url() -> None:
    """A URL inside an attribute test does not make a selector a URL."""
    assert urls(page().follow('a[href^="https://other"]')) == ["https://other.example/"]


def test_follow_refuses_what_means_no_link() -> None:
    """A number is no target."""
    with pytest.raises(TypeError, match="cannot follow a int"):
        page().follow(5)  # type: ignore[arg-type]


def test_follow_url_joins() -> None:
    """One URL is joined with the page's; one that cannot be is a ValueError."""
    assert isinstance(page().follow_url("x"), Request)
    assert page().follow_url("x").url == "https://a.example/dir/x"
    with pytest.raises(ValueError, match=r"."):
        page().follow_url("http://[")


def test_base_is_respected() -> None:
    """The first usable base href is what links are relative to."""
    subject = page('<base href="data:x"><base href="/other/"><base href="/third/"><a href="x">x</a>')
    assert urls(subject.follow("a")) == ["https://a.example/other/x"]


def test_links_keep_to_the_scope() -> None:
    """Without a scope all links are given, with one only those inside, at the depth they would have."""
    subject = page()
    assert "https://other.example/" in subject.links()
    subject = Page.of("https://a.example/dir/one", HTML)
    subject._scope = Scope(allowed_domains=("a.example",), max_depth=1)
    assert subject.links() == ["https://a.example/p/2", "https://a.example/dir/p/3"]
    subject.depth = 1
    assert subject.links() == []


def test_the_body_is_decoded_by_its_label() -> None:
    """Text comes by the header's encoding."""
    subject = Page.of(
        "https://a.example/",
        "<p>žluť</p>".encode("cp1250"),
        headers={"Content-Type": "text/html; charset=cp1250"},
    )
    assert subject.css("p::text").get() == "žluť"
    assert subject.encoding.replace("-", "").lower() in ("cp1250", "windows1250")


def test_json_is_read_from_the_body() -> None:
    """JSON needs no content type; what is none is a ValueError."""
    assert Page.of("https://a.example/", b'{"a": [1, "\xc3\xa9"]}').json() == {"a": [1, "é"]}
    with pytest.raises(ValueError, match="Expecting value"):
        page().json()


def test_xml_is_selected_as_xml() -> None:
    """An XML type is parsed as XML, so its names keep their case."""
    subject = Page.of(
        "https://a.example/", b"<Root><linkTo>x</linkTo></Root>", headers={"content-type": "application/xml"}
    )
    assert subject.xpath("/Root/linkTo/text()").get() == "x"


def test_extraction_is_asked_for_once() -> None:
    """text, markdown and metadata share one extraction."""

    class Counting:
        calls = 0

        def extract(self, html: str, url: str = "") -> Extracted:
            self.calls += 1
            return Extracted("T", "text", "**text**", {"author": url})

    counting = Counting()
    subject = page()
    subject._extractor = counting
    assert (subject.text(), subject.markdown()) == ("text", "**text**")
    assert subject.metadata() == {"title": "T", "author": "https://a.example/dir/one"}
    assert counting.calls == 1


def test_a_page_of_your_own_extracts_in_process() -> None:
    """A page made by hand has text and metadata without a worker."""
    subject = Page.of(
        "https://a.example/", f"<html lang=en><article><p>{'Words of an article. ' * 30}</p></article>"
    )
    assert (subject.text() or "").startswith("Words of an article.")
    assert subject.metadata()["language"] == "en"


def test_log_lines_are_bounded() -> None:
    """A page keeps so many lines and no more; levels may be names or numbers."""
    subject = page()
    subject.log(30, "a")
    for _ in range(2 * MAX_LOG_LINES):
        subject.log("info", "b")
    assert subject.logs[:2] == [("WARNING", "a"), ("INFO", "b")]
    assert len(subject.logs) == MAX_LOG_LINES


def test_meta_comes_back() -> None:
    """What a request carried stands in page.meta."""
    assert Page.of("https://a.example/", "", meta={"n": 1}).meta == {"n": 1}
