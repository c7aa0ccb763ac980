"""``up`` and ``demo``: web and worker under one command, as real processes."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import psutil
import pytest

from flask_spiderpool.cli import serve
from flask_spiderpool.errors import Unavailable
from tests.cli.demo_app import PAGES
from tests.cli.test_supervise import until

pytestmark = pytest.mark.blackbox

ROOT = Path(__file__).parents[2]


class Command:
    """One command of the little app, in a session of its own."""

    def __init__(self, folder: Path, *words: str) -> None:
        self.log = folder / "command.log"
        env = {
            **os.environ,
            "DEMO_APP_FOLDER": str(folder),
            "SPIDERPOOL_STOP_GRACE_S": "2",
            "SPIDERPOOL_KEEPER_S": "0.2",
            "PYTHONUNBUFFERED": "1",
        }
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "flask", "--app", "tests.cli.demo_app", "spiderpool", *words],
                cwd=ROOT,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def said(self) -> str:
        return self.log.read_text()

    def worker(self) -> psutil.Process | None:
        """Return the supervised worker once it runs."""
        for child in psutil.Process(self.process.pid).children():
            with contextlib.suppress(psutil.NoSuchProcess):
                if "worker" in child.cmdline():
                    return child
        return None

    def end(self) -> None:
        descendants: list[psutil.Process] = []
        if self.process.poll() is None:
            descendants = psutil.Process(self.process.pid).children(recursive=True)
            self.process.kill()
        self.process.wait()
        for child in descendants:
            with contextlib.suppress(psutil.NoSuchProcess):
                child.kill()


@pytest.fixture
def commands() -> Iterator[list[Command]]:
    made: list[Command] = []
    yield made
    for command in made:
        command.end()


def url_of(command: Command, word: str) -> str:
    """Return the URL that the command has printed after ``word``."""

    def find() -> str:
        assert command.process.poll() is None, command.said
        lines = [line.split() for line in command.said.splitlines()]
        return next((line[1] for line in lines if line[:1] == [word] and len(line) > 1), "")

    found: str = until(find, 60)
    return found.rstrip("/")


def test_up_serves_and_supervises_and_ends_in_order(commands: list[Command], tmp_path: Path):
    """It makes the tables, says where everything is, starts a killed worker again, and leaves nothing running."""
    command = Command(tmp_path, "up", "--port", "0")
    commands.append(command)
    url = url_of(command, "web")
    until(lambda: "Ctrl-C ends both" in command.said, 10)
    assert "flask --app tests.cli.demo_app spiderpool token create NAME" in command.said
    assert f"broker    {tmp_path}/spiderpool-broker" in command.said
    assert httpx.get(f"{url}/site/1").status_code == 200
    assert httpx.get(f"{url}/spiderpool/spool/status").status_code in (401, 403)
    with sqlite3.connect(tmp_path / "demo.db") as connection:
        assert connection.execute("SELECT count(*) FROM spiderpool_task").fetchone() == (0,)
    connection.close()
    first = until(command.worker, 30)
    first.kill()
    until(lambda: (found := command.worker()) is not None and found.pid != first.pid, 30)
    second = command.worker()
    assert second is not None
    command.process.send_signal(signal.SIGTERM)
    assert command.process.wait(40) == 0
    assert not second.is_running()


def test_up_says_when_its_port_is_taken(commands: list[Command], tmp_path: Path):
    """One line that names the option; no worker is left behind."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        command = Command(tmp_path, "up", "--port", str(taken.getsockname()[1]))
        commands.append(command)
        assert command.process.wait(60) == 1
    assert command.said.count("ddress already in use") == 1
    assert "--port" in command.said
    assert "Traceback" not in command.said


def test_up_without_a_port_takes_a_free_one(monkeypatch: pytest.MonkeyPatch):
    """When the usual one is taken and none was named, as demo does."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        monkeypatch.setattr(serve, "PORT", taken.getsockname()[1])
        address = serve.address_for("127.0.0.1", None)
        address.socket.close()
        assert address.port not in (0, serve.PORT)
        with pytest.raises(Unavailable):
            serve.address_for("127.0.0.1", serve.PORT)


def test_demo_once_crawls_the_apps_own_site(commands: list[Command], tmp_path: Path):
    """Real HTTP on loopback, plain progress in a pipe, the result told, exit code 0."""
    command = Command(tmp_path, "demo", "--once", "--port", "0")
    commands.append(command)
    assert command.process.wait(90) == 0, command.said
    assert f"finished (complete): {PAGES} pages" in command.said
    assert "site: " in command.said
    assert "Page 3" in command.said
    assert "flask --app tests.cli.demo_app spiderpool tasks" in command.said
    with sqlite3.connect(tmp_path / "demo.db") as connection:
        assert connection.execute("SELECT count(*) FROM spiderpool_document").fetchone() == (PAGES,)
    connection.close()


def test_demo_without_a_spider_says_what_to_do(commands: list[Command], tmp_path: Path):
    """Wrong usage, before anything is started."""
    command = Command(tmp_path, "demo", "--once", "--port", "0", "--spider", "stie")
    commands.append(command)
    assert command.process.wait(60) == 2
    assert "did you mean 'site'" in command.said


def test_demo_ends_with_ctrl_c(commands: list[Command], tmp_path: Path):
    """After the crawl it serves on; Ctrl-C ends it in order."""
    command = Command(tmp_path, "demo", "--port", "0")
    commands.append(command)
    url = url_of(command, "serving")
    until(lambda: "serving until Ctrl-C" in command.said, 90)
    assert httpx.get(f"{url}/site/2").status_code == 200
    worker = until(command.worker, 5)
    command.process.send_signal(signal.SIGINT)
    assert command.process.wait(40) == 0
    assert "ending: requests that were started finish first" in command.said
    assert not worker.is_running()
