"""A host's number."""

from __future__ import annotations

import pytest

from flask_spiderpool.store.hosts import host_id, key_of
from tests.store.frontiers import Frontier, link


def test_number_is_the_keys_for_ever() -> None:
    """The same on every machine and in every version: rows that stand in databases are named by it."""
    assert host_id("a.example") == 7369052659739465991
    assert all(0 <= host_id(f"h{number}.example") < 2**63 for number in range(200))


@pytest.mark.parametrize(
    ("url", "key"),
    [
        ("http://a.example/x", "a.example"),
        ("http://a.example:8080/x?y=http://b.example/", "a.example:8080"),
        ("https://a.example./", "a.example"),
        ("http://[::1]:81/", "[::1]:81"),
        ("what a runner recorded", ""),
        ("ftp://a.example/x", "a.example"),
    ],
)
def test_key_of_a_url(url: str, key: str) -> None:
    """As the engine works it out; what is no URL of ours raises nothing, since a lease must not."""
    assert key_of(url) == key


def test_lease_names_the_host(frontier: Frontier) -> None:
    """A leased request carries the key and the number of its host, without a row for the host."""
    ticket = frontier.claimed([link(1, "b.example:8080")])
    (request,) = frontier.take(ticket)
    assert (request.host_key, request.host_id) == ("b.example:8080", host_id("b.example:8080"))
