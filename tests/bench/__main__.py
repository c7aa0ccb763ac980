"""``python -m tests.bench``: the pool against Scrapy, side by side, alternating, in one run.

Makes the site and the peer's environment at first use (kept in a cache folder), serves the site on one core
and crawls it on the other. Prints a table; ``--json`` keeps every run, ``--docs`` renews the table of a
document. ``--flat`` crawls 20,000 pages with one worker and shows its memory on the way.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from datetime import UTC, datetime
from pathlib import Path

from tests.bench import report
from tests.bench.crawlers import Command, Crawler, Run, Scrapy, Worker, crawl_once
from tests.bench.sites import PORT, site_folder
from tests.bench.web_server import serving

FLAT_PAGES = 20_000
FLAT_MARKS = (1_000, 5_000, 10_000, 15_000, 19_900)


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("--pages", type=int, default=3_000, help="pages of the site (default: 3,000)")
    parser.add_argument("--rounds", type=int, default=3, help="runs of each crawler (default: 3)")
    parser.add_argument(
        "--only", nargs="+", choices=["scrapy", "worker", "crawl"], default=["scrapy", "worker", "crawl"]
    )
    parser.add_argument("--flat", action="store_true", help="memory of one worker over 20,000 pages instead")
    parser.add_argument("--no-pin", action="store_true", help="do not bind server and crawler to cores")
    parser.add_argument("--json", type=Path, help="write every run to this file")
    parser.add_argument("--docs", type=Path, help="renew the table between the markers of this document")
    return parser.parse_args()


def cores(pin: bool) -> tuple[int | None, int | None]:
    """Return the cores of the server and of the crawler."""
    available = sorted(os.sched_getaffinity(0))
    return (available[0], available[-1]) if pin and len(available) > 1 else (None, None)


def compare(options: argparse.Namespace, folder: Path) -> list[Run]:
    """Run the crawlers in turn, every other round in reverse order."""
    crawlers: list[Crawler] = []
    for name in options.only:
        crawlers.append({"scrapy": Scrapy, "worker": Worker, "crawl": Command}[name]())
    server_core, crawler_core = cores(not options.no_pin)
    runs: list[Run] = []
    with serving(site_folder(options.pages), PORT, core=server_core, state=folder / "server") as server:
        for number in range(options.rounds):
            for crawler in crawlers if number % 2 == 0 else reversed(crawlers):
                run = crawl_once(crawler, f"http://127.0.0.1:{PORT}", folder / crawler.name, crawler_core)
                runs.append(run)
                print(
                    f"round {number + 1} {crawler.name}: {run.pages} pages, {run.usage.cpu_s:.2f} CPU s, "
                    f"{run.usage.wall_s:.1f} s, {run.pages_per_cpu_s:.0f} pages per CPU-second, "
                    f"peak {run.usage.peak_rss_bytes / report.MIB:.0f} MiB",
                    flush=True,
                )
    about = {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "site_pages": options.pages,
        "server": server,
        "pinned": crawler_core is not None,
    }
    text = report.table(runs, {crawler.name: crawler.what for crawler in crawlers}, options.only[0])
    text += f"\n\n{options.pages:,} pages served by {server}; {report.machine()}; {about['at'][:10]}."
    print("\n" + text)
    if options.json:
        options.json.write_text(json.dumps(report.to_json(runs, about), indent=1) + "\n")
    if options.docs:
        report.put_into(options.docs, text)
    return runs


def flat(options: argparse.Namespace, folder: Path) -> Run:
    """Crawl 20,000 pages with one worker and show the memory of its process tree on the way."""
    server_core, crawler_core = cores(not options.no_pin)
    with serving(site_folder(FLAT_PAGES), PORT, core=server_core, state=folder / "server"):
        run = crawl_once(Worker(FLAT_MARKS), f"http://127.0.0.1:{PORT}", folder / "worker", crawler_core)
    for mark, used in run.usage.rss_at.items():
        print(f"at page {mark:,}: {used / report.MIB:.0f} MiB")
    print(
        f"{run.pages:,} pages, peak {run.usage.peak_rss_bytes / report.MIB:.0f} MiB, {run.pages_per_cpu_s:.0f} per CPU-second"
    )
    if options.json:
        options.json.write_text(
            json.dumps(report.to_json([run], {"site_pages": FLAT_PAGES}), indent=1) + "\n"
        )
    return run


def main() -> None:
    """Run what was asked for."""
    options = arguments()
    with tempfile.TemporaryDirectory(prefix="spiderpool-bench-") as name:
        (flat if options.flat else compare)(options, Path(name))


if __name__ == "__main__":
    main()
