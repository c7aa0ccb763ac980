"""A real worker of :mod:`tests.tasks.worker_app`, its database, and the command line beside it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from uuid import UUID

from flask_spiderpool import migrations
from flask_spiderpool.config import Settings, settings_from
from flask_spiderpool.pulse.base import WorkerPulse
from flask_spiderpool.store import Store
from flask_spiderpool.store.pulse import DatabasePulse

ROOT = Path(__file__).parents[2]

#: Short times, so that a test sees a lease expire; what they are to each other is as in PROTOCOL's numbers.
SHORT = {
    "SPIDERPOOL_LEASE_S": "4",
    "SPIDERPOOL_SLICE_S": "3",
    "SPIDERPOOL_SEND_MARGIN_S": "0.5",
    "SPIDERPOOL_RESEND_S": "1",
    "SPIDERPOOL_RESEND_MAX_S": "2",
    "SPIDERPOOL_KEEPER_S": "0.2",
    "SPIDERPOOL_STOP_GRACE_S": "5",
    "SPIDERPOOL_DELAY_S": "0",
    "SPIDERPOOL_BUS_POLL_S": "0.1",
}


def until(true: Callable[[], Any], within_s: float = 60.0) -> Any:
    """Wait until something has become true; return it."""
    end = time.monotonic() + within_s
    while not (value := true()):
        assert time.monotonic() < end, "it did not come true in time"
        time.sleep(0.05)
    return value


class Deployment:
    """One app on one database: its commands, its workers, its store."""

    def __init__(self, folder: Path, database_url: str, settings: Mapping[str, str]) -> None:
        self.database_url = database_url
        self.settings = {**SHORT, **settings}
        self.env = {
            **os.environ,
            **self.settings,
            "WORKER_APP_FOLDER": str(folder),
            "WORKER_APP_DATABASE": database_url,
        }
        self.log = folder / "worker.log"
        self.workers: list[subprocess.Popen[bytes]] = []
        self._store: Store | None = None
        migrations.upgrade(database_url)

    @property
    def store(self) -> Store:
        """A store of the test's own on the same database."""
        if self._store is None:
            checked: Settings = settings_from(self.settings)
            self._store = Store.open(self.database_url, checked)
        return self._store

    def command(self, *words: str) -> list[str]:
        """Return a command line of ``flask spiderpool``."""
        return [sys.executable, "-m", "flask", "--app", "tests.tasks.worker_app", "spiderpool", *words]

    def run(self, *words: str, code: int = 0) -> Any:
        """Run a command to its end and return its JSON, or its text."""
        done = subprocess.run(
            self.command(*words),
            cwd=ROOT,
            env=self.env,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        assert done.returncode == code, done.stderr
        return json.loads(done.stdout) if "--json" in words else done.stdout + done.stderr

    def start_worker(self, *options: str) -> subprocess.Popen[bytes]:
        """Start a worker in a session of its own."""
        with self.log.open("ab") as log:
            worker = subprocess.Popen(
                self.command("worker", "--quiet", *options),
                cwd=ROOT,
                env=self.env,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self.workers.append(worker)
        return worker

    def start_task(self, *words: str) -> UUID:
        """Start a task and return its id."""
        return UUID(self.run("start", *words, "--json")["task_id"])

    def numbers(self, task_id: UUID) -> dict[str, Any]:
        """Return a task's numbers as they are now."""
        return self.store.numbers(task_id)

    def wait_for(self, task_id: UUID, status: str, within_s: float = 90.0) -> dict[str, Any]:
        """Wait until a task has a status; return its numbers."""
        until(lambda: self.numbers(task_id)["status"] == status, within_s)
        return self.numbers(task_id)

    def workers_alive(self) -> list[WorkerPulse]:
        """Return the workers that have a beat."""
        return DatabasePulse(self.store).workers(30)

    def end(self) -> None:
        """Kill what still runs."""
        for worker in self.workers:
            if worker.poll() is None:
                os.killpg(worker.pid, signal.SIGKILL)
            worker.wait()
        if self._store is not None:
            self._store.close()
