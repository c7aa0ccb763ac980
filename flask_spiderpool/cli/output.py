"""How commands report: a table for people, JSON for programs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import click
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

json_option = click.option("--json", "as_json", is_flag=True, help="Report as JSON.")


def print_json(value: Any) -> None:
    """Print one JSON value."""
    click.echo(json.dumps(value, default=_plain, ensure_ascii=False, indent=2))


def print_table(columns: Sequence[str], rows: Sequence[Sequence[Any]], *, empty: str) -> None:
    """Print rows under their column names: as wide as the terminal, or as the text where there is none."""
    if not rows:
        click.echo(empty)
        return
    console = Console()
    if not console.is_terminal:
        # A pipe has no width: nothing may be folded that somebody wants to grep for.
        console = Console(width=10_000)
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for name in columns:
        table.add_column(name, overflow="fold", justify="right" if name in _NUMBERS else "left")
    for row in rows:
        # Text, not str: a spider's name may hold what rich would take for markup.
        table.add_row(*(Text(as_shown(value)) for value in row))
    console.print(table)


_NUMBERS = {"queued", "leased", "done", "failed", "skipped", "pages", "items", "slices", "threads"}


def as_shown(value: Any) -> str:
    """Return a value as a person reads it; times are those of this machine's zone."""
    if value is None:
        return "-"
    if isinstance(value, datetime):
        return value.astimezone().strftime("%Y-%m-%d %H:%M:%S")
    return str(value)


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, bytes):
        return value.hex()
    raise TypeError(f"{type(value).__name__} has no JSON form")
