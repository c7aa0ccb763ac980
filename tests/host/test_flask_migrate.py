"""A host whose Flask-Migrate looks after the tables, ours among them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from flask_spiderpool.models import metadata

PROGRAM = Path(__file__).with_name("migrating.py")


def _migrate(*arguments: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, str(PROGRAM), *arguments], capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return told


@pytest.mark.parametrize("others", [0, 1], ids=["alone", "and elsewhere"])
def test_a_host_with_flask_migrate(
    db_url: str, others: int, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Its first migration makes our tables just as ours would, and the next one has nothing to say.

    No drop, no difference, also after a way down and up; the host's own ``Task``, its key and relationship to
    ours, and its own naming of constraints do no harm. Our migrations leave such a database to the host. The
    scripts that were written on SQLite make the same on PostgreSQL, and the other way round.
    """
    elsewhere = [request.getfixturevalue("postgres_url" if db_url.startswith("sqlite") else "sqlite_url")]
    told = _migrate(db_url, str(tmp_path), *elsewhere[:others])
    assert told["tables"] == len(metadata.tables)
    assert told["differences"] == []
    assert told["ours"] == []
    assert (told["scripts"], told["drops"]) == (1, 0)
    assert "flask db upgrade" in told["refused"]
    assert told["joined"] == "quotes"
    assert told["after_down"] == []
    assert told["after_up"] == []
    assert told.get("elsewhere", []) == []
