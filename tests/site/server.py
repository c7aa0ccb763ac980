"""A small real web site on loopback, in a thread of its own, that remembers every request it saw.

::

    with Site({"/": "<a href=/b>b</a>", "/b": Reply("b", status=404)}) as site:
        httpx.get(site.url + "/b")
    assert site.count("/b") == 1

A page is a str or bytes (HTML, status 200), a :class:`Reply`, a :class:`Raw`, or a function of
:class:`Seen` that returns one of these (it may be a coroutine function). Keys are looked up with the query
first, then without; ``default`` answers everything else (404 if it is not given).
"""

from __future__ import annotations

import asyncio
import inspect
import threading
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, NamedTuple, TypeAlias


class Seen(NamedTuple):
    """One request as the site saw it."""

    at: float  #: time.monotonic() when its head was complete
    method: str
    path: str  #: the request target, query included, as it was spelled
    headers: dict[str, str]  #: names in lower case
    connection: int  #: number of the TCP connection it came on


@dataclass(frozen=True)
class Reply:
    """A well-formed answer; ``headers`` win over those that are made."""

    body: str | bytes = b""
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    delay_s: float = 0.0
    close: bool = False


@dataclass(frozen=True)
class Raw:
    """Bytes sent as they are. Then the connection is closed, held open in silence, or kept for the next request."""

    data: bytes
    then: str = "close"  #: close, hang or keep
    reset: bool = False  #: close with a TCP reset


Answer: TypeAlias = str | bytes | Reply | Raw
Handler: TypeAlias = Callable[[Seen], Answer | Awaitable[Answer]]
Page: TypeAlias = Answer | Handler


class Site:
    """A site that serves ``pages`` until :meth:`stop`; usable as a context manager.

    ``ssl`` makes it an HTTPS site. ``log`` may be read from any thread while it runs.
    """

    def __init__(
        self,
        pages: Mapping[str, Page] | None = None,
        *,
        default: Page | None = None,
        ssl: Any = None,
        port: int = 0,
    ) -> None:
        self.pages: dict[str, Page] = dict(pages or {})
        self.default: Page = default if default is not None else Reply("not here", status=404)
        self.log: list[Seen] = []
        self.connections = 0
        self._ssl = ssl
        self._ready = threading.Event()
        self._failed: BaseException | None = None
        self._loop = asyncio.new_event_loop()
        self._port = port
        self._thread = threading.Thread(target=self._run, name="test-site", daemon=True)
        self._thread.start()
        self._ready.wait(10)
        if self._failed is not None:
            raise self._failed

    @property
    def port(self) -> int:
        """The TCP port that it listens on."""
        return self._port

    @property
    def host(self) -> str:
        """``127.0.0.1:port``: what an allow list must hold for this site to be crawled."""
        return f"127.0.0.1:{self._port}"

    @property
    def url(self) -> str:
        """The origin, without a slash at its end."""
        return f"{'https' if self._ssl else 'http'}://{self.host}"

    def count(self, path: str) -> int:
        """Return how often ``path`` (with its query) was asked for."""
        return sum(seen.path == path for seen in list(self.log))

    def paths(self) -> list[str]:
        """Return the paths asked for, in order."""
        return [seen.path for seen in list(self.log)]

    def call(self, function: Callable[[], object]) -> None:
        """Run ``function`` in the site's loop (to open an ``asyncio.Event`` that a handler awaits)."""
        self._loop.call_soon_threadsafe(function)

    def stop(self) -> None:
        """Close every connection and end the thread. Idempotent."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stopped.set)
            self._thread.join(10)

    def __enter__(self) -> Site:
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self._serve())
        finally:
            self._ready.set()
            self._loop.close()

    async def _serve(self) -> None:
        self._stopped = asyncio.Event()
        try:
            server = await asyncio.start_server(
                self._connected, "127.0.0.1", self._port, ssl=self._ssl, backlog=512
            )
        except OSError as fault:
            self._failed = fault
            return
        self._port = server.sockets[0].getsockname()[1]
        self._ready.set()
        await self._stopped.wait()
        server.close()
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            await self._converse(reader, writer, self.connections)
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, asyncio.CancelledError):
            pass
        finally:
            writer.close()

    async def _converse(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, connection: int
    ) -> None:
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            first, *lines = head.split("\r\n")[:-2]
            method, target, _ = first.split(" ", 2)
            headers = {
                name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)
            }
            await reader.readexactly(int(headers.get("content-length", "0")))
            seen = Seen(time.monotonic(), method, target, headers, connection)
            self.log.append(seen)
            answer = await self._answer(seen)
            if not await self._write(writer, seen, answer):
                return

    async def _answer(self, seen: Seen) -> Answer:
        page = self.pages.get(seen.path)
        if page is None:
            page = self.pages.get(seen.path.partition("?")[0], self.default)
        if callable(page):
            made = page(seen)
            return await made if inspect.isawaitable(made) else made
        return page

    async def _write(self, writer: asyncio.StreamWriter, seen: Seen, answer: Answer) -> bool:
        """Send ``answer``; tell whether the connection goes on."""
        if isinstance(answer, Raw):
            writer.write(answer.data)
            await writer.drain()
            if answer.then == "hang":
                await self._stopped.wait()
            if answer.reset:
                writer.transport.abort()
            return answer.then == "keep"
        reply = answer if isinstance(answer, Reply) else Reply(answer)
        if reply.delay_s:
            await asyncio.sleep(reply.delay_s)
        body = reply.body.encode() if isinstance(reply.body, str) else reply.body
        headers = {"content-type": "text/html; charset=utf-8", "content-length": str(len(body))}
        headers.update({name.lower(): value for name, value in reply.headers.items()})
        close = reply.close or seen.headers.get("connection", "").lower() == "close"
        if close:
            headers["connection"] = "close"
        try:
            phrase = HTTPStatus(reply.status).phrase
        except ValueError:
            phrase = "Unknown"
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        writer.write(f"HTTP/1.1 {reply.status} {phrase}\r\n{lines}\r\n".encode())
        if seen.method != "HEAD":
            writer.write(body)
        await writer.drain()
        return not close
