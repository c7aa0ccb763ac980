"""``flask spiderpool crawl URL``: one site, here and now, into one file."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import click

from flask_spiderpool.cli.app import as_typed
from flask_spiderpool.cli.crawl_file import TEMPORARY, CrawlFile, closing
from flask_spiderpool.cli.crawl_output import refuse_overwriting
from flask_spiderpool.cli.crawl_run import CrawlRun
from flask_spiderpool.cli.rows import writer_for
from flask_spiderpool.config import Settings, settings_from
from flask_spiderpool.errors import ConfigError, InvalidParameter

_DEFAULTS = Settings()


@click.command(short_help="Crawl a site here and now, into a file.")
@click.argument("url", required=False)
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    help="A .jsonl or .csv file, one row a document. Default: JSON lines on stdout.",
)
@click.option("--force", is_flag=True, help="Let the output take the place of a file that is there.")
@click.option(
    "--allow",
    multiple=True,
    metavar="HOST:PORT",
    help="Open one private address, as 127.0.0.1:8000. It is crawled without delay unless --delay is given; "
    "its robots.txt is obeyed.",
)
@click.option("--links-only", is_flag=True, help="Extract no text: URL, status and title of each page.")
@click.option(
    "--max-pages",
    type=click.IntRange(min=1),
    help=f"Stop after that many pages. Default: {_DEFAULTS.max_pages}.",
)
@click.option(
    "--max-depth",
    type=click.IntRange(min=0),
    help=f"Follow links that far; 0 is the page alone. Default: {_DEFAULTS.max_depth}.",
)
@click.option(
    "--delay",
    type=click.FloatRange(0, 3600),
    help=f"Seconds between requests to one host. Default: {_DEFAULTS.delay_s:g}; 0 for an address of --allow.",
)
@click.option(
    "--concurrency",
    type=click.IntRange(1, 1000),
    help=f"Requests under way at once. Default: {_DEFAULTS.concurrency}, to one host {_DEFAULTS.concurrency_per_host}.",
)
@click.option("--user-agent", help=f"What the site sees; name a contact. Default: {_DEFAULTS.user_agent}")
@click.option(
    "--resume",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Go on with an interrupted crawl: the .crawl file that it has left.",
)
@click.option("--json", "as_json", is_flag=True, help="Report the end as one JSON object.")
@click.option("-q", "--quiet", is_flag=True, help="Show no progress; a failure is told.")
def crawl(url: str | None, resume: Path | None, as_json: bool, quiet: bool, **given: Any) -> None:
    """Crawl the site of URL, politely, and write one row a document.

    Needs no app, no database and no broker. What has been done is kept in FILE.crawl until the crawl is
    finished; Ctrl-C ends it cleanly, and --resume goes on.

    Exit codes: 0 finished, 1 failed, 2 wrong usage, 130 interrupted.
    """
    if (url is None) == (resume is None):
        raise click.UsageError("give either a URL to crawl or --resume FILE")
    if resume is not None:
        refused = [f"--{name.replace('_', '-')}" for name, value in given.items() if value]
        if refused:
            raise click.UsageError(f"{', '.join(refused)}: a resumed crawl keeps what it was started with")
        with as_typed({"resume": "--resume"}):
            opened = CrawlFile.open(_crawl_path(resume))
        opened.take_over()
    else:
        assert url is not None
        with as_typed(_TYPED):
            opened = _begin(url, **given)
    with closing(opened) as crawl_file:
        code = CrawlRun(crawl_file, as_json=as_json, quiet=quiet).run()
    raise SystemExit(code)


def _begin(
    url: str,
    *,
    output: Path | None,
    force: bool,
    allow: tuple[str, ...],
    links_only: bool,
    max_pages: int | None,
    max_depth: int | None,
    delay: float | None,
    concurrency: int | None,
    user_agent: str | None,
) -> CrawlFile:
    """Check everything that can be checked before the first request, then write the task."""
    settings: dict[str, Any] = {"SPIDERPOOL_ALLOW_ADDRESSES": list(allow)}
    if user_agent is not None:
        settings["SPIDERPOOL_USER_AGENT"] = user_agent
    if concurrency is not None:
        # The operator at the shell says what the pool allows; a task could only be stricter.
        settings["SPIDERPOOL_CONCURRENCY"] = concurrency
        settings["SPIDERPOOL_CONCURRENCY_PER_HOST"] = min(concurrency, 256)
    params: dict[str, Any] = {
        "links_only": links_only or None,
        "max_pages": max_pages,
        "max_depth": max_depth,
        # The operator at the shell named this address; its robots.txt still holds.
        "delay_s": 0.0 if delay is None and _is_named(url, allow) else delay,
    }
    _check_allowed(allow, url)
    _check(settings)
    if output is not None:
        writer_for(output)
        path = _crawl_path(output)
        if not force and not path.exists():
            refuse_overwriting(output)
    else:
        path = Path(tempfile.mkdtemp(prefix=TEMPORARY)) / "stdout.crawl"
    words = {"settings": settings, "output": str(output.absolute()) if output is not None else None}
    crawl_file = CrawlFile.new(path, words)
    try:
        crawl_file.start(url, **{name: value for name, value in params.items() if value is not None})
    except BaseException:
        crawl_file.close(delete=True)
        raise
    return crawl_file


#: What is wrong is named as the person typed it.
_TYPED = {
    "start_urls": "URL",
    "output": "-o",
    "resume": "-o",
    "delay_s": "--delay",
    "max_pages": "--max-pages",
    "max_depth": "--max-depth",
}
#: The options that are settings of the pool, as a person at the shell knows them.
_OPTIONS = {"SPIDERPOOL_ALLOW_ADDRESSES": "--allow", "SPIDERPOOL_USER_AGENT": "--user-agent"}


def _check(settings: dict[str, Any]) -> None:
    try:
        settings_from(settings)
    except ConfigError as error:
        field, _, message = error.faults[0].partition(" is ")
        raise InvalidParameter(_OPTIONS.get(field, field), message) from None


def _check_allowed(allow: tuple[str, ...], url: str) -> None:
    """Name the first wrong --allow, and what was probably meant."""
    for entry in allow:
        try:
            settings_from({"SPIDERPOOL_ALLOW_ADDRESSES": [entry]})
        except ConfigError:
            meant = _host_and_port(entry) if "//" in entry else _host_and_port(url)
            likely = meant is not None and ("//" in entry or meant.startswith(f"{entry.strip()}:"))
            hint = f"; did you mean {meant}?" if likely else ""
            raise InvalidParameter(
                "--allow",
                f"{entry!r:.100} is neither HOST:PORT, as 127.0.0.1:8000, nor a network, as 10.0.0.0/8{hint}",
            ) from None


def _host_and_port(url: str) -> str | None:
    """Return ``host:port`` of a URL, as --allow takes it."""
    try:
        parts = urlsplit(url)
        port = parts.port or {"http": 80, "https": 443}.get(parts.scheme)
    except ValueError:
        return None
    host = parts.hostname or ""
    return (f"[{host}]:{port}" if ":" in host else f"{host}:{port}") if host and port else None


def _is_named(url: str, allow: tuple[str, ...]) -> bool:
    return _host_and_port(url) in {entry.strip().lower() for entry in allow}


def _crawl_path(path: Path) -> Path:
    """Return the crawl's own file: beside the output, or the file itself when that was named."""
    return (path if path.suffix == ".crawl" else path.with_name(path.name + ".crawl")).absolute()
