"""``flask spiderpool crawl``: real processes on a real site."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from click.testing import CliRunner

from flask_spiderpool.cli import spiderpool
from flask_spiderpool.cli.crawl_file import TEMPORARY
from tests.site.server import Reply, Site

ROOT = Path(__file__).parents[2]
N = 24


def page(i: int) -> str:
    links = "".join(f'<a href="/p/{(i * 5 + k) % N}">{k}</a>' for k in range(1, 6))
    words = f"Page number {i} says something of its own, at some length, so that it is text. " * 6
    return f"<html><head><title>Page {i}</title></head><body><article><h1>Number {i}</h1><p>{words}</p></article>{links}</body></html>"


@pytest.fixture
def site() -> Iterator[Site]:
    """24 pages, one of them forbidden by robots.txt, one missing."""
    pages: dict[str, str | Reply] = {f"/p/{i}": page(i) for i in range(N)}
    pages["/p/7"] = Reply("gone", status=404)
    pages["/robots.txt"] = Reply("User-agent: *\nDisallow: /p/13\n", headers={"Content-Type": "text/plain"})
    with Site(pages) as site:
        yield site


class Crawl:
    """Runs the command without any app, in its own folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.env = {
            **{name: value for name, value in os.environ.items() if name != "FLASK_APP"},
            "TMPDIR": str(folder),
        }

    def command(self, *words: str) -> list[str]:
        return [sys.executable, "-m", "flask", "spiderpool", "crawl", *words]

    def __call__(self, *words: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            self.command(*words),
            cwd=self.folder,
            env=self.env,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        assert done.returncode == code, done.stderr
        assert "Traceback" not in done.stderr
        return done

    def rows(self, name: str = "out.jsonl") -> list[dict]:
        return [json.loads(line) for line in (self.folder / name).read_text().splitlines()]

    def left(self) -> list[str]:
        """What lies in the folder beside the output."""
        return sorted(
            entry.name for entry in self.folder.iterdir() if not entry.name.startswith("out.jsonl.")
        )


@pytest.fixture
def crawl(tmp_path: Path) -> Crawl:
    return Crawl(tmp_path)


def test_a_site_becomes_one_row_a_document(crawl: Crawl, site: Site):
    """Text, Markdown and metadata of every page; robots.txt obeyed; reasons said; nothing left behind."""
    done = crawl(site.url + "/p/0", "-o", "out.jsonl", "--allow", site.host)
    rows = {row["url"]: row for row in crawl.rows()}
    assert set(rows) == {f"{site.url}/p/{i}" for i in range(N) if i not in (7, 13)}
    one = rows[f"{site.url}/p/3"]
    assert (one["status"], one["title"]) == (200, "Number 3")
    assert "Page number 3 says" in one["text"]
    assert "# Number 3" in one["markdown"]
    assert one["metadata"]["extraction"] == "trafilatura"
    assert rows[f"{site.url}/p/0"]["depth"] == 0
    assert one["found_on"] in rows
    assert site.count("/p/13") == 0
    assert "1 x http_404" in done.stderr
    assert "1 x robots" in done.stderr
    assert f"{N - 2} pages ({N - 2} new or changed, 0 unchanged), 1 failed, 1 skipped, in " in done.stderr
    assert f"{N - 2} rows in " in done.stderr
    assert done.stdout == ""
    assert crawl.left() == ["out.jsonl"]


def test_links_only_without_delay_on_stdout(crawl: Crawl, site: Site):
    """Rows go to stdout, words to stderr; limits hold; the temporary folder is gone."""
    done = crawl(site.url + "/p/0", "--allow", site.host, "--links-only", "--max-depth", "1", "--quiet")
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert {row["depth"] for row in rows} == {0, 1}
    assert all(row["text"] is None for row in rows)
    assert done.stderr == ""
    assert not list(crawl.folder.glob(TEMPORARY + "*"))


def test_csv_max_pages_and_a_report_in_json(crawl: Crawl, site: Site):
    """The limit ends the task; the report is one JSON object."""
    done = crawl(
        site.url + "/p/0",
        "-o",
        "out.csv",
        "--allow",
        site.host,
        "--links-only",
        "--max-pages",
        "5",
        "--json",
        "-q",
    )
    report = json.loads(done.stdout)
    assert (report["status"], report["reason"], report["rows"]) == ("finished", "max_pages", 5)
    with (crawl.folder / "out.csv").open(newline="") as stream:
        assert len(list(csv.DictReader(stream))) == 5


def test_a_delay_is_kept(crawl: Crawl, site: Site):
    """``--delay`` holds for an address named by --allow as well."""
    crawl(
        site.url + "/p/0",
        "-o",
        "out.jsonl",
        "--allow",
        site.host,
        "--links-only",
        "--max-pages",
        "4",
        "--delay",
        "0.5",
    )
    times = [seen.at for seen in site.log]
    assert min(after - before for before, after in pairwise(times)) >= 0.5


def test_an_address_that_is_not_named_is_refused(crawl: Crawl, site: Site):
    """Exit code 1 and the remedy, nothing asked."""
    done = crawl(site.url + "/p/0", "-o", "out.jsonl", code=1)
    assert "all_seeds_failed" in done.stderr
    assert f"for this command: --allow {site.host}\n" in done.stderr
    assert site.log == []


def test_an_earlier_output_outlives_a_crawl_that_fails(crawl: Crawl, site: Site):
    """Even with --force nothing takes its place before there are rows; -q hides no failure."""
    (crawl.folder / "out.jsonl").write_text("kept\n")
    done = crawl(site.url + "/p/0", "-o", "out.jsonl", "--force", "-q", code=1)
    assert (crawl.folder / "out.jsonl").read_text() == "kept\n"
    assert "failed (all_seeds_failed)" in done.stderr
    assert "1 x blocked_address" in done.stderr
    assert "is as it was" in done.stderr
    assert crawl.left() == ["out.jsonl"]
    assert not list(crawl.folder.glob("out.jsonl.*"))


def test_an_output_is_replaced_only_by_force(crawl: Crawl, site: Site):
    """Refused before the first request, with the option that allows it; an empty file is no loss."""
    words = (site.url + "/p/0", "-o", "out.jsonl", "--allow", site.host, "--max-pages", "1", "--links-only")
    (crawl.folder / "out.jsonl").write_text("kept\n")
    done = crawl(*words, code=2)
    assert "-o: " in done.stderr
    assert "--force" in done.stderr
    assert (crawl.folder / "out.jsonl").read_text() == "kept\n"
    assert site.log == []
    assert not list(crawl.folder.glob("out.jsonl.*"))
    done = crawl(*words, "--force")
    assert [row["url"] for row in crawl.rows()] == [f"{site.url}/p/0"]
    assert "1 page (1 new" in done.stderr
    assert "1 row in" in done.stderr
    (crawl.folder / "out.jsonl").write_text("")
    crawl(*words)
    assert len(crawl.rows()) == 1


@pytest.mark.parametrize(
    ("words", "field"),
    [
        (["ftp://x/"], "Error: URL: "),
        (["http://x/", "-o", "out.xlsx"], "Error: -o: 'out.xlsx'"),
        (["http://x/", "--allow", "nonsense"], "--allow: 'nonsense' is neither HOST:PORT"),
        (["http://127.0.0.1:8731/", "--allow", "127.0.0.1"], "did you mean 127.0.0.1:8731?"),
        (["http://127.0.0.1:8731/", "--allow", "http://127.0.0.1:1/"], "did you mean 127.0.0.1:1?"),
        (["http://x/", "--user-agent", "ä"], "--user-agent"),
        (["http://x/", "--max-pages", "0"], "--max-pages"),
        (["http://x/", "--resume", "x.crawl"], "--resume"),
        (["--resume", "nothing.crawl"], "Error: --resume: "),
        (["--resume", "nothing.crawl", "--max-pages", "3"], "--max-pages"),
        ([], "URL"),
    ],
)
def test_wrong_usage_names_the_field_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], field: str
):
    """Exit code 2 before the first request; no file is made, not even for a moment's work in a temporary folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    result = CliRunner().invoke(spiderpool, ["crawl", *words])
    assert result.exit_code == 2, result.output
    assert field in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_concurrency_is_what_the_operator_says(crawl: Crawl):
    """``--concurrency`` may be more than the pool's default for one host: so many are asked for at once."""
    start = "".join(f'<a href="/p/{i}">{i}</a>' for i in range(20))
    with Site({"/": start}, default=Reply("a page", delay_s=1.0)) as site:
        crawl(site.url + "/", "-o", "out.jsonl", "--allow", site.host, "--links-only", "--concurrency", "20")
        asked_at = sorted(seen.at for seen in site.log if seen.path.startswith("/p/"))
    assert len(asked_at) == 20
    assert asked_at[-1] - asked_at[0] < 1.0  # none had been answered yet


@pytest.mark.blackbox
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL], ids=lambda n: n.name)
def test_an_interrupted_crawl_goes_on_where_it_was(crawl: Crawl, site: Site, number: signal.Signals):
    """Ctrl-C writes the rows so far and says how to go on; after kill -9 it goes on as well. No page is in the
    output twice, and after an orderly end none is fetched twice."""
    for path, answer in list(site.pages.items()):
        if isinstance(answer, str):
            site.pages[path] = Reply(answer, delay_s=0.1)
    first = subprocess.Popen(
        crawl.command(
            site.url + "/p/0", "-o", "out.jsonl", "--allow", site.host, "--links-only", "--concurrency", "1"
        ),
        cwd=crawl.folder,
        env=crawl.env,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert first.stderr is not None
    while len(site.log) < 8:
        assert first.poll() is None
        try:
            first.wait(0.05)
        except subprocess.TimeoutExpired:
            continue
    first.send_signal(number)
    said = first.stderr.read()
    code = first.wait(30)
    first.stderr.close()
    if number is signal.SIGKILL:
        assert code == -signal.SIGKILL
    else:
        assert code == 130
        assert f"crawl --resume {crawl.folder / 'out.jsonl.crawl'}" in said
        assert 0 < len(crawl.rows()) < N - 2
    crawl("--resume", "out.jsonl.crawl", "--quiet")
    urls = [row["url"] for row in crawl.rows()]
    assert len(urls) == len(set(urls)) == N - 2
    assert crawl.left() == ["out.jsonl"]
    assert not list(crawl.folder.glob("out.jsonl.*"))
    if number is not signal.SIGKILL:
        fetched = Counter(path for path in site.paths() if path.startswith("/p/"))
        assert set(fetched.values()) == {1}


def test_an_unfinished_crawl_is_not_overwritten(crawl: Crawl, site: Site):
    """Beginning again over it must be asked for by deleting it."""
    (crawl.folder / "out.jsonl.crawl").write_bytes(b"kept")
    done = crawl(site.url + "/p/0", "-o", "out.jsonl", "--allow", site.host, code=2)
    assert "crawl --resume" in done.stderr
    assert (crawl.folder / "out.jsonl.crawl").read_bytes() == b"kept"
    assert site.log == []


def test_a_file_of_something_else_cannot_be_resumed(crawl: Crawl):
    """It is left as it was."""
    (crawl.folder / "x.crawl").write_bytes(b"not a database at all, but long enough to look like one" * 40)
    assert "was not made by" in crawl("--resume", "x.crawl", code=2).stderr
    assert crawl.left() == ["x.crawl"]
