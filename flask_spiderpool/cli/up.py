"""``flask spiderpool up``: web and worker under one command, no server needed."""

from __future__ import annotations

import click
from flask import Flask
from flask.cli import ScriptInfo

from flask_spiderpool import migrations
from flask_spiderpool.cli.app import pool_state, shown_database
from flask_spiderpool.cli.embedded import Running, running
from flask_spiderpool.cli.progress import ENDING
from flask_spiderpool.cli.remedy import pasteable
from flask_spiderpool.cli.serve import WebServer, address_for, port_option
from flask_spiderpool.cli.worker import POOLS
from flask_spiderpool.errors import SetupError
from flask_spiderpool.state import PoolState


def prepare_tables(app: Flask, state: PoolState) -> None:
    """Bring the pool's tables up to date, or say who must.

    One owner of migrations a database: where the host has Flask-Migrate its own command does it.
    """
    url = state.database_url()
    if "migrate" not in app.extensions or state.settings.database_url is not None:
        migrations.upgrade(url)
        return
    if migrations.current(url) is None and migrations.check(url):
        raise SetupError(
            "the pool's tables are missing or old, and this app's Flask-Migrate looks after them: run "
            "'flask db migrate' and 'flask db upgrade', then this again"
        )


@click.command(short_help="Run web and worker together.")
@click.option("--host", "-h", default="127.0.0.1", show_default=True, help="Address to serve on.")
@port_option
@click.option("-c", "--concurrency", type=click.IntRange(1, 1024), help="Slices at once in the worker.")
@click.option("-P", "--pool", type=click.Choice(POOLS), default="threads", show_default=True)
@click.pass_context
def up(ctx: click.Context, host: str, port: int | None, concurrency: int | None, pool: str) -> None:
    """Serve the app and crawl for it, with nothing else running: an SQLite file and a folder will do.

    The worker is a child process: it is started again when it dies, and ends when this command does, however
    that ends. Ctrl-C or SIGTERM ends both in order.
    """
    info = ctx.ensure_object(ScriptInfo)
    app = info.load_app()
    state = pool_state(app)
    prepare_tables(app, state)
    web = WebServer(app, address_for(host, port))
    options = ["--quiet", "--loglevel", "WARNING", "--pool", pool]
    options += ["--concurrency", str(concurrency)] if concurrency is not None else []
    with running(app, info, web, options, state.settings.stop_grace_s) as here:
        for line in _where(state, here):
            click.echo(pasteable(line))
        here.stop.wait()
        click.echo(ENDING)


def _broker(state: PoolState) -> str:
    celery = state.celery()
    options = celery.conf.broker_transport_options or {}
    folder = options.get("data_folder_in")
    return str(folder) if folder else str(celery.connection_for_write().as_uri())


def _where(state: PoolState, here: Running) -> list[str]:
    """Say where everything is."""
    prefix = state.settings.url_prefix
    return [
        f"web       {here.web.url}/",
        f"status    {here.web.url}{prefix}/spool/status  (needs a token: flask spiderpool token create NAME)",
        f"worker    process {here.worker.pid}, started again if it dies",
        f"database  {shown_database(state)}",
        f"broker    {_broker(state)}",
        "Ctrl-C ends both. For many visitors serve the app with gunicorn and run 'flask spiderpool worker'.",
    ]
