"""URLs: wire form, canonical form, host keys."""

from __future__ import annotations

import pytest
from ada_url import join_url, normalize_url
from hypothesis import given
from hypothesis import strategies as st

from flask_spiderpool.crawl import urls
from flask_spiderpool.crawl.urls import Base, Link
from flask_spiderpool.errors import FetchError
from flask_spiderpool.terms import Reason

# Single characters, and pieces in which escapes can meet or be broken.
_PIECES = st.sampled_from(
    [*"aB%./?&=+'é 石;:@#\\\t|{[~", "%2", "%2F", "%2f", "%41", "%7e", "%25", "%34", "..", "%2e", "%2E%2e"]
)
_TAILS = st.lists(_PIECES, max_size=12).map("".join)


@given(_TAILS)
def test_canonical_form_is_idempotent(tail: str) -> None:
    """Canonicalizing a canonical URL changes nothing, whatever escapes it holds."""
    once = urls.canonicalize("http://Example.COM/" + tail)
    assert urls.canonicalize(once) == once


@given(st.text(max_size=60))
def test_any_text_is_a_link_or_a_reason(href: str) -> None:
    """No href raises out of ``Base.resolve``, and a link never holds a fragment, a blank or a backslash."""
    found = Base("http://example.com/a/b?c").resolve(href)
    if isinstance(found, Link):
        assert found.url.startswith(("http://", "https://"))
        assert not set("# \\\n") & set(found.url)
        assert urls.wire(found.url) == found.url
    else:
        assert found in (Reason.BAD_URL, Reason.SCHEME, Reason.URL_TOO_LONG)


@given(
    st.sampled_from(["http://example.com/a/b?c=1", "https://example.com/", "http://example.com:8080/x/y/"]),
    st.lists(
        st.sampled_from(
            ["/", "//h.example", "?", "x", "..", "http:", "https:", "http://", ":", "#", "y=1", "\t"]
        ),
        max_size=6,
    ).map("".join),
)
def test_shared_answers_equal_the_url_standard(base: str, href: str) -> None:
    """Resolving by origin or folder, as the cache does, gives what the URL standard gives for the whole base."""
    found = Base(base).resolve(href)
    try:
        expected = join_url(base, href).partition("#")[0]
    except ValueError:
        expected = None
    if isinstance(found, Link):
        assert found.url == expected
    elif expected is not None and expected.startswith("http"):
        # Only hosts that DNS cannot know are refused beyond the standard.
        assert found is Reason.BAD_URL


@pytest.mark.parametrize(
    "spelled",
    [
        "/cmp/Dia%25", "/a%26b", "/a%2Fb", "/a%3Fb", "/x%23y", "/a+b", "/a%20b", "/100%", "/q?wsdl",
        "/q?/topic/5-abc/&do=find", "/q?a=&b", "/q?b=2&a=1", "/it's-here", "/a(b)c,d;e", "/~u/@v/$w",
    ],
)  # fmt: skip
def test_wire_form_keeps_the_spelling(spelled: str) -> None:
    """What the site spelled is what the site is asked for."""
    assert urls.join("http://h.example/links", spelled) == "http://h.example" + spelled


@pytest.mark.parametrize(
    ("url", "canonical"),
    [
        ("http://H.example:80/", "http://h.example/"),
        ("https://h.example:443", "https://h.example/"),
        ("http://h.example/%7eu/%41", "http://h.example/~u/A"),
        ("http://h.example/a%2fb", "http://h.example/a%2Fb"),
        ("http://h.example/a%26b?x=%26", "http://h.example/a%26b?x=%26"),
        ("http://h.example/%%34%31", "http://h.example/%%34%31"),
        ("http://h.example/../a/./b/..#top", "http://h.example/a/"),
        ("http://user:pw@h.example/x", "http://h.example/x"),
        ("http://0x7f.1/", "http://127.0.0.1/"),
        ("http://bücher.example/ü", "http://xn--bcher-kva.example/%C3%BC"),
        ("http://h.example/q?b=2&a=1", "http://h.example/q?b=2&a=1"),
    ],
)
def test_canonical_form(url: str, canonical: str) -> None:
    """Spellings of one resource meet in one key; nothing reserved is decoded or reordered."""
    assert urls.canonicalize(url) == canonical


@pytest.mark.parametrize(
    ("url", "key"),
    [
        ("http://A.example/x", "a.example"),
        ("https://a.example/x", "a.example"),
        ("http://a.example:8080/", "a.example:8080"),
        ("https://a.example:80/", "a.example:80"),
        ("http://a.example./", "a.example"),
        ("http://[::1]/", "[::1]"),
        ("http://[::1]:8000/", "[::1]:8000"),
        ("http://me@127.0.0.1:5000/", "127.0.0.1:5000"),
    ],
)
def test_host_key(url: str, key: str) -> None:
    """The politeness key names the port only when it is not the scheme's own."""
    assert urls.host_key(url) == key


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("http://[", Reason.BAD_URL),
        ("http://h:99999/", Reason.BAD_URL),
        ("http://h:port/", Reason.BAD_URL),
        ("http://", Reason.BAD_URL),
        ("http://%zz/", Reason.BAD_URL),
        ("http://a b/", Reason.BAD_URL),
        ("http://x.....y/", Reason.BAD_URL),
        ("http://./", Reason.BAD_URL),
        ("http://" + "a" * 64 + ".example/", Reason.BAD_URL),
        ("http://h/\ud800", Reason.BAD_URL),
        ("", Reason.BAD_URL),
        ("page.html", Reason.BAD_URL),
        ("javascript:void(0)", Reason.SCHEME),
        ("mailto:a@b.example", Reason.SCHEME),
        ("ftp://h.example/x", Reason.SCHEME),
        ("file:///etc/passwd", Reason.SCHEME),
        ("view-source:http://h/", Reason.SCHEME),
        ("data:text/html," + "x" * 100_000, Reason.SCHEME),
        ("http://h.example/" + "x" * 2032, Reason.URL_TOO_LONG),
        ("http://h.example/" + "x" * 100_000, Reason.URL_TOO_LONG),
    ],
)
def test_refused(url: str, reason: Reason) -> None:
    """What cannot be asked for is refused with its reason."""
    with pytest.raises(FetchError) as caught:
        urls.resolve(url)
    assert caught.value.reason == reason
    assert not caught.value.retry


def test_length_limit_is_exact() -> None:
    """2,048 characters are admitted, one more is not."""
    longest = "http://h.example/" + "x" * (urls.MAX_URL_LENGTH - len("http://h.example/"))
    assert len(urls.wire(longest)) == urls.MAX_URL_LENGTH
    with pytest.raises(FetchError):
        urls.wire(longest + "x")


def test_link_carries_what_the_frontier_needs() -> None:
    """A link's parts are those that the single functions give."""
    link = urls.resolve("../X?q=%7E#frag", "http://u:p@H.example:8080/a/b/c")
    assert link.url == "http://h.example:8080/a/X?q=%7E"
    assert link.canonical == "http://h.example:8080/a/X?q=~"
    assert link.fingerprint == urls.fingerprint(link.canonical)
    assert len(link.fingerprint) == urls.FINGERPRINT_BYTES
    assert link.host_key == "h.example:8080"


def test_fingerprint_is_stable() -> None:
    """Fingerprints are stored, so that they must never change between releases."""
    assert urls.fingerprint("http://example.com/").hex() == "9aba6a18c5a5d94534a3b99c485d4547"


def test_canonical_agrees_with_the_standard_without_escapes() -> None:
    """Without escapes the canonical form is the URL standard's own, less the fragment."""
    assert urls.canonicalize("HTTP://h.example/a b#c") == normalize_url("http://h.example/a b")
