"""The pool under one command: this process serves the app, a supervised child crawls."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

from flask import Flask
from flask.cli import ScriptInfo

from flask_spiderpool.cli.serve import WebServer
from flask_spiderpool.cli.supervise import Supervisor

WORKER_EXTRA_S = 15.0  #: beyond the stop grace: the last settle, Celery's own end


@dataclass(frozen=True, slots=True)
class Running:
    """What runs."""

    web: WebServer
    worker: Supervisor
    stop: threading.Event  #: set when a signal asks for the end


def flask_command(info: ScriptInfo) -> list[str]:
    """Return the command that begins this very app's command line again."""
    words = [sys.executable, "-m", "flask"]
    if info.app_import_path:
        return [*words, "--app", info.app_import_path]
    if info.create_app is not None and "spiderpool" in sys.argv:
        # A host with a command of its own (FlaskGroup(create_app=...)): everything before our name.
        return [sys.executable, *sys.argv[: sys.argv.index("spiderpool")]]
    return words


@contextmanager
def running(
    app: Flask, info: ScriptInfo, web: WebServer, worker_options: Sequence[str], stop_grace_s: float
) -> Iterator[Running]:
    """Start web and worker, yield, and end both in order. SIGTERM and SIGINT set ``stop``."""
    stop = threading.Event()
    worker = Supervisor(
        [*flask_command(info), "spiderpool", "worker", *worker_options], grace_s=stop_grace_s + WORKER_EXTRA_S
    )

    def on_signal(number: int, frame: FrameType | None) -> None:
        stop.set()

    before = {number: signal.signal(number, on_signal) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        web.start()
        worker.start()
        yield Running(web, worker, stop)
    finally:
        # The worker first: its slices may still be asking pages of this very server.
        worker.stop()
        web.close()
        for number, handler in before.items():
            signal.signal(number, handler)
