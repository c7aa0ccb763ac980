"""The group ``flask spiderpool``: its commands, loaded when they are called, and its manner of failing."""

from __future__ import annotations

import difflib
import importlib
import sqlite3
from typing import Any

import click
import sqlalchemy as sa
from flask.cli import AppGroup

from flask_spiderpool.cli.remedy import TABLES, pasteable
from flask_spiderpool.errors import RequestError, SpiderPoolError

EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_INTERRUPTED = 130

#: Command -> where it stands. Loaded on demand: every ``flask`` command of the host imports this module.
COMMANDS = {
    "crawl": "flask_spiderpool.cli.crawl:crawl",
    "db": "flask_spiderpool.cli.db:db",
    "demo": "flask_spiderpool.cli.demo:demo",
    "pause": "flask_spiderpool.cli.verbs:pause",
    "resume": "flask_spiderpool.cli.verbs:resume",
    "retry": "flask_spiderpool.cli.verbs:retry",
    "spiders": "flask_spiderpool.cli.spiders:spiders",
    "start": "flask_spiderpool.cli.start:start",
    "status": "flask_spiderpool.cli.status:status",
    "stop": "flask_spiderpool.cli.verbs:stop",
    "tasks": "flask_spiderpool.cli.tasks:tasks",
    "token": "flask_spiderpool.cli.token:token",
    "up": "flask_spiderpool.cli.up:up",
    "worker": "flask_spiderpool.cli.worker:worker",
}


class Failure(click.ClickException):
    """One line on stderr and an exit code: 2 for what the caller asked, 1 for what went wrong."""

    def __init__(self, message: str, exit_code: int = EXIT_FAILED) -> None:
        super().__init__(pasteable(message))
        self.exit_code = exit_code  # type: ignore[misc]  # click's own way


class PoolGroup(AppGroup):
    """Loads commands when they are called and turns the pool's errors into one line."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands."""
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        """Import and return one command."""
        place = COMMANDS.get(name)
        if place is None:
            return None
        module, _, attribute = place.partition(":")
        command: click.Command = getattr(importlib.import_module(module), attribute)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Name the command that was probably meant."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            near = difflib.get_close_matches(args[0], COMMANDS, n=1)
            if near and args[0] not in COMMANDS:
                error.message += f" Did you mean {near[0]!r}?"  # type: ignore[misc]  # click's own way
            raise

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; what it cannot do is said in one line that names the remedy, never a traceback."""
        try:
            return super().invoke(ctx)
        except RequestError as error:
            raise Failure(str(error), EXIT_USAGE) from error
        except SpiderPoolError as error:
            raise Failure(str(error)) from error
        except Exception as error:
            if not _is_of_database(error):
                raise
            raise Failure(_about_database(error)) from error


def _is_of_database(error: Exception) -> bool:
    """Tell whether the database refused something; the store's hot paths raise the driver's own errors."""
    if isinstance(error, sa.exc.DBAPIError):
        return isinstance(error, sa.exc.OperationalError | sa.exc.ProgrammingError)
    return isinstance(error, sqlite3.OperationalError) or (
        type(error).__module__.startswith("psycopg") and hasattr(error, "sqlstate")
    )


def _about_database(error: Exception) -> str:
    from flask_spiderpool.store.engine import first_line  # every command of the host imports this module

    cause = first_line(error)
    lower = cause.lower()
    if "no such table" in lower or "does not exist" in lower or "no such column" in lower:
        return f"the database lacks the pool's tables ({cause}); {TABLES}"
    return f"the database cannot be used: {cause}"


@click.group(cls=PoolGroup, context_settings={"help_option_names": ["-h", "--help"]})
def spiderpool() -> None:
    """A pool of web crawlers inside this app.

    Exit codes: 0 done, 1 failed, 2 wrong usage, 130 interrupted.
    """
