"""``flask spiderpool start SPIDER [URL...]``."""

from __future__ import annotations

import json
from typing import Any

import click
from flask.cli import with_appcontext

from flask_spiderpool import control
from flask_spiderpool.cli.app import as_typed, caller, open_pool
from flask_spiderpool.cli.output import json_option, print_json
from flask_spiderpool.cli.remedy import pasteable
from flask_spiderpool.cli.status import NOBODY_WORKS, nobody_works
from flask_spiderpool.errors import InvalidParameter


@click.command(short_help="Start a task of a spider.")
@click.argument("spider")
@click.argument("urls", nargs=-1, metavar="[URL]...")
@click.option("--max-pages", type=click.IntRange(min=1), help="Stop after that many pages.")
@click.option("--max-depth", type=click.IntRange(min=0), help="Follow links that far.")
@click.option("--delay", type=click.FloatRange(0, 3600), help="Seconds between requests to one host.")
@click.option(
    "-p",
    "--param",
    "params",
    multiple=True,
    metavar="NAME=VALUE",
    help="Any other option of the spider for this task; VALUE is JSON, or text where it is none.",
)
@click.option("-m", "--note", help="Why; stands in the task's history.")
@json_option
@with_appcontext
def start(
    spider: str,
    urls: tuple[str, ...],
    max_pages: int | None,
    max_depth: int | None,
    delay: float | None,
    params: tuple[str, ...],
    note: str | None,
    as_json: bool,
) -> None:
    """Start a task of SPIDER. URLs take the place of the spider's own start URLs."""
    options: dict[str, Any] = {"max_pages": max_pages, "max_depth": max_depth, "delay_s": delay}
    options = {name: value for name, value in options.items() if value is not None}
    names = {"start_urls": "URL", "note": "--note", "reason": "--note"}
    names |= {"max_pages": "--max-pages", "max_depth": "--max-depth", "delay_s": "--delay"}
    named = dict(_param(text) for text in params)
    options |= named
    names |= {name: f"-p {name}" for name in named}
    with as_typed(names), open_pool() as (state, session):
        task = control.start(
            session, state, spider, start_urls=list(urls) or None, by=caller(), note=note, **options
        )
        session.commit()
        if as_json:
            print_json({"task_id": task.id, "spider": task.spider, "status": task.status})
        else:
            click.echo(f"task {task.id} of {task.spider} is {task.status}")
        if not state.eager and nobody_works(state):
            click.echo(pasteable(NOBODY_WORKS), err=True)


_TAKEN = {"start_urls": "give URLs as arguments", "by": "", "owner": "", "note": "use --note", "session": ""}


def _param(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    name = name.strip().replace("-", "_")
    if not equals or not name.isidentifier():
        raise InvalidParameter("--param", f"{text!r} is not NAME=VALUE")
    if name in _TAKEN:
        remedy = f"; {_TAKEN[name]}" if _TAKEN[name] else ""
        raise InvalidParameter("--param", f"{name} is not an option of a spider{remedy}")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value
