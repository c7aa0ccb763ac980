"""The app's own database, Redis and broker, which no crawl may reach whatever is allowed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from urllib.parse import parse_qs, urlsplit

import sqlalchemy as sa

#: Ports that a URL without one means.
DEFAULT_PORTS = {
    "postgresql": 5432,
    "postgres": 5432,
    "mysql": 3306,
    "mariadb": 3306,
    "oracle": 1521,
    "mssql": 1433,
    "redis": 6379,
    "rediss": 6379,
    "sentinel": 26379,
    "amqp": 5672,
    "amqps": 5671,
    "pyamqp": 5672,
    "librabbitmq": 5672,
    "qpid": 5672,
    "confluentkafka": 9092,
    "mongodb": 27017,
    "memcached": 11211,
    "memcache": 11211,
    "pylibmc": 11211,
    "pymemcache": 11211,
    "elasticsearch": 9200,
    "couchdb": 5984,
    "couchbase": 8091,
    "riak": 8087,
    "arangodb": 8529,
    "cassandra": 9042,
    "consul": 8500,
    "etcd": 2379,
    "zookeeper": 2181,
}


def own_servers(urls: Iterable[str | None]) -> frozenset[tuple[str, int]]:
    """Return host and port of each server that the URLs name; files and memory have none.

    Several servers in one URL: parted by semicolons (Celery), hosts parted by commas (libpq, MongoDB), ``host``
    and ``port`` in the query (libpq). Where it is not sure which port belongs to which host all pairs are
    returned, and a URL without a host means this machine, its socket too: one address too many is no harm.
    """
    return frozenset(server for url in urls if url for one in _parted(url) for server in _servers(one))


def _parted(url: str) -> Iterator[str]:
    """Part at semicolons; what has no scheme has that of the first, as in ``cache+memcached://a;b``."""
    scheme, _, rest = url.partition("://")
    for one in rest.split(";"):
        one = one.strip()
        yield one if "://" in one else f"{scheme.strip()}://{one}"


def _servers(url: str) -> Iterator[tuple[str, int]]:
    scheme = url.partition("://")[0].lower()
    # The driver stands behind a plus, and Celery's "db", "sqla" and "cache" before one.
    known = [DEFAULT_PORTS[part] for part in scheme.split("+") if part in DEFAULT_PORTS]
    if not known:
        return
    hosts, query = _read(url)
    named = _listed(query, "host") + _listed(query, "hostaddr")
    ports = [int(port) for port in _listed(query, "port") if port.isdecimal()]
    for host, port in map(_host_and_port, hosts + named or ["localhost"]):
        if port is None or port.isdecimal():
            for one in [int(port)] if port else [known[0], *ports]:
                yield host, one


def _read(url: str) -> tuple[list[str], dict[str, Sequence[str]]]:
    """Return the hosts, with their ports, and the query of a URL: as the standard says, and as SQLAlchemy does.

    SQLAlchemy alone takes a password with ``/``, ``?`` or ``#`` in it, and refuses a list of hosts.
    """
    hosts: list[str] = []
    query: dict[str, Sequence[str]] = {}
    try:
        parts = urlsplit(url)
    except ValueError:
        pass
    else:
        hosts += parts.netloc.rpartition("@")[2].split(",")
        query |= parse_qs(parts.query)
    try:
        database = sa.make_url(url)
    except (sa.exc.ArgumentError, ValueError):
        pass
    else:
        port = "" if database.port is None else f":{database.port}"
        hosts += [f"[{host}]{port}" for host in (database.host or "").split(",") if host]
        query |= database.normalized_query
    return [host for host in hosts if host], query


def _listed(query: dict[str, Sequence[str]], name: str) -> list[str]:
    return [word.strip() for value in query.get(name, ()) for word in value.split(",") if word.strip()]


def _host_and_port(text: str) -> tuple[str, str | None]:
    """Part ``host:port``, ``[address]:port`` or a bare address; a path is a socket of this machine."""
    if text.startswith("/"):
        return "localhost", None
    if text.startswith("["):
        host, _, port = text[1:].partition("]")
        return host, port.removeprefix(":") or None
    if text.count(":") > 1:
        return text, None
    host, _, port = text.partition(":")
    return host or "localhost", port or None
