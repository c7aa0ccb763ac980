"""The run of one foreground crawl: slices in a thread, rows, progress and signals in this one."""

from __future__ import annotations

import contextlib
import json
import shlex
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import FrameType
from typing import Any

import click

from flask_spiderpool.cli.crawl_file import CrawlFile
from flask_spiderpool.cli.crawl_output import CrawlOutput
from flask_spiderpool.cli.group import EXIT_FAILED, EXIT_INTERRUPTED
from flask_spiderpool.cli.progress import ENDING, CrawlProgress, counted, summary
from flask_spiderpool.cli.remedy import pasteable
from flask_spiderpool.tasks.pump import work_through
from flask_spiderpool.tasks.runtime import Runtime
from flask_spiderpool.terms import Reason, Status

LOOK_S = 0.5  #: how often progress is shown and new rows are written


class CrawlRun:
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
                    progress.say(ENDING)
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
