"""The whole pool as an operator runs it: processes of their own, reached by CLI, REST and the database only."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx
import psutil
import sqlalchemy as sa
from sqlalchemy.orm import Session

from flask_spiderpool.models import History, Task
from flask_spiderpool.store import verbs
from flask_spiderpool.terms import ENDED, Status, Verb
from tests.blackbox.life import REPOSITORY, Kill, Life, argument_of, eventually, wait_gone
from tests.blackbox.site import Site
from tests.servers.process import free_port
from tests.servers.redis import RedisServer

#: Leases and waits short enough for a test; what they are to each other is as in PROTOCOL's *Numbers*.
SHORT = {
    "SPIDERPOOL_LEASE_S": 3,
    "SPIDERPOOL_SLICE_S": 5,
    "SPIDERPOOL_SEND_MARGIN_S": 0.5,
    "SPIDERPOOL_RESEND_S": 2,
    "SPIDERPOOL_RESEND_MAX_S": 4,
    "SPIDERPOOL_KEEPER_S": 0.5,
    "SPIDERPOOL_STOP_GRACE_S": 2,
    "SPIDERPOOL_DELAY_S": 0,
    "SPIDERPOOL_CONCURRENCY_PER_HOST": 32,
}


class Deployment:
    """What both shapes share. ``config`` is the host app's configuration."""

    def __init__(self, folder: Path, site: Site, config: Mapping[str, Any]) -> None:
        self.folder = folder
        self.site = site
        self.port = free_port()
        self.config = {
            "SECRET_KEY": "black box",
            "SPIDERPOOL_ALLOW_ADDRESSES": [site.address],
            **SHORT,
            **config,
        }
        self._engine = sa.create_engine(self.config["SQLALCHEMY_DATABASE_URI"])
        self._lives: list[Life] = []
        self._token = ""
        self._client = httpx.Client(base_url=f"http://127.0.0.1:{self.port}/spiderpool", timeout=20)

    @property
    def env(self) -> dict[str, str]:
        """The environment of every process of ours."""
        plain = {
            key: value for key, value in os.environ.items() if not key.startswith(("SPIDERPOOL_", "FLASK_"))
        }
        return plain | {
            "BLACKBOX_CONFIG": json.dumps(self.config),
            "BLACKBOX_INSTANCE": str(self.folder / "instance"),
            "PYTHONPATH": str(REPOSITORY),
            "PYTHONUNBUFFERED": "1",
        }

    def command(self, *arguments: str) -> list[str]:
        """Return ``flask --app ... ARGUMENTS`` as run by this Python."""
        return [sys.executable, "-m", "flask", "--app", "tests.blackbox.host", *arguments]

    def life(self, name: str, *arguments: str) -> Life:
        """Return a process of ``flask ARGUMENTS``, not started yet; it ends with the deployment."""
        life = Life(name, self.command(*arguments), self.env, self.folder)
        self._lives.append(life)
        return life

    def flask(self, *arguments: str) -> str:
        """Run one command to its end and return what it printed."""
        done = subprocess.run(
            self.command(*arguments),
            cwd=REPOSITORY,
            env=self.env,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, f"flask {' '.join(arguments)}:\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def set_up(self) -> None:
        """Make the tables and a token."""
        (self.folder / "instance").mkdir(exist_ok=True)
        self.flask("spiderpool", "db", "upgrade")
        made = json.loads(
            self.flask("spiderpool", "token", "create", "black-box", "--role", "operator", "--json")
        )
        self._token = made["token"]

    def start(self) -> None:
        """Start every process; they may not answer yet."""
        raise NotImplementedError

    def kill_everything(self) -> list[Kill]:
        """kill -9 of every process of ours, as a power cut of the machine without its database."""
        raise NotImplementedError

    # -- REST -----------------------------------------------------------------------------------------

    def call(self, method: str, path: str, **body: Any) -> httpx.Response:
        """Call the API; while the web process is down or starting, try again for half a minute."""
        answers: list[httpx.Response] = []

        def answered() -> bool:
            headers = {"Authorization": f"Bearer {self._token}"}
            try:
                if method == "GET":
                    answers.append(self._client.get(path, params=body, headers=headers))
                else:
                    answers.append(self._client.request(method, path, json=body, headers=headers))
            except httpx.TransportError:
                return False
            return True

        eventually(f"{method} {path} is answered", answered)
        return answers[0]

    def begin(self, **options: Any) -> UUID:
        """Start a crawl of the site over REST and return its task."""
        body = {
            "spider_name": "article",
            "target_url": self.site.url,
            "max_pages": 1_000_000,
            "concurrency_per_host": 16,
            "concurrency": 16,
            **options,
        }
        answer = self.call("POST", "/spider/start", **body)
        assert answer.status_code == 202, answer.text
        return UUID(answer.json()["task_id"])

    def verb(self, verb: str, task_id: UUID, expected: int = 202) -> None:
        """Pause, resume, stop or retry over REST."""
        answer = self.call("POST", f"/spider/{verb}", task_id=str(task_id))
        assert answer.status_code == expected, answer.text

    def stop_unheard(self, task_id: UUID) -> None:
        """Stop as the route does, but the bus, which may lose any message, loses this one."""
        with self.session() as session:
            verbs.change(session, task_id, Verb.STOP, by="black-box")
            session.commit()

    def ask_status(self, task_id: UUID) -> None:
        """Ask the status route, as a person watching would."""
        answer = self.call("GET", "/spool/status", task_id=str(task_id))
        assert answer.status_code == 200, answer.text

    # -- the database ---------------------------------------------------------------------------------

    def session(self) -> Session:
        """Return a session on the pool's database."""
        return Session(self._engine)

    def status(self, task_id: UUID) -> Status:
        """Return the task's status as its row says it now."""
        with self.session() as session:
            return Status(session.scalars(sa.select(Task.status).where(Task.id == task_id)).one())

    def wait_status(self, task_id: UUID, *wanted: Status, timeout_s: float = 60, ask: bool = False) -> Status:
        """Wait until the task has one of the statuses; ``ask`` the status route meanwhile."""
        last = [self.status(task_id)]

        def reached() -> bool:
            self.check_alive()
            if ask:
                self.ask_status(task_id)
            last[0] = self.status(task_id)
            return last[0] in wanted

        try:
            eventually(f"task is {' or '.join(wanted)}", reached, timeout_s)
        except AssertionError as late:
            raise AssertionError(f"{late}; it is {last[0]}\n{self.report(task_id)}") from None
        return last[0]

    def wait_end(self, task_id: UUID, timeout_s: float) -> None:
        """Wait until the task has ended, and see that it finished."""
        status = self.wait_status(task_id, *ENDED, timeout_s=timeout_s)
        assert status is Status.FINISHED, self.report(task_id)

    def said_at(self, task_id: UUID, status: Status) -> float:
        """Return when the task was last said to have become ``status``, in seconds since 1970."""
        with self.session() as session:
            query = sa.select(sa.func.max(History.at)).where(
                History.task_id == task_id, History.to_status == status.value
            )
            at = session.scalars(query).one()
        assert isinstance(at, datetime), f"the history of {task_id} never says {status}"
        return at.replace(tzinfo=at.tzinfo or UTC).timestamp()

    # -- for the test's end and its failures ----------------------------------------------------------

    def check_alive(self) -> None:
        """Fail if a process ended by itself."""
        for life in self._lives:
            life.check_alive()

    def report(self, task_id: UUID) -> str:
        """Return what one wants to see when a crawl does not end: rows and logs."""
        parts = []
        with self._engine.connect() as connection:
            for table, where in (
                ("task", "id"),
                ("slot", "task_id"),
                ("lane", "task_id"),
                ("history", "task_id"),
            ):
                rows = connection.execute(
                    sa.text(f"SELECT * FROM spiderpool_{table} WHERE {where} = :t"),
                    {"t": str(task_id) if self._engine.dialect.name == "postgresql" else task_id.hex},
                ).mappings()
                parts += [f"{table}: {dict(row)}" for row in rows]
        parts += [f"--- {life.log.name}\n{life.tail(3000)}" for life in self._lives]
        return "\n".join(parts)

    def end(self) -> None:
        """End every process."""
        self._client.close()
        for life in self._lives:
            life.end()
        self._engine.dispose()


class Cluster(Deployment):
    """A web process and two workers on PostgreSQL and Redis; the broker is Redis or RabbitMQ."""

    def __init__(
        self,
        folder: Path,
        site: Site,
        *,
        database_url: str,
        redis: RedisServer,
        broker_url: str | None = None,
    ) -> None:
        self.redis = redis
        config = {
            "SQLALCHEMY_DATABASE_URI": database_url,
            "SPIDERPOOL_REDIS_URL": redis.url_of(1),
            "SPIDERPOOL_BROKER_URL": broker_url or redis.url_of(2),
        }
        if broker_url:
            # A RabbitMQ is shared by tests: a queue of this one's own.
            config["SPIDERPOOL_QUEUE"] = f"blackbox-{os.getpid()}-{redis.port}"
        super().__init__(folder, site, config)
        self.workers = [self.life(f"worker-{n}", "spiderpool", "worker", "-c", "8") for n in (1, 2)]
        self.web = self.life("web", "run", "--no-reload", "--host", "127.0.0.1", "--port", str(self.port))

    def start(self) -> None:
        """Start web and workers."""
        for life in (self.web, *self.workers):
            life.start()

    def kill_everything(self) -> list[Kill]:
        """Kill web, workers and Redis."""
        kills = [life.kill() for life in (*self.workers, self.web)]
        self.redis.kill()
        return kills


class Embedded(Deployment):
    """``flask spiderpool up``: web and one worker on SQLite, no server."""

    def __init__(self, folder: Path, site: Site) -> None:
        super().__init__(folder, site, {"SQLALCHEMY_DATABASE_URI": f"sqlite:///{folder / 'host.db'}"})
        self.up = self.life("up", "spiderpool", "up", "--host", "127.0.0.1", "--port", str(self.port))

    def start(self) -> None:
        """Start the one command."""
        self.up.start()

    def worker(self) -> psutil.Process | None:
        """Return the worker process that ``up`` supervises now."""
        return next((child for child in self.up.family()[1:] if argument_of(child, "worker")), None)

    def extraction_child(self) -> psutil.Process | None:
        """Return the worker's extraction child, if it has one now."""
        return next((child for child in self.up.family()[1:] if argument_of(child, "extract_child")), None)

    def kill_everything(self) -> list[Kill]:
        """Kill the parent; the rest must follow by itself."""
        family = self.up.family()
        kill = self.up.kill()
        gone_at = wait_gone(family[1:], timeout_s=5)
        return [kill, *(Kill("up's child", pid, at) for pid, at in gone_at.items())]
