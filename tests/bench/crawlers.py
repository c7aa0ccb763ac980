"""What is measured: Scrapy, our worker and our ``crawl`` command, each one run over the same site."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import sys
from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol

from tests.bench.measure import Running, Usage
from tests.bench.sites import peer_python, version_of

REPOSITORY = Path(__file__).resolve().parents[2]
AT_ONCE = 32


@dataclass
class Run:
    """The outcome of one run."""

    crawler: str
    pages: int  #: pages of the site fetched with status 200
    usage: Usage
    also: dict[str, Usage] = field(default_factory=dict)  #: commands around it that are no part of the crawl

    @property
    def pages_per_cpu_s(self) -> float:
        """Pages for each CPU second of the whole process tree, interpreter start included."""
        return self.pages / self.usage.cpu_s

    @property
    def pages_per_s(self) -> float:
        """Pages for each second on the clock, interpreter start included."""
        return self.pages / self.usage.wall_s

    def to_json(self) -> dict[str, Any]:
        """Return all of it for the JSON file."""
        return asdict(self) | {"pages_per_cpu_s": self.pages_per_cpu_s, "pages_per_s": self.pages_per_s}


class Crawler(Protocol):
    """One way to crawl the site once."""

    name: str
    what: str  #: how it is run, for the table

    def run(self, base_url: str, folder: Path, core: int | None) -> Run:
        """Crawl the site from its front page, with everything it writes below the empty ``folder``."""
        ...


class Scrapy:
    """``scrapy crawl``: links followed by LinkExtractor, nothing stored."""

    name = "scrapy"
    project = Path(__file__).parent / "peers" / "scrapy_project"

    def __init__(self) -> None:
        self._python = peer_python("scrapy")
        self.what = f"Scrapy {version_of(self._python, 'scrapy')}, `scrapy crawl`"

    def run(self, base_url: str, folder: Path, core: int | None) -> Run:
        """Crawl once."""
        report = folder / "report.json"
        command = [str(self._python), "-m", "scrapy", "crawl", "herald"]
        command += ["-a", f"start={base_url}/index.html", "-a", f"report={report}"]
        env = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
        running = Running(command, env=env, cwd=self.project, core=core, log=folder / "log.txt")
        usage = running.wait()
        return Run(self.name, json.loads(report.read_text())["pages"], usage)


class Worker:
    """One worker process on SQLite, its task started by the CLI; links only, every guard on."""

    name = "worker"
    what = "Flask-SpiderPool, `flask spiderpool worker`, one process on SQLite"

    def __init__(self, rss_at: Sequence[int] = ()) -> None:
        self._rss_at = sorted(rss_at)

    def run(self, base_url: str, folder: Path, core: int | None) -> Run:
        """Crawl once: upgrade, worker, start; until the task's row says that it has ended."""
        database = folder / "pool.db"
        env = self._env(base_url, folder, database)
        log = folder / "log.txt"

        def flask(*arguments: str) -> Running:
            command = [sys.executable, "-m", "flask", "--app", "tests.bench.host", "spiderpool", *arguments]
            return Running(command, env=env, cwd=REPOSITORY, core=core, log=log)

        upgrade = flask("db", "upgrade").wait()
        start = flask("start", "article", f"{base_url}/index.html", *self._options()).wait()
        if upgrade.returncode or start.returncode:
            raise RuntimeError(f"db upgrade or start failed:\n{log.read_text()[-3000:]}")
        worker = flask("worker")
        usage = worker.wait(until=lambda: self._ended(database, worker))
        done, status = _task(database)
        if status != "finished":
            raise RuntimeError(f"the task ended {status}; see {log}")
        return Run(self.name, done, usage, {"db upgrade": upgrade, "start": start})

    def _options(self) -> list[str]:
        options = {
            "links_only": "true",
            "max_pages": "1000000",
            "concurrency": str(AT_ONCE),
            "concurrency_per_host": str(AT_ONCE),
            "delay_s": "0",
        }
        return [part for key, value in options.items() for part in ("--param", f"{key}={value}")]

    def _env(self, base_url: str, folder: Path, database: Path) -> dict[str, str]:
        config = {
            "SECRET_KEY": "bench",
            "SQLALCHEMY_DATABASE_URI": f"sqlite:///{database}",
            "SPIDERPOOL_ALLOW_ADDRESSES": [base_url.split("//", 1)[1]],
            # What the operator allows; a task may only be stricter.
            "SPIDERPOOL_DELAY_S": 0,
            "SPIDERPOOL_CONCURRENCY_PER_HOST": AT_ONCE,
        }
        (folder / "instance").mkdir()
        return {
            **{
                key: value
                for key, value in os.environ.items()
                if not key.startswith(("SPIDERPOOL_", "FLASK_"))
            },
            "BENCH_CONFIG": json.dumps(config),
            "BENCH_INSTANCE": str(folder / "instance"),
        }

    def _ended(self, database: Path, worker: Running) -> bool:
        done, status = _task(database)
        for mark in self._rss_at:
            if done >= mark and mark not in worker.usage.rss_at:
                worker.usage.rss_at[mark] = worker.rss_now()
        return status in ("finished", "failed", "stopped")


def _task(database: Path) -> tuple[int, str]:
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True, timeout=30)) as connection:
        row = connection.execute("SELECT done, status FROM spiderpool_task").fetchone()
    return row or (0, "pending")


class Command:
    """The foreground command ``crawl --links-only``, one row a page written as JSON lines."""

    name = "crawl"
    what = "Flask-SpiderPool, `flask spiderpool crawl --links-only`"

    def run(self, base_url: str, folder: Path, core: int | None) -> Run:
        """Crawl once."""
        output = folder / "out.jsonl"
        command = [sys.executable, "-m", "flask", "spiderpool", "crawl", f"{base_url}/index.html"]
        command += ["--links-only", "--allow", base_url.split("//", 1)[1], "-o", str(output), "--quiet"]
        command += ["--max-pages", "1000000", "--concurrency", str(AT_ONCE)]
        usage = Running(command, env=os.environ, cwd=folder, core=core, log=folder / "log.txt").wait()
        if usage.returncode:
            raise RuntimeError(f"crawl failed:\n{(folder / 'log.txt').read_text()[-3000:]}")
        with output.open(encoding="utf-8") as rows:
            pages = sum(json.loads(row)["status"] == 200 for row in rows)
        return Run(self.name, pages, usage)


def crawl_once(crawler: Crawler, base_url: str, folder: Path, core: int | None) -> Run:
    """Run a crawler in a new, empty folder that is removed when all went well."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    run = crawler.run(base_url, folder, core)
    shutil.rmtree(folder)
    return run
