"""Commands that messages name, as they can be pasted: with the app that this very command was given."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path

import click
from flask.cli import ScriptInfo

TABLES = "run 'flask spiderpool db upgrade'"  #: the remedy where tables are missing

_COMMAND = re.compile(r"\bflask (?=(?:spiderpool|db)\b)")


def pasteable(text: str) -> str:
    """Return ``text`` with each ``flask spiderpool ...`` and ``flask db ...`` naming the app of this command."""
    return _COMMAND.sub(lambda _: command() + " ", text)


def command() -> str:
    """Return how this app's command line is called: ``flask``, ``flask --app X`` or the host's own command.

    ``X`` is what ``--app`` or ``FLASK_APP`` said. An app that Flask found by itself is found again.
    """
    context = click.get_current_context(silent=True)
    info = context.find_object(ScriptInfo) if context is not None else None
    if info is None:
        return "flask"
    if info.app_import_path:
        return f"flask --app {shlex.quote(info.app_import_path)}"
    if info.create_app is not None and "spiderpool" in sys.argv:
        # A host with a command of its own (FlaskGroup(create_app=...)).
        program, *words = sys.argv[: sys.argv.index("spiderpool")]
        return shlex.join([Path(program).name, *words])
    return "flask"
