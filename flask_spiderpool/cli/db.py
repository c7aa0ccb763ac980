"""``flask spiderpool db``: the pool's tables, for hosts without Flask-Migrate."""

from __future__ import annotations

import click
import sqlalchemy as sa
from flask import current_app
from flask.cli import with_appcontext

from flask_spiderpool import migrations
from flask_spiderpool.cli.app import pool_state
from flask_spiderpool.cli.output import json_option, print_json
from flask_spiderpool.cli.remedy import TABLES, pasteable
from flask_spiderpool.migrations import Ownership
from flask_spiderpool.migrations.runner import ownership

_NO_TABLES = "this database holds no tables of the pool yet"
_HOSTS = "the host's own migrations look after the pool's tables"
_REMEDIES = {
    Ownership.NOBODY: TABLES,
    Ownership.POOL: TABLES,
    Ownership.HOST: f"{_HOSTS}: run 'flask db migrate' and 'flask db upgrade'",
    Ownership.UNKNOWN: "these tables have no version: drop them, or mend them by hand, then " + TABLES,
}
_WITHOUT_REVISION = {
    Ownership.NOBODY: f"{_NO_TABLES}; {TABLES}",
    Ownership.POOL: f"the pool's tables were taken away; {TABLES}",
    Ownership.HOST: f"{_HOSTS}; 'flask db current' says at which revision they are",
    Ownership.UNKNOWN: "the pool's tables are there without a version, as db.create_all() makes them; "
    "'flask spiderpool db upgrade' would look after them from now on",
}


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
    elif outcome.adopted:
        click.echo(
            f"the pool's tables were there already and are looked after from now on, at {outcome.after}"
        )
    elif outcome.changed:
        click.echo(f"the pool's tables are at {outcome.after} (before: {outcome.before or 'nothing'})")
    else:
        click.echo(f"the pool's tables are at {outcome.after} already")


@db.command()
@json_option
@with_appcontext
def current(as_json: bool) -> None:
    """Say at which revision the tables are."""
    url = pool_state(current_app).database_url()
    revision, newest = migrations.current(url), migrations.head()
    if as_json:
        print_json({"current": revision, "head": newest})
    elif revision is None:
        click.echo(pasteable(_WITHOUT_REVISION[_owner(url)]))
    else:
        click.echo(
            f"{revision}{' (newest)' if revision == newest else pasteable(f', newest is {newest}; {TABLES}')}"
        )


@db.command()
@json_option
@with_appcontext
def check(as_json: bool) -> None:
    """Compare the tables with what this version needs. Exit code 1 when they differ."""
    url = pool_state(current_app).database_url()
    owner = _owner(url)
    # Where there is nothing, a list of everything that is missing tells less than one sentence.
    differences = [_NO_TABLES] if owner is Ownership.NOBODY else migrations.check(url)
    if as_json:
        print_json({"ok": not differences, "differences": differences})
    else:
        for line in differences or ["the pool's tables are as they must be"]:
            click.echo(line)
        if differences:
            click.echo(pasteable(_REMEDIES[owner]))
    if differences:
        raise SystemExit(1)


def _owner(url: str) -> Ownership:
    """Tell who looks after the tables of this database."""
    engine = sa.create_engine(url, poolclass=sa.NullPool)
    try:
        with engine.connect() as connection:
            return ownership(connection)
    finally:
        engine.dispose()
