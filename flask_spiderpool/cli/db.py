"""``flask spiderpool db``: the pool's tables, for hosts without Flask-Migrate."""

from __future__ import annotations

import click
from flask import current_app
from flask.cli import with_appcontext

from flask_spiderpool import migrations
from flask_spiderpool.cli.app import pool_state
from flask_spiderpool.cli.output import json_option, print_json


@click.group(short_help="The pool's tables.")
def db() -> None:
    """Create and upgrade the pool's tables, where no Flask-Migrate of the host looks after them."""


@db.command()
@json_option
@with_appcontext
def upgrade(as_json: bool) -> None:
    """Bring the tables to this version; safe to repeat."""
    outcome = migrations.upgrade(pool_state(current_app).database_url())
    if as_json:
        print_json({"before": outcome.before, "after": outcome.after, "changed": outcome.changed})
    elif outcome.changed:
        click.echo(f"the pool's tables are at {outcome.after} (before: {outcome.before or 'nothing'})")
    else:
        click.echo(f"the pool's tables are at {outcome.after} already")


@db.command()
@json_option
@with_appcontext
def current(as_json: bool) -> None:
    """Say at which revision the tables are."""
    revision, newest = migrations.current(pool_state(current_app).database_url()), migrations.head()
    if as_json:
        print_json({"current": revision, "head": newest})
    else:
        click.echo(f"{revision or 'nothing'}{' (newest)' if revision == newest else f'; newest is {newest}'}")


@db.command()
@json_option
@with_appcontext
def check(as_json: bool) -> None:
    """Compare the tables with what this version needs. Exit code 1 when they differ."""
    differences = migrations.check(pool_state(current_app).database_url())
    if as_json:
        print_json({"ok": not differences, "differences": differences})
    else:
        for line in differences or ["the pool's tables are as they must be"]:
            click.echo(line)
    if differences:
        raise SystemExit(1)
