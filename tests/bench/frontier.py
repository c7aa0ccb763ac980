"""What lease and settle cost, and that they cost the same with a million requests queued and ten thousand
hosts parked ahead.

    python -m tests.bench.frontier                 # PostgreSQL and SQLite, 10,000 and 1,000,000 requests
    python -m tests.bench.frontier --large 100000  # a shorter run

Medians of milliseconds. A cycle leases 50 requests of one host and settles them with 40 links each, 90 % of
which the task knows, as FINDINGS measured the SQL alone; ``--text`` gives each page so many bytes of text.
"""

from __future__ import annotations

import argparse
import gc
import json
import random
import shutil
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from uuid import UUID

import sqlalchemy as sa

from flask_spiderpool.config import Settings
from flask_spiderpool.crawl.request import Outcome, Ticket
from flask_spiderpool.store import Store
from tests.servers.postgres import PostgresServer, create_database
from tests.servers.process import new_folder
from tests.store.frontiers import Frontier, done, key_of, link, page

BATCH = 50
LINKS = 40
NEW_LINKS = 4
PARKED_S = 3600.0
WARM_UP = 5


@dataclass(frozen=True, slots=True)
class Figures:
    """Medians of one frontier."""

    database: str
    queued: int
    parked_hosts: int
    lease_ms: float
    settle_ms: float
    settle_ms_a_page: float
    settle_cpu_ms_a_page: float  #: of this process


@contextmanager
def databases(names: list[str]) -> Iterator[Iterator[tuple[str, str]]]:
    """Yield fresh databases by name and URL."""
    folder = Path(tempfile.mkdtemp(prefix="spiderpool-bench-"))
    server = PostgresServer(new_folder("postgres")) if "postgresql" in names else None
    if server is not None:
        server.start()

    def each() -> Iterator[tuple[str, str]]:
        for number, name in enumerate(names):
            if name == "sqlite":
                yield name, f"sqlite:///{folder}/{number}.db"
            elif server is not None:
                create_database(server.conninfo("postgres"), f"bench{number}", "template0")
                yield name, server.url_of(f"bench{number}")

    try:
        yield each()
    finally:
        if server is not None:
            server.stop()
            shutil.rmtree(server.folder, ignore_errors=True)
        shutil.rmtree(folder, ignore_errors=True)


def fill(frontier: Frontier, task_id: UUID, queued: int, parked_hosts: int) -> None:
    """Queue ``queued`` requests of one ready host and ten of each parked host, by plain SQL."""
    key = frontier.key(task_id)
    host_id = frontier.value("SELECT host_id FROM spiderpool_lane WHERE task_id = :t", t=key)
    rows = [(host_id, f"http://a.example/fill/{number}") for number in range(queued)]
    parked = range(10_000_000, 10_000_000 + parked_hosts)
    rows += [(host, f"http://parked/{host}/{number}") for host in parked for number in range(10)]
    insert = sa.text(
        "INSERT INTO spiderpool_request (task_id, host_id, fingerprint, url, depth, priority, state, attempts,"
        " deaths, is_seed) VALUES (:t, :h, :f, :u, 1, 0, 0, 0, 0, FALSE)"
    )
    with frontier.host.begin() as connection:
        for start in range(0, len(rows), 10_000):
            connection.execute(
                insert, [{"t": key, "h": h, "f": key_of(u), "u": u} for h, u in rows[start : start + 10_000]]
            )
        connection.execute(
            sa.text("UPDATE spiderpool_lane SET queued = queued + :k WHERE task_id = :t"),
            {"t": key, "k": queued},
        )
        if parked_hosts:
            connection.execute(
                sa.text(
                    "INSERT INTO spiderpool_lane (task_id, host_id, ready_at, queued, has_work)"
                    " VALUES (:t, :h, :at, 10, TRUE)"
                ),
                [{"t": key, "h": host, "at": time.time() + PARKED_S} for host in parked],
            )
        connection.execute(
            sa.text("UPDATE spiderpool_task SET discovered = discovered + :k WHERE id = :t"),
            {"t": key, "k": len(rows)},
        )
    statement = "VACUUM ANALYZE" if frontier.host.dialect.name == "postgresql" else "ANALYZE"
    with frontier.host.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.exec_driver_sql(statement)


def outcomes_of(frontier: Frontier, ticket: Ticket, cycle: int, known: int, text: str) -> list[Outcome]:
    """Lease a batch and return its outcomes: 40 links a page, 4 of them new."""
    rng = random.Random(cycle)
    requests = frontier.take(ticket, BATCH, default=BATCH)
    assert len(requests) == BATCH
    outcomes = []
    for place, request in enumerate(requests):
        new = [link(f"new/{cycle}/{place}/{number}") for number in range(NEW_LINKS)]
        old = [link(f"fill/{rng.randrange(known)}") for _ in range(LINKS - NEW_LINKS)]
        body = page(request.url, f"{cycle} {place}", text=text or None, title="A title")
        outcomes.append(done(request, new + old, page=body))
    return outcomes


class Bench:
    """One frontier, filled, and what its cycles cost."""

    def __init__(self, database: str, url: str, queued: int, parked_hosts: int, text: str) -> None:
        self.database, self.queued, self.parked_hosts, self.text = database, queued, parked_hosts, text
        store = Store.open(url, Settings(lease_s=600))
        store.create_tables()
        self.frontier = Frontier(store, url)
        self.ticket = self.frontier.claimed(1, max_pages=10**9)
        fill(self.frontier, self.ticket.task_id, queued, parked_hosts)
        self.leases_ms: list[float] = []
        self.settles_ms: list[float] = []
        self.cpu_ms: list[float] = []

    def cycle(self, number: int) -> None:
        """Lease a batch and settle it, both measured, and put the next batch back."""
        store = self.frontier.store
        outcomes = outcomes_of(self.frontier, self.ticket, number, self.queued, self.text)
        gc.collect()
        cpu_began, began = time.process_time(), time.perf_counter()
        store.settle(self.ticket, outcomes)
        self.settles_ms.append((time.perf_counter() - began) * 1000)
        self.cpu_ms.append((time.process_time() - cpu_began) * 1000)
        began = time.perf_counter()
        taken = self.frontier.take(self.ticket, BATCH, default=BATCH)
        self.leases_ms.append((time.perf_counter() - began) * 1000)
        self.frontier.release(self.ticket, taken)

    def figures(self) -> Figures:
        """Return the medians, without the first cycles, after a look whether the numbers still reconcile."""
        told = self.frontier.store.reconcile(self.ticket.task_id)
        assert told["ok"], told
        settle_ms = statistics.median(self.settles_ms[WARM_UP:])
        return Figures(
            self.database,
            self.queued,
            self.parked_hosts,
            round(statistics.median(self.leases_ms[WARM_UP:]), 3),
            round(settle_ms, 2),
            round(settle_ms / BATCH, 3),
            round(statistics.median(self.cpu_ms[WARM_UP:]) / BATCH, 3),
        )


def words(length: int) -> str:
    """Return text that compresses as prose does."""
    rng = random.Random(7)
    known = ["pool", "crawl", "lease", "settle", "document", "page", "slice", "keeper", "frontier", "site"]
    parts: list[str] = []
    size = 0
    while size < length:
        parts.append(rng.choice(known) + str(rng.randrange(1000)))
        size += len(parts[-1]) + 1
    return " ".join(parts)[:length]


def main() -> None:
    """Measure and print, one JSON line a frontier, then the ratios."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--databases", default="postgresql,sqlite")
    parser.add_argument("--small", type=int, default=10_000)
    parser.add_argument("--large", type=int, default=1_000_000)
    parser.add_argument("--parked", type=int, default=10_000)
    parser.add_argument("--cycles", type=int, default=60)
    parser.add_argument("--text", type=int, default=0, help="bytes of text a page")
    arguments = parser.parse_args()
    text = words(arguments.text)
    names = [name for name in arguments.databases.split(",") for _ in range(2)]
    with databases(names) as each:
        urls = list(each)
        for (name, small_url), (_, large_url) in zip(urls[::2], urls[1::2], strict=True):
            small = Bench(name, small_url, arguments.small, 0, text)
            large = Bench(name, large_url, arguments.large, arguments.parked, text)
            # In turns, so that what else the machine does falls on both.
            for number in range(arguments.cycles + WARM_UP):
                small.cycle(number)
                large.cycle(number)
            found = [bench.figures() for bench in (small, large)]
            for figures in found:
                print(json.dumps(asdict(figures)), flush=True)
            print(
                f"{name}: lease x {found[1].lease_ms / found[0].lease_ms:.2f}, "
                f"settle x {found[1].settle_ms / found[0].settle_ms:.2f}",
                flush=True,
            )
            for bench in (small, large):
                bench.frontier.close()


if __name__ == "__main__":
    main()
