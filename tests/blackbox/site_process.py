"""A web site in a process of its own that writes down every request the moment its head has arrived.

Run as a program: ``site_process.py PORT PAGES LOG [--delay-s S]``. Page ``i`` is at ``/p/i`` (the first at
``/``) and links its eight children ``8i + 1 ...``, a dozen others and itself; so every page is reached.
Every tenth page also links one below ``/private/``, which robots.txt forbids. A line of the log is one GET:
seconds since 1970, path, User-Agent, separated by tabs.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import time

CHILDREN = 8
OTHERS = 12
ROBOTS = b"User-agent: *\nDisallow: /private/\n"
WORDS = [
    "harbour",
    "lantern",
    "ferry",
    "market",
    "winter",
    "council",
    "bridge",
    "orchard",
    "railway",
    "bakery",
    "museum",
    "lighthouse",
    "signal",
    "meadow",
    "quarry",
    "tide",
    "festival",
    "kettle",
    "compass",
    "letter",
    "garden",
    "window",
    "thunder",
    "copper",
    "island",
    "season",
    "teacher",
    "concert",
    "river",
    "village",
    "journey",
    "harvest",
    "engine",
    "picture",
    "mountain",
    "evening",
    "candle",
    "travel",
    "measure",
    "weather",
]


def path_of(i: int) -> str:
    """Return the path of page ``i``."""
    return "/" if i == 0 else f"/p/{i}"


def all_paths(pages: int) -> set[str]:
    """Return the path of every page that a whole crawl must find."""
    return {path_of(i) for i in range(pages)}


def forbidden(pages: int) -> int:
    """Return how many links lead where robots.txt forbids to go."""
    return len(range(0, pages, 10))


def page(i: int, pages: int) -> bytes:
    """Return the HTML of page ``i``; an article of some 300 words of its own."""
    rng = random.Random(i)
    children = [child for child in range(CHILDREN * i + 1, CHILDREN * i + CHILDREN + 1) if child < pages]
    links = [*children, *(rng.randrange(pages) for _ in range(OTHERS)), i]
    anchors = "".join(f'<li><a href="{path_of(j)}">Page {j}</a></li>' for j in links)
    private = f'<a href="/private/{i}">not for robots</a>' if i % 10 == 0 else ""
    paragraphs = "".join(
        f"<p>{' '.join(rng.choice(WORDS) for _ in range(50)).capitalize()}, number {i}.</p>" for _ in range(6)
    )
    return (
        f'<!DOCTYPE html><html lang="en"><head><title>Page {i}</title></head><body><main><article>'
        f"<h1>Page {i}</h1>{paragraphs}</article></main><nav><ul>{anchors}</ul>{private}</nav>"
        "</body></html>"
    ).encode()


class _Site(asyncio.Protocol):
    def __init__(self, pages: int, log: int, delay_s: float) -> None:
        self._pages, self._log, self._delay_s = pages, log, delay_s
        self._pending = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._pending += data
        while b"\r\n\r\n" in self._pending:
            at = time.time()
            head, self._pending = self._pending.split(b"\r\n\r\n", 1)
            request, *headers = head.decode("latin-1").split("\r\n")
            path = request.split(" ")[1]
            agent = next((line[11:].strip() for line in headers if line[:11].lower() == "user-agent:"), "")
            os.write(self._log, f"{at:.6f}\t{path}\t{agent}\n".encode())
            answer = self._answer(path)
            if self._delay_s and path != "/robots.txt":
                asyncio.get_running_loop().call_later(self._delay_s, self._send, answer)
            else:
                self._send(answer)

    def _send(self, answer: bytes) -> None:
        if not self._transport.is_closing():
            self._transport.write(answer)

    def _answer(self, path: str) -> bytes:
        if path == "/robots.txt":
            return _response("200 OK", "text/plain", ROBOTS)
        number = "0" if path == "/" else path.removeprefix("/p/")
        if not number.isdecimal() or not int(number) < self._pages:
            return _response("404 Not Found", "text/plain", b"no such page")
        return _response("200 OK", "text/html; charset=utf-8", page(int(number), self._pages))


def _response(status: str, kind: str, body: bytes) -> bytes:
    return f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


async def _serve(port: int, pages: int, log: int, delay_s: float) -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: _Site(pages, log, delay_s), "127.0.0.1", port, backlog=1024)
    await server.serve_forever()


def _main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("port", type=int)
    parser.add_argument("pages", type=int)
    parser.add_argument("log")
    parser.add_argument("--delay-s", type=float, default=0.0)
    arguments = parser.parse_args()
    log = os.open(arguments.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    asyncio.run(_serve(arguments.port, arguments.pages, log, arguments.delay_s))


if __name__ == "__main__":
    _main()
