"""``flask spiderpool crawl URL``: one site, here and now, into one file."""

from __future__ import annotations

import contextlib
import json
import shlex
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import FrameType
from typing import Any
from urllib.parse import urlsplit

import click

from flask_spiderpool.cli.app import as_typed
from flask_spiderpool.cli.crawl_file import TEMPORARY, CrawlFile, closing
from flask_spiderpool.cli.crawl_output import CrawlOutput, refuse_overwriting
from flask_spiderpool.cli.group import EXIT_FAILED, EXIT_INTERRUPTED
from flask_spiderpool.cli.progress import CrawlProgress, counted, summary
from flask_spiderpool.cli.remedy import pasteable
from flask_spiderpool.cli.rows import writer_for
from flask_spiderpool.config import settings_from
from flask_spiderpool.errors import ConfigError, InvalidParameter
from flask_spiderpool.tasks.pump import work_through
from flask_spiderpool.tasks.runtime import Runtime
from flask_spiderpool.terms import Reason, Status

LOOK_S = 0.5  #: how often progress is shown and new rows are written


@click.command(short_help="Crawl a site here and now, into a file.")
@click.argument("url", required=False)
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    help="A .jsonl or .csv file, one row a document. Default: JSON lines on stdout.",
)
@click.option("--force", is_flag=True, help="Let the output take the place of a file that is there.")
@click.option(
    "--allow",
    multiple=True,
    metavar="HOST:PORT",
    help="Open one private address, as 127.0.0.1:8000. It is crawled without delay unless --delay is given; "
    "its robots.txt is obeyed.",
)
@click.option("--links-only", is_flag=True, help="Extract no text: URL, status and title of each page.")
@click.option("--max-pages", type=click.IntRange(min=1), help="Stop after that many pages.")
@click.option("--max-depth", type=click.IntRange(min=0), help="Follow links that far; 0 is the page alone.")
@click.option("--delay", type=click.FloatRange(0, 3600), help="Seconds between requests to one host.")
@click.option("--concurrency", type=click.IntRange(1, 1000), help="Requests under way at once.")
@click.option("--user-agent", help="What the site sees; name a contact.")
@click.option(
    "--resume",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Go on with an interrupted crawl: the .crawl file that it has left.",
)
@click.option("--json", "as_json", is_flag=True, help="Report the end as one JSON object.")
@click.option("-q", "--quiet", is_flag=True, help="Show no progress; a failure is told.")
def crawl(url: str | None, resume: Path | None, as_json: bool, quiet: bool, **given: Any) -> None:
    """Crawl the site of URL, politely, and write one row a document.

    Needs no app, no database and no broker. What has been done is kept in FILE.crawl until the crawl is
    finished; Ctrl-C ends it cleanly, and --resume goes on.

    Exit codes: 0 finished, 1 failed, 2 wrong usage, 130 interrupted.
    """
    if (url is None) == (resume is None):
        raise click.UsageError("give either a URL to crawl or --resume FILE")
    if resume is not None:
        refused = [f"--{name.replace('_', '-')}" for name, value in given.items() if value]
        if refused:
            raise click.UsageError(f"{', '.join(refused)}: a resumed crawl keeps what it was started with")
        with as_typed({"resume": "--resume"}):
            opened = CrawlFile.open(_crawl_path(resume))
        opened.take_over()
    else:
        assert url is not None
        with as_typed(_TYPED):
            opened = _begin(url, **given)
    with closing(opened) as crawl_file:
        code = _Crawl(crawl_file, as_json=as_json, quiet=quiet).run()
    raise SystemExit(code)


def _begin(
    url: str,
    *,
    output: Path | None,
    force: bool,
    allow: tuple[str, ...],
    links_only: bool,
    max_pages: int | None,
    max_depth: int | None,
    delay: float | None,
    concurrency: int | None,
    user_agent: str | None,
) -> CrawlFile:
    """Check everything that can be checked before the first request, then write the task."""
    settings: dict[str, Any] = {"SPIDERPOOL_ALLOW_ADDRESSES": list(allow)}
    if user_agent is not None:
        settings["SPIDERPOOL_USER_AGENT"] = user_agent
    params: dict[str, Any] = {
        "links_only": links_only or None,
        "max_pages": max_pages,
        "max_depth": max_depth,
        "concurrency": concurrency,
        "concurrency_per_host": concurrency,
        # The operator at the shell named this address; its robots.txt still holds.
        "delay_s": 0.0 if delay is None and _is_named(url, allow) else delay,
    }
    _check_allowed(allow, url)
    _check(settings)
    if output is not None:
        writer_for(output)
        path = _crawl_path(output)
        if not force and not path.exists():
            refuse_overwriting(output)
    else:
        path = Path(tempfile.mkdtemp(prefix=TEMPORARY)) / "stdout.crawl"
    words = {"settings": settings, "output": str(output.absolute()) if output is not None else None}
    crawl_file = CrawlFile.new(path, words)
    try:
        crawl_file.start(url, **{name: value for name, value in params.items() if value is not None})
    except BaseException:
        crawl_file.close(delete=True)
        raise
    return crawl_file


#: What is wrong is named as the person typed it.
_TYPED = {
    "start_urls": "URL",
    "output": "-o",
    "resume": "-o",
    "delay_s": "--delay",
    "max_pages": "--max-pages",
    "max_depth": "--max-depth",
    "concurrency": "--concurrency",
    "concurrency_per_host": "--concurrency",
}
#: The options that are settings of the pool, as a person at the shell knows them.
_OPTIONS = {"SPIDERPOOL_ALLOW_ADDRESSES": "--allow", "SPIDERPOOL_USER_AGENT": "--user-agent"}


def _check(settings: dict[str, Any]) -> None:
    try:
        settings_from(settings)
    except ConfigError as error:
        field, _, message = error.faults[0].partition(" is ")
        raise InvalidParameter(_OPTIONS.get(field, field), message) from None


def _check_allowed(allow: tuple[str, ...], url: str) -> None:
    """Name the first wrong --allow, and what was probably meant."""
    for entry in allow:
        try:
            settings_from({"SPIDERPOOL_ALLOW_ADDRESSES": [entry]})
        except ConfigError:
            meant = _host_and_port(entry) if "//" in entry else _host_and_port(url)
            likely = meant is not None and ("//" in entry or meant.startswith(f"{entry.strip()}:"))
            hint = f"; did you mean {meant}?" if likely else ""
            raise InvalidParameter(
                "--allow",
                f"{entry!r:.100} is neither HOST:PORT, as 127.0.0.1:8000, nor a network, as 10.0.0.0/8{hint}",
            ) from None


def _host_and_port(url: str) -> str | None:
    """Return ``host:port`` of a URL, as --allow takes it."""
    try:
        parts = urlsplit(url)
        port = parts.port or {"http": 80, "https": 443}.get(parts.scheme)
    except ValueError:
        return None
    host = parts.hostname or ""
    return (f"[{host}]:{port}" if ":" in host else f"{host}:{port}") if host and port else None


def _is_named(url: str, allow: tuple[str, ...]) -> bool:
    return _host_and_port(url) in {entry.strip().lower() for entry in allow}


def _crawl_path(path: Path) -> Path:
    """Return the crawl's own file: beside the output, or the file itself when that was named."""
    return (path if path.suffix == ".crawl" else path.with_name(path.name + ".crawl")).absolute()


class _Crawl:
    """The run of one crawl: slices in a thread, rows and progress in this one."""

    def __init__(self, crawl_file: CrawlFile, *, as_json: bool, quiet: bool) -> None:
        self._file = crawl_file
        self._as_json = as_json
        self._quiet = quiet
        self._output = Path(crawl_file.words["output"]) if crawl_file.words["output"] else None
        self._interrupted = threading.Event()
        self._error: BaseException | None = None
        self._page_id = 0

    def run(self) -> int:
        """Crawl to the end, or to Ctrl-C; return the exit code."""
        began = time.monotonic()
        output = CrawlOutput(self._output)
        runtime = self._file.runtime()
        thread = threading.Thread(target=self._work, args=(runtime,), name="spiderpool-crawl", daemon=True)
        try:
            with self._signals(runtime.drain):
                try:
                    thread.start()
                    self._watch(thread, output)
                finally:
                    runtime.close()
                self._write_rows(output)
        finally:
            output.close(finished=self._file.task().status == Status.FINISHED)
        if self._error is not None:
            raise self._error
        return self._report(output, time.monotonic() - began)

    def _watch(self, thread: threading.Thread, output: CrawlOutput) -> None:
        with CrawlProgress("crawl", sys.stderr, quiet=self._quiet) as progress:
            while thread.is_alive():
                thread.join(LOOK_S)
                self._write_rows(output)
                progress.show(self._file.numbers(), self._file.waiting())
                if self._interrupted.is_set():
                    progress.say("ending: requests that were started finish first")
                    self._interrupted.clear()

    def _work(self, runtime: Runtime) -> None:
        try:
            work_through(runtime, self._file.task_id(), self._file.messages(), wait=runtime.wait_for_drain)
        except BaseException as error:
            self._error = error

    def _write_rows(self, output: CrawlOutput) -> None:
        """Write what is new. A resumed crawl writes its file anew from what the crawl's own file holds."""
        batch = list(self._file.rows(self._page_id))
        if batch:
            self._page_id = batch[-1][0]
            output.write(row for _, row in batch)

    @contextlib.contextmanager
    def _signals(self, drain: Callable[[], None]) -> Iterator[None]:
        """Ctrl-C and SIGTERM end the crawl in order; the second Ctrl-C ends it at once."""

        def on_signal(number: int, frame: FrameType | None) -> None:
            self._interrupted.set()
            signal.signal(number, signal.SIG_DFL)
            threading.Thread(target=drain, daemon=True).start()

        before = {number: signal.signal(number, on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _report(self, output: CrawlOutput, elapsed_s: float) -> int:
        task, numbers = self._file.task(), self._file.numbers()
        ended = task.ended_at is not None
        code = EXIT_INTERRUPTED if not ended else EXIT_FAILED if task.status == Status.FAILED else 0
        report = {
            "status": task.status if ended else "interrupted",
            "reason": task.end_reason,
            "rows": output.rows,
            "output": str(self._output) if self._output and output.stands else None,
            "resume": None if ended else str(self._file.path),
            "elapsed_s": round(elapsed_s, 2),
            "numbers": numbers,
        }
        if self._as_json:
            click.echo(json.dumps(report), err=self._output is None)
        elif not self._quiet or code:
            words = f"{summary(numbers)}, in {elapsed_s:.1f} s"
            for line in [*_words(report, words), *self._faults(numbers)]:
                click.echo(line, err=True)
            if self._output and not output.stands:
                kept = " and is as it was" if self._output.exists() else ""
                click.echo(f"no rows: {self._output} was not written{kept}", err=True)
        return code

    def _faults(self, numbers: Mapping[str, Any]) -> Iterator[str]:
        """Say why pages failed or were skipped, an example each."""
        if not numbers["failed"] and not numbers["skipped"]:
            return
        for fault in self._file.faults():
            yield str(fault)
            if fault.reason == Reason.BLOCKED_ADDRESS and fault.refused_address:
                yield f"    for this command: --allow {fault.refused_address}"


def _words(report: dict[str, Any], numbers: str) -> Iterator[str]:
    reason = f" ({report['reason']})" if report["reason"] else ""
    yield f"{report['status']}{reason}: {numbers}"
    if report["output"]:
        yield f"{counted(report['rows'], 'row')} in {report['output']}"
    if report["resume"]:
        yield pasteable(f"go on with: flask spiderpool crawl --resume {shlex.quote(report['resume'])}")
