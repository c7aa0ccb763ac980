"""``flask spiderpool spiders``: the app's spiders."""

from __future__ import annotations

import click
from flask import current_app
from flask.cli import with_appcontext

from flask_spiderpool.cli.app import pool_state
from flask_spiderpool.cli.output import json_option, print_json, print_table


@click.command(short_help="List the app's spiders.")
@json_option
@with_appcontext
def spiders(as_json: bool) -> None:
    """List the spiders that this app defines."""
    found = sorted(pool_state(current_app).registry, key=lambda spider: spider.name)
    if as_json:
        print_json([{"name": spider.name, "options": spider.options.to_json()} for spider in found])
        return
    rows = [
        (spider.name, spider.options.description or "", ", ".join(spider.options.start_urls) or "-")
        for spider in found
    ]
    print_table(("name", "description", "start URLs"), rows, empty="this app defines no spiders")
