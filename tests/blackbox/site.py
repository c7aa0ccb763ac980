"""The site under crawl, seen from the test: started, its log read."""

from __future__ import annotations

import re
import socket
import sys
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

from tests.blackbox.life import Life, eventually
from tests.blackbox.site_process import all_paths
from tests.servers.process import free_port


class Get(NamedTuple):
    """One request as the site saw it."""

    at: float  #: seconds since 1970, when its head had arrived
    path: str
    pid: int  #: of the process that asked


class Site:
    """A site of ``pages`` pages in a process of its own; every request is in :meth:`gets`."""

    def __init__(self, folder: Path, pages: int, delay_s: float = 0.0) -> None:
        self.pages = pages
        self.port = free_port()
        self._log = folder / "site-requests.tsv"
        self._log.touch()
        self._offset = 0
        self._gets: list[Get] = []
        program = Path(__file__).with_name("site_process.py")
        command = [sys.executable, str(program), str(self.port), str(pages), str(self._log)]
        self._life = Life("site", [*command, "--delay-s", str(delay_s)], {}, folder)

    @property
    def address(self) -> str:
        """``host:port``."""
        return f"127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        """The URL of the first page."""
        return f"http://{self.address}/"

    @property
    def paths(self) -> set[str]:
        """Every page's path."""
        return all_paths(self.pages)

    def start(self) -> None:
        """Start it; it answers when this returns."""

        def answers() -> bool:
            with socket.socket() as probe:
                return probe.connect_ex(("127.0.0.1", self.port)) == 0

        self._life.start()
        eventually("the site answers", answers)

    def end(self) -> None:
        """End it."""
        self._life.end()

    def gets(self) -> list[Get]:
        """Return every request so far, robots.txt too, in the order of arrival."""
        with self._log.open("rb") as log:
            log.seek(self._offset)
            for line in log.read().splitlines(keepends=True):
                if not line.endswith(b"\n"):
                    break
                self._offset += len(line)
                at, path, agent = line.decode().rstrip("\n").split("\t")
                found = re.search(r"pid/(\d+)", agent)
                self._gets.append(Get(float(at), path, int(found[1]) if found else 0))
        return self._gets

    def page_gets(self) -> list[Get]:
        """Return the requests for pages, without those for robots.txt."""
        return [get for get in self.gets() if get.path != "/robots.txt"]

    def seen(self) -> int:
        """Return how many different pages were asked for."""
        return len({get.path for get in self.page_gets()})

    def repeated(self) -> dict[str, list[Get]]:
        """Return the pages that were asked for more than once, with each request in order."""
        by_path: dict[str, list[Get]] = defaultdict(list)
        for get in self.page_gets():
            by_path[get.path].append(get)
        return {path: gets for path, gets in by_path.items() if len(gets) > 1}
