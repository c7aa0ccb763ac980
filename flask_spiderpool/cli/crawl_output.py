"""Where the rows of ``crawl`` go: stdout, or a file that is never emptied before there is something to put in."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TextIO

from flask_spiderpool.cli.rows import JsonLines, Row, RowWriter, writer_for
from flask_spiderpool.errors import InvalidParameter

PART = ".part"  #: ends the name of the file that is written until there are rows


class CrawlOutput:
    """Rows of one crawl. Raises :class:`~flask_spiderpool.errors.InvalidParameter` if the file cannot be made.

    The file is written beside its place and takes it with the first rows, so that an earlier file outlives a
    crawl that finds nothing. From then on it grows as the crawl goes.
    """

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.rows = 0
        self.stands = path is None  #: whether the file has taken its place
        self._stream: TextIO | None = None
        if path is None:
            self._writer: RowWriter = JsonLines(sys.stdout)
            return
        self._place = path.resolve()  # a link goes on being one
        self._part = self._place.with_name(self._place.name + PART)
        try:
            self._stream = self._part.open("w", encoding="utf-8", newline="")
        except OSError as error:
            raise InvalidParameter("-o", f"{path} cannot be written ({error.strerror})") from error
        self._writer = writer_for(path)(self._stream)

    def write(self, rows: Iterable[Row]) -> None:
        """Write rows and flush."""
        count = self._writer.write(rows)
        self.rows += count
        if count:
            self._take_place()

    def close(self, *, finished: bool) -> None:
        """Close. A crawl that has ``finished`` without a row leaves an empty file, any other none."""
        if self._stream is None:
            return
        self._stream.close()
        if finished:
            self._take_place()
        if not self.stands:
            self._part.unlink(missing_ok=True)

    def _take_place(self) -> None:
        if not self.stands:
            self._part.replace(self._place)
            self.stands = True


def refuse_overwriting(path: Path) -> None:
    """Raise if ``path`` holds something; a folder that is missing or may not be written is told as well."""
    try:
        holds = path.exists() and path.stat().st_size > 0
    except OSError as error:
        raise InvalidParameter("-o", f"{path} cannot be written ({error.strerror})") from error
    if holds:
        raise InvalidParameter(
            "-o", f"{path} is there already; name another file, or add --force to put this crawl in its place"
        )
