"""Links of a page."""

from __future__ import annotations

import pytest

from flask_spiderpool.crawl.links import extract_links
from flask_spiderpool.terms import Reason

PAGE = "http://site.example/links/page"


def _found(html: str | bytes, **options: bool | int) -> list[str]:
    return [link.url for link in extract_links(html, PAGE, **options).links]  # type: ignore[arg-type]


def test_document_order_and_each_target_once() -> None:
    """Hrefs that mean the same target give one link, at the place of the first."""
    html = '<a href="/b">1</a><a href="/a">2</a><a href="/b#x">3</a><a href="http://SITE.example/a">4</a>'
    assert _found(html) == ["http://site.example/b", "http://site.example/a"]


def test_one_bad_href_loses_no_other() -> None:
    """Bad hrefs between good ones are counted by reason; every good one is found."""
    bad = ["http://[", "http://[http//w.example/r", "http://h:99999/", "http://%zz/", "//", "http://a b/"]
    odd = [
        "javascript:void(0)",
        " JaVaScRiPt:x",
        "java&#10;script:x",
        "mailto:a@b.example",
        "data:text/html,x",
    ]
    html = "<a href=/1>" + "".join(f'<a href="{href}">x</a>' for href in bad + odd) + "<a href=/2>"
    found = extract_links(html, PAGE)
    assert [link.url for link in found.links] == ["http://site.example/1", "http://site.example/2"]
    assert found.dropped == {Reason.BAD_URL: len(bad), Reason.SCHEME: len(odd)}


@pytest.mark.parametrize(
    ("head", "expected"),
    [
        ("", "http://site.example/links/child"),
        ('<base href="sub/">', "http://site.example/links/sub/child"),
        ('<base href="/ok/dir/">', "http://site.example/ok/dir/child"),
        ('<base href="">', "http://site.example/links/child"),
        ('<base href="data:text/html,x">', "http://site.example/links/child"),
        ('<base href="javascript:1">', "http://site.example/links/child"),
        ('<base href="http://[">', "http://site.example/links/child"),
        ('<base href="/one/"><base href="/two/">', "http://site.example/one/child"),
        ('<base target="_blank"><base href="/real/">', "http://site.example/real/child"),
        ('<base href="http://[" ><base href="/real/">', "http://site.example/real/child"),
        ('<base href="//off.example/x/">', "http://off.example/x/child"),
    ],
)
def test_first_usable_base_counts(head: str, expected: str) -> None:
    """Relative links are joined with the first base that resolves to http(s), else with the page's URL."""
    assert _found(f"<head>{head}</head><a href=child>x</a>") == [expected]


def test_base_after_the_links_counts_too() -> None:
    """As in browsers, a late base applies to the whole page."""
    assert _found('<a href="child">x</a><base href="/late/">') == ["http://site.example/late/child"]


def test_where_links_are_taken_from() -> None:
    """Anchors and areas count; comments, scripts, templates, forms, frames and textareas do not."""
    html = (
        '<map><area href="/area"></map><iframe src="/iframe"></iframe><form action="/form"></form>'
        '<!-- <a href="/comment">x</a> --><script>"<a href=\'/script\'>"</script>'
        '<template><a href="/template">x</a></template><noscript><a href="/noscript">x</a></noscript>'
        '<textarea><a href="/textarea">x</a></textarea><a name="no-href">x</a><a href="/a">x</a>'
    )
    assert sorted(_found(html)) == [f"http://site.example/{name}" for name in ("a", "area", "noscript")]


def test_nofollow_tokens() -> None:
    """With nofollow respected, rel is compared token by token without case."""
    html = "".join(
        f'<a rel="{rel}" href="/{number}">x</a>'
        for number, rel in enumerate(["", "nofollow", "NoFollow UGC", "sponsored nofollow", "nofollowx", "noopener&#9;nofollow"])
    )  # fmt: skip
    assert _found(html, respect_nofollow=True) == ["http://site.example/0", "http://site.example/4"]
    assert len(_found(html)) == 6


@pytest.mark.parametrize("content", ["nofollow", "NOINDEX,NOFOLLOW", "none"])
def test_page_level_nofollow(content: str) -> None:
    """A robots meta with nofollow or none holds for the whole page, if nofollow is respected."""
    html = f'<meta name="ROBOTS" content="{content}"><a href="/x">x</a>'
    assert _found(html, respect_nofollow=True) == []
    assert extract_links(html, PAGE).nofollow
    assert _found(html) == ["http://site.example/x"]


def test_links_are_bounded() -> None:
    """A page of very many links gives the first ones and says how many it left out."""
    html = "".join(f'<a href="/{number}">x</a>' for number in range(250))
    found = extract_links(html, PAGE, max_links=100)
    assert len(found.links) == 100
    assert found.beyond_limit == 150


def test_nul_hides_nothing() -> None:
    """Text and links after a NUL byte are found."""
    found = extract_links(b"<title>a\0b</title><p>x\0</p><a href='/after'>y</a>", PAGE)
    assert [link.url for link in found.links] == ["http://site.example/after"]
    assert "\0" not in (found.title or "")


def test_deep_nesting_loses_no_link() -> None:
    """20,000 levels are parsed and the link at the bottom is found."""
    assert _found("<div>" * 20_000 + '<a href="/deep">x</a>') == ["http://site.example/deep"]


@pytest.mark.parametrize(
    ("html", "title"),
    [
        ("<title> A\n  title </title>", "A title"),
        ("<svg><title>icon</title></svg><p>x", None),
        ("<p>no title", None),
        ("<title></title>", None),
        ("<p>x<title>in the body</title>", "in the body"),
        ("", None),
    ],
)
def test_title(html: str, title: str | None) -> None:
    """The title is the document's own, with white space collapsed."""
    assert extract_links(html, PAGE).title == title


def test_bytes_and_str_give_the_same() -> None:
    """The page may be handed in as UTF-8 bytes or as text."""
    html = '<title>é</title><a href="/é">x</a>'
    by_text = extract_links(html, PAGE)
    assert extract_links(html.encode(), PAGE) == by_text
    assert by_text.links[0].url == "http://site.example/%C3%A9"
