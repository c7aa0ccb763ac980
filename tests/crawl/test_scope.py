"""Scope: which URLs belong to a task."""

from __future__ import annotations

import pytest

from flask_spiderpool.crawl.scope import Scope
from flask_spiderpool.errors import InvalidParameter
from flask_spiderpool.terms import Reason


@pytest.mark.parametrize(
    ("entry", "url", "inside"),
    [
        ("example.com", "http://example.com/", True),
        ("example.com", "https://www.example.com/x", True),
        ("example.com", "http://example.com:8080/", True),
        ("example.com", "http://badexample.com/", False),
        ("example.com", "http://example.com.evil.example/", False),
        ("example.com", "http://example.org/", False),
        ("EXAMPLE.com", "http://example.com./", True),
        ("bücher.example", "http://xn--bcher-kva.example/", True),
        ("127.0.0.1:8000", "http://127.0.0.1:8000/x", True),
        ("127.0.0.1:8000", "http://127.0.0.1:8001/x", False),
        ("127.0.0.1:8000", "http://127.0.0.1/x", False),
        ("example.com:80", "http://example.com/", True),
        ("example.com:80", "https://example.com/", False),
        ("example.com:443", "https://example.com/", True),
        ("example.com:443", "http://example.com/", False),
        ("example.com:8000", "http://www.example.com:8000/", False),
        ("[::1]:8000", "http://[::1]:8000/", True),
        ("::1", "http://[::1]:9/", True),
        ("127.0.0.1", "http://127.0.0.1:5000/", True),
    ],
)
def test_allowed_domains(entry: str, url: str, inside: bool) -> None:
    """A host stands for itself and its subdomains on every port; host:port for exactly that."""
    scope = Scope(allowed_domains=(entry,))
    for _ in range(2):  # the second answer comes from memory
        assert scope.admit(url, 0) is (None if inside else Reason.SCOPE)


def test_no_domains_means_every_host() -> None:
    """An empty list leaves hosts open."""
    assert Scope().admit("http://anything.example/", 99) is None


def test_include_and_exclude() -> None:
    """Exclude wins over include; with any include one of them must match."""
    scope = Scope(include=("/news/", r"\.html$"), exclude=("print=1",))
    assert scope.admit("http://h.example/news/1", 0) is None
    assert scope.admit("http://h.example/x.html", 0) is None
    assert scope.admit("http://h.example/shop/", 0) is Reason.SCOPE
    assert scope.admit("http://h.example/news/1?print=1", 0) is Reason.SCOPE


def test_depth_and_length() -> None:
    """Limits are inclusive and named by their own reasons."""
    scope = Scope(max_depth=2, max_url_length=30)
    assert scope.admit("http://h.example/", 2) is None
    assert scope.admit("http://h.example/", 3) is Reason.DEPTH
    assert scope.admit("http://h.example/" + "x" * 13, 0) is None
    assert scope.admit("http://h.example/" + "x" * 14, 0) is Reason.URL_TOO_LONG


@pytest.mark.parametrize(
    ("scope", "url", "words"),
    [
        (Scope(max_depth=0), "http://h.example/", "max_depth 0"),
        (Scope(max_url_length=10), "http://h.example/", "max_url_length 10"),
        (Scope(allowed_domains=("a.example",)), "http://h.example/", "allowed_domains (a.example)"),
        (Scope(exclude=("q", "h.ex")), "http://h.example/", "exclude 'h.ex'"),
        (Scope(include=("shop",)), "http://h.example/", "no include"),
    ],
)
def test_explain_names_the_rule(scope: Scope, url: str, words: str) -> None:
    """A person is told which rule kept a URL out."""
    assert words in (scope.explain(url, 1) or "")


def test_explain_says_nothing_of_what_is_inside() -> None:
    """There is nothing to explain about a URL that belongs to the task."""
    assert Scope().explain("http://h.example/", 0) is None


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"allowed_domains": ("https://example.com/",)}, "allowed_domains"),
        ({"allowed_domains": ("*.example.com",)}, "allowed_domains"),
        ({"allowed_domains": ("",)}, "allowed_domains"),
        ({"allowed_domains": ("example.com:port",)}, "allowed_domains"),
        ({"include": ("(",)}, "include"),
        ({"exclude": ("a", "[z-a]")}, "exclude"),
        ({"max_depth": -1}, "max_depth"),
        ({"max_url_length": 0}, "max_url_length"),
        ({"max_url_length": 5000}, "max_url_length"),
    ],
)
def test_wrong_values_name_their_field(fields: dict[str, object], name: str) -> None:
    """A wrong value is refused at once, by its field."""
    with pytest.raises(InvalidParameter) as caught:
        Scope(**fields)  # type: ignore[arg-type]
    assert caught.value.field == name


def test_memory_of_hosts_is_bounded() -> None:
    """A page that names any number of hosts does not make the scope grow without end."""
    scope = Scope(allowed_domains=("example.com",))
    for number in range(10_050):
        scope.admit(f"http://h{number}.other.example/", 0)
    assert len(scope._origins) <= 10_000
    assert scope.admit("http://www.example.com/", 0) is None


def test_equal_rules_are_equal_scopes() -> None:
    """What a scope remembers is no part of what it is."""
    first, second = Scope(allowed_domains=("a.example",)), Scope(allowed_domains=("a.example",))
    first.admit("http://a.example/", 0)
    assert first == second
