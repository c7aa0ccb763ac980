from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest

from flask_spiderpool.cli.rows import Csv, JsonLines, writer_for
from flask_spiderpool.errors import InvalidParameter

ROW = {
    "url": "https://a.example/",
    "status": 200,
    "title": "Ünïcode – “quotes”, commas\nand lines",
    "text": "=HYPERLINK(1)",
    "markdown": None,
    "metadata": {"author": "Staff", "tags": ["a"]},
    "depth": 0,
    "fetched_at": "2026-11-30T00:00:00+00:00",
}


def test_json_lines_hold_one_row_a_line_as_it_was():
    """Whatever stands in the texts, a row is one line, and comes out as it went in."""
    stream = io.StringIO()
    written = JsonLines(stream).write([ROW, {**ROW, "text": "line separator \u2028"}])
    lines = stream.getvalue().split("\n")
    assert written == 2
    assert json.loads(lines[0]) == ROW
    assert json.loads(lines[1])["text"] == "line separator \u2028"
    assert lines[2:] == [""]


def test_csv_has_a_header_quotes_what_it_must_and_runs_no_formula():
    """A spreadsheet reads the same texts back, and none of them as a formula."""
    stream = io.StringIO(newline="")
    Csv(stream).write([ROW])
    (row,) = csv.DictReader(io.StringIO(stream.getvalue(), newline=""))
    assert row["title"] == ROW["title"]
    assert row["text"] == "'=HYPERLINK(1)"
    assert row["author"] == "Staff"
    assert json.loads(row["metadata"]) == ROW["metadata"]
    assert row["markdown"] == ""


@pytest.mark.parametrize("start", ["=", "+", "-", "@", "\t", "\r"])
def test_no_cell_of_a_csv_begins_as_a_formula(start: str):
    """Every character by which a spreadsheet knows a formula is led by an apostrophe."""
    stream = io.StringIO(newline="")
    Csv(stream).write([{"url": "u", "title": f"{start}x"}])
    (row,) = csv.DictReader(io.StringIO(stream.getvalue(), newline=""))
    assert row["title"].startswith("'")


@pytest.mark.parametrize(("name", "kind"), [("a.jsonl", JsonLines), ("a.CSV", Csv), ("a.ndjson", JsonLines)])
def test_the_name_says_the_format(name: str, kind: type):
    """Upper or lower case."""
    assert writer_for(Path(name)) is kind


def test_another_name_is_refused_with_what_is_allowed():
    """Before the first request, not after the last."""
    with pytest.raises(InvalidParameter, match=r"\.jsonl"):
        writer_for(Path("out.xlsx"))
