"""The wheel is the whole package: installed into an empty environment it crawls."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.blackbox.life import REPOSITORY
from tests.blackbox.site import Site

PAGES = 60


def run(*command: object, cwd: Path) -> str:
    """Run a command in an environment that knows nothing of this one and return what it printed."""
    env = {
        key: value
        for key, value in os.environ.items()
        if not key.startswith(("PYTHON", "FLASK", "SPIDERPOOL"))
    }
    done = subprocess.run(
        [str(part) for part in command], cwd=cwd, env=env, capture_output=True, text=True, timeout=280
    )
    assert done.returncode == 0, f"{command}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return done.stdout


def source_files() -> set[str]:
    """Return every file of the package, as the wheel should name it."""
    package = REPOSITORY / "flask_spiderpool"
    return {
        file.relative_to(REPOSITORY).as_posix()
        for file in package.rglob("*")
        if file.is_file() and "__pycache__" not in file.parts
    }


@pytest.mark.timeout(600)
def test_wheel_crawls_in_an_empty_environment(tmp_path: Path, make_site: Callable[..., Site]) -> None:
    """The wheel carries every file (scripts, migrations, templates) and ``crawl`` works with nothing else."""
    run(sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", tmp_path, REPOSITORY, cwd=tmp_path)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        assert source_files() - set(archive.namelist()) == set()
    run(sys.executable, "-m", "venv", tmp_path / "venv", cwd=tmp_path)
    run(tmp_path / "venv/bin/pip", "install", "-q", wheel, cwd=tmp_path)
    site = make_site(PAGES)
    output = tmp_path / "out.jsonl"
    run(
        tmp_path / "venv/bin/flask",
        *("spiderpool", "crawl", site.url, "--allow", site.address, "-o", output),
        cwd=tmp_path,
    )
    rows = [json.loads(line) for line in output.read_text(encoding="utf-8").splitlines()]
    assert {row["url"].removeprefix(f"http://{site.address}") for row in rows} == site.paths
    assert len(rows) == PAGES
    assert all(row["status"] == 200 and f"number {row['title'].split()[-1]}" in row["text"] for row in rows)
