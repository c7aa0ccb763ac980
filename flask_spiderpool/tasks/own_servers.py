"""The app's own database, Redis and broker, which no crawl may reach whatever is allowed."""

from __future__ import annotations

from collections.abc import Iterable
from urllib.parse import urlsplit

#: Ports that a URL without one means.
DEFAULT_PORTS = {
    "postgresql": 5432,
    "postgres": 5432,
    "mysql": 3306,
    "mariadb": 3306,
    "redis": 6379,
    "rediss": 6379,
    "sentinel": 26379,
    "amqp": 5672,
    "amqps": 5671,
    "pyamqp": 5672,
}


def own_servers(urls: Iterable[str | None]) -> frozenset[tuple[str, int]]:
    """Return host and port of each URL that names a server; files, memory and sockets have none.

    A broker URL may hold several, parted by semicolons.
    """
    return frozenset(
        server
        for url in urls
        if url
        for one in url.split(";")
        if (server := _server(one.strip())) is not None
    )


def _server(url: str) -> tuple[str, int] | None:
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        return None
    scheme = parts.scheme.partition("+")[0].lower()
    port = port if port is not None else DEFAULT_PORTS.get(scheme)
    if scheme not in DEFAULT_PORTS or host is None or port is None:
        return None
    return host, port
