"""The file of a crawl without an app: one process at a time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from flask_spiderpool.cli import crawl_file as module
from flask_spiderpool.cli.crawl_file import CrawlFile
from flask_spiderpool.errors import InvalidParameter
from flask_spiderpool.limiter.process_lock import ProcessLock

WORDS: dict[str, Any] = {"settings": {}, "output": None}


def test_a_crawl_that_ends_meanwhile_is_not_resumed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is deleted between the look and the lock is told to be gone, and no empty file takes its place."""
    path = tmp_path / "x.crawl"
    CrawlFile.new(path, WORDS).close(delete=False)

    def lock(path: Path) -> ProcessLock:
        path.unlink()
        return real(path)

    real = module._lock
    monkeypatch.setattr(module, "_lock", lock)
    with pytest.raises(InvalidParameter, match="is not there"):
        CrawlFile.open(path)
    assert list(tmp_path.iterdir()) == []


def test_a_crawl_that_began_meanwhile_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What another command begins between the look and the lock is not written over."""
    path = tmp_path / "x.crawl"

    def lock(path: Path) -> ProcessLock:
        if not path.exists():
            path.write_text("another's")
        return real(path)

    real = module._lock
    monkeypatch.setattr(module, "_lock", lock)
    with pytest.raises(InvalidParameter, match="unfinished crawl"):
        CrawlFile.new(path, WORDS)
    assert path.read_text() == "another's"


def test_nothing_is_made_for_a_file_that_is_not_there(tmp_path: Path) -> None:
    """A mistyped name leaves no folder and no lock behind."""
    with pytest.raises(InvalidParameter, match="is not there"):
        CrawlFile.open(tmp_path / "typo" / "x.crawl")
    assert list(tmp_path.iterdir()) == []


def test_a_closed_file_leaves_no_lock(tmp_path: Path) -> None:
    """An interrupted crawl leaves its file alone."""
    path = tmp_path / "x.crawl"
    CrawlFile.new(path, WORDS).close(delete=False)
    assert [one.name for one in tmp_path.iterdir()] == ["x.crawl"]
    CrawlFile.open(path).close(delete=True)
    assert list(tmp_path.iterdir()) == []
