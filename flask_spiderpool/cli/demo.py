"""``flask spiderpool demo``: the app crawls its own site, before your eyes."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import click
import sqlalchemy as sa
from flask import Flask
from flask.cli import ScriptInfo

from flask_spiderpool import control
from flask_spiderpool.cli.app import caller, pool_state, shown_database
from flask_spiderpool.cli.embedded import Running, running
from flask_spiderpool.cli.faults import faults
from flask_spiderpool.cli.group import EXIT_FAILED, EXIT_INTERRUPTED
from flask_spiderpool.cli.progress import ENDING, summary
from flask_spiderpool.cli.remedy import command, pasteable
from flask_spiderpool.cli.serve import WebServer, address_for, port_option
from flask_spiderpool.cli.up import prepare_tables
from flask_spiderpool.cli.watch import watch
from flask_spiderpool.errors import InvalidParameter
from flask_spiderpool.models import Document, Page
from flask_spiderpool.state import PoolState
from flask_spiderpool.terms import ENDED, Status

ALLOW_VARIABLE = "SPIDERPOOL_ALLOW_ADDRESSES"
SHOWN_PAGES = 5
LOOKED_AT = 200  #: of these the shown ones are chosen


@click.command(short_help="See the pool at work on the app's own site.")
@click.option("--spider", help="Default: DEMO_SPIDER of the app's configuration.")
@click.option("--path", help="Where to begin on the app's own site. Default: DEMO_PATH of its configuration.")
@click.option("--host", "-h", default="127.0.0.1", show_default=True, help="Address to serve on.")
@port_option
@click.option("--once", is_flag=True, help="End after the crawl; exit code 0 only if it has finished.")
@click.pass_context
def demo(
    ctx: click.Context, spider: str | None, path: str | None, host: str, port: int | None, once: bool
) -> None:
    """Start everything, crawl the app's own site through real HTTP on loopback, and show what was found.

    Goes on serving until Ctrl-C.

    Exit codes: 0 ended after the crawl, 1 --once and the crawl has not finished, 2 wrong usage, 130 ended
    while it crawled.
    """
    info = ctx.ensure_object(ScriptInfo)
    address = address_for(host, port)
    # The pool refuses loopback unless somebody names it; the worker inherits this.
    named = [os.environ[ALLOW_VARIABLE]] if os.environ.get(ALLOW_VARIABLE) else []
    os.environ[ALLOW_VARIABLE] = ",".join([*named, address.url.removeprefix("http://")])
    app = info.load_app()
    state = pool_state(app)
    name = spider or app.config.get("DEMO_SPIDER")
    if not name:
        raise InvalidParameter("--spider", "name one: this app's configuration has no DEMO_SPIDER")
    state.registry.get(name)  # a wrong name is told before anything is started
    prepare_tables(app, state)
    # A line for each page that the app serves to its own crawler would hide everything else.
    logging.getLogger("werkzeug").setLevel(logging.WARNING)
    web = WebServer(app, address)
    with running(app, info, web, ["--quiet", "--loglevel", "WARNING"], state.settings.stop_grace_s) as here:
        start_url = web.url + (path or app.config.get("DEMO_PATH") or "/")
        click.echo(f"serving   {web.url}/")
        click.echo(f"crawling  {start_url} with the spider {name!r}")
        task_id = _start(app, state, name, start_url)
        status = watch(state, task_id, name, sys.stdout, until=ENDED, stopped=here.stop.is_set)
        if status is None:
            click.echo(ENDING)
            click.echo(pasteable("interrupted; 'flask spiderpool up' goes on with the crawl"))
            raise SystemExit(EXIT_INTERRUPTED)
        for line in _found(app, state, here, name, task_id):
            click.echo(line)
        if not once:
            click.echo("\nserving until Ctrl-C")
            here.stop.wait()
            click.echo(ENDING)
    if once and status is not Status.FINISHED:
        raise SystemExit(EXIT_FAILED)


def _start(app: Flask, state: PoolState, name: str, url: str) -> UUID:
    options: dict[str, Any] = {"start_urls": [url]}
    spider = state.registry.get(name)
    if spider.options.delay_s is None:
        options["delay_s"] = 0.0  # our own site, in this very process
    if spider.options.allowed_domains is not None:
        options["allowed_domains"] = None  # the site is wherever this command serves it
    with app.app_context(), state.session() as session:
        task = control.start(session, state, name, by=caller(), note="flask spiderpool demo", **options)
        session.commit()
        found: UUID = task.id
        return found


def _found(app: Flask, state: PoolState, here: Running, name: str, task_id: UUID) -> Iterator[str]:
    numbers = state.store().numbers(task_id)
    yield ""
    yield f"{numbers['status']} ({numbers['end_reason']}): {summary(numbers)}"
    with app.app_context(), state.session() as session:
        yield from map(str, faults(session, task_id))
        yield ""
        yield from _newest(session, name)
    script = command()
    yield ""
    yield f"it lies   in {shown_database(state)}, tables spiderpool_*"
    yield "go on     " + f"{script} spiderpool tasks"
    yield "          " + f"{script} spiderpool status {str(task_id)[:8]}"
    yield "          " + f"{script} spiderpool token create me   (then curl, as the README shows)"
    yield f"look      {here.web.url}/"


def _newest(session: Any, name: str) -> Iterator[str]:
    """Show some of what was found, rather articles than lists: those that name their author, then a date."""
    query = (
        sa.select(Page.title, Page.url, Page.meta, sa.func.length(Page.text))
        .join(Document, Document.page_id == Page.id)
        .where(Document.spider == name, Page.title.is_not(None))
        .order_by(Page.id.desc())
        .limit(LOOKED_AT)
    )
    found = session.execute(query).all()
    found.sort(key=lambda row: (not row[2].get("author"), not row[2].get("published")))
    for title, url, meta, length in found[:SHOWN_PAGES]:
        about = [str(meta[key]) for key in ("author", "published") if meta.get(key)]
        yield f"  {title}"
        yield f"    {url}  ({', '.join([*about, f'{length or 0} characters of text'])})"
