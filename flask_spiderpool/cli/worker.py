"""``flask spiderpool worker``: a Celery worker for the pool's queue."""

from __future__ import annotations

import os
import socket
from typing import Any

import click
from flask.cli import ScriptInfo

from flask_spiderpool.cli.app import pool_state, require_tables
from flask_spiderpool.cli.supervise import die_with_parent
from flask_spiderpool.state import PoolState
from flask_spiderpool.tasks.make import counts_in_memory, pool_queues

POOLS = ("threads", "prefork", "solo")


def _as_worker(ctx: click.Context, param: click.Parameter, value: Any) -> Any:
    """Say what this process is before the app is made: a worker imports neither panel nor REST framework."""
    os.environ["SPIDERPOOL_ROLE"] = "worker"
    die_with_parent()
    return value


@click.command(short_help="Run a worker: it does the crawling.")
@click.option(
    "-c",
    "--concurrency",
    type=click.IntRange(1, 1024),
    help="Slices at once. Default: SPIDERPOOL_WORKER_THREADS for threads, the processors for prefork.",
)
@click.option(
    "-P",
    "--pool",
    type=click.Choice(POOLS),
    default="threads",
    show_default=True,
    is_eager=True,
    callback=_as_worker,
    help="threads: many polite tasks in one process. prefork: for spider code that you do not trust.",
)
@click.option("-Q", "--queues", help="Queues to serve, parted by commas. Default: all that spiders name.")
@click.option("-n", "--hostname", help="Name of the worker among Celery's.")
@click.option(
    "-l",
    "--loglevel",
    type=click.Choice(["DEBUG", "INFO", "WARNING", "ERROR"], case_sensitive=False),
    default="INFO",
    show_default=True,
)
@click.option("--quiet", is_flag=True, help="Print no banner.")
@click.pass_context
def worker(
    ctx: click.Context,
    concurrency: int | None,
    pool: str,
    queues: str | None,
    hostname: str | None,
    loglevel: str,
    quiet: bool,
) -> None:
    """Run a Celery worker that serves the pool's queues.

    SIGTERM ends it in order: requests that were started finish within SPIDERPOOL_STOP_GRACE_S, the rest
    goes back to the frontier at once. Exit code 0 then.
    """
    # No app context is pushed here: children of a prefork pool would inherit it for their whole life.
    state = pool_state(ctx.ensure_object(ScriptInfo).load_app())
    require_tables(state)
    served = [name.strip() for name in queues.split(",")] if queues else sorted(pool_queues(state))
    celery_worker = state.celery().Worker(
        hostname=hostname or f"spiderpool-{os.getpid()}@{socket.gethostname()}",
        pool_cls=pool,
        concurrency=_default_concurrency(state, pool) if concurrency is None else concurrency,
        queues=served,
        loglevel=loglevel.upper(),
        # One message a slice, and none waits behind a running slice that another worker could take.
        prefetch_multiplier=1,
        without_gossip=True,
        without_mingle=True,
        quiet=quiet,
    )
    celery_worker.start()
    raise SystemExit(celery_worker.exitcode or 0)


def _default_concurrency(state: PoolState, pool: str) -> int:
    if pool == "threads":
        return state.settings.worker_threads
    # The memory limiter is for one process; more children would be refused.
    return 1 if pool == "solo" or counts_in_memory(state) else os.cpu_count() or 1
