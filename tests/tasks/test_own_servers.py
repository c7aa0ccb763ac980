from __future__ import annotations

import pytest

from flask_spiderpool.tasks.own_servers import own_servers


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("redis://localhost:6380/0", {("localhost", 6380)}),
        ("rediss://user:pw@cache.example", {("cache.example", 6379)}),
        ("postgresql+psycopg://u:p@db.example/x", {("db.example", 5432)}),
        ("postgresql+psycopg://u:p@[::1]:5433/x", {("::1", 5433)}),
        ("amqp://a:1;amqp://b", {("a", 1), ("b", 5672)}),
        ("sqlite:////tmp/x.db", set()),
        ("filesystem://", set()),
        ("memory://", set()),
        ("unix:///run/redis.sock", set()),
        ("redis://host:port/0", set()),
        ("", set()),
        (None, set()),
    ],
)
def test_host_and_port_of_each_server(url: str | None, expected: set[tuple[str, int]]):
    """Only what listens on a port can be crawled by mistake, so only that is named."""
    assert own_servers([url]) == expected
