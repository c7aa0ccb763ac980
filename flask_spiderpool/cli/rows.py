"""What a crawl found, as rows of a file: JSON lines or CSV."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol, TextIO

from flask_spiderpool.errors import InvalidParameter

#: Columns of a CSV file; what stands in ``metadata`` beyond them is one JSON column.
CSV_COLUMNS = (
    "url",
    "status",
    "title",
    "text",
    "markdown",
    "author",
    "published",
    "language",
    "description",
    "depth",
    "found_on",
    "content_type",
    "bytes",
    "fetched_at",
    "metadata",
)
#: Of these the metadata columns are copies, for people with a spreadsheet.
_FROM_METADATA = ("author", "published", "language", "description")

Row = Mapping[str, Any]


class RowWriter(Protocol):
    """Writes rows to one stream."""

    def write(self, rows: Iterable[Row]) -> int:
        """Write rows and flush; return how many."""
        ...


class JsonLines:
    """One JSON object a line, UTF-8, as it comes."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, rows: Iterable[Row]) -> int:
        """Write rows and flush."""
        count = 0
        for row in rows:
            # Characters that split lines elsewhere (U+2028) are left as they are: JSON allows them, and
            # only "\n" ends a line of this format.
            self._stream.write(json.dumps(row, ensure_ascii=False, separators=(",", ":")) + "\n")
            count += 1
        self._stream.flush()
        return count


class Csv:
    """RFC 4180 with a header. A cell that a spreadsheet would run as a formula is led by an apostrophe."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._writer = csv.DictWriter(stream, CSV_COLUMNS, extrasaction="ignore", lineterminator="\r\n")
        self._writer.writeheader()

    def write(self, rows: Iterable[Row]) -> int:
        """Write rows and flush."""
        count = 0
        for row in rows:
            metadata = row.get("metadata") or {}
            cells = {**row, **{name: metadata.get(name) for name in _FROM_METADATA}}
            cells["metadata"] = json.dumps(metadata, ensure_ascii=False) if metadata else ""
            self._writer.writerow({name: _harmless(value) for name, value in cells.items()})
            count += 1
        self._stream.flush()
        return count


def _harmless(value: Any) -> Any:
    """Source of the rule: OWASP, CSV Injection. The text was written by strangers."""
    if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r"):
        return "'" + value
    return value


FORMATS: dict[str, type[JsonLines] | type[Csv]] = {".jsonl": JsonLines, ".ndjson": JsonLines, ".csv": Csv}


def writer_for(path: Path) -> type[JsonLines] | type[Csv]:
    """Return the format that a file's name asks for."""
    try:
        return FORMATS[path.suffix.lower()]
    except KeyError:
        raise InvalidParameter("output", f"{path.name!r} ends with none of {', '.join(FORMATS)}") from None
