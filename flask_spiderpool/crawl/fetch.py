"""One request from the first byte sent to the last byte unpacked, with every bound that a page can test.

Whatever the network or the site does, :meth:`Fetcher.fetch` returns a :class:`Response` or raises
``FetchError`` with a :class:`~flask_spiderpool.terms.Reason`; besides that only ``Fenced`` and cancellation
leave it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from functools import lru_cache

import httpx

from flask_spiderpool.crawl import transport as net
from flask_spiderpool.crawl.response import FetchLimits, Response, drain, read_body
from flask_spiderpool.crawl.unpack import accepted_codings
from flask_spiderpool.crawl.urls import join, origin, wire
from flask_spiderpool.errors import FetchError
from flask_spiderpool.terms import Reason

__all__ = ["FetchLimits", "Fetcher", "Hook", "Response", "translated"]

REDIRECTS = frozenset({301, 302, 303, 307, 308})

_SECRETS = ("authorization", "cookie", "proxy-authorization")
_NO_BODY = httpx.ByteStream(b"")

Hook = Callable[[str], Awaitable[None]]


class Fetcher:
    """Fetches URLs over a transport: deadlines, sizes, codings, redirects.

    One for all requests of a process; keeps no state between them. ``transport`` is any httpx transport that
    honours ``extensions["target"]``; only :class:`~flask_spiderpool.crawl.transport.AiohttpTransport` also
    honours the send fence.
    """

    def __init__(
        self,
        transport: httpx.AsyncBaseTransport,
        *,
        user_agent: str,
        limits: FetchLimits | None = None,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self.user_agent = user_agent
        self._transport = transport
        self._limits = limits if limits is not None else FetchLimits()
        self._clock = clock
        self._wall_clock = wall_clock
        self._headers = httpx.Headers(
            {
                "User-Agent": user_agent,
                "Accept": "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8",
                "Accept-Encoding": ", ".join(accepted_codings()),
            }
        )

    async def fetch(
        self,
        url: str,
        headers: Mapping[str, str] | None = None,
        *,
        deadline_s: float = 60.0,
        may_send: Callable[[], bool] | None = None,
        on_hop: Hook | None = None,
        on_resend: Hook | None = None,
        limits: FetchLimits | None = None,
    ) -> Response:
        """Return the response of a GET, redirects followed.

        ``deadline_s`` bounds everything together, redirects and body included, but not the time spent in
        hooks (a wait for the limiter is not the site's slowness). ``may_send`` is the send fence, asked for
        every hop as it is written. ``on_hop(url)`` is awaited before a redirect to ``url`` is followed, and
        ``on_resend(url)`` before a request that met a closed kept-alive connection is sent once more: they
        check scope, robots and limiter, and raise ``FetchError`` to refuse. Without ``on_resend`` such a
        request fails as ``disconnected``.
        """
        run = _Run(self, url, headers, may_send, on_hop, on_resend, limits or self._limits)
        try:
            async with asyncio.timeout(deadline_s) as run.timer:
                return await run.go()
        except TimeoutError:
            raise FetchError(
                Reason.TIMEOUT_TOTAL, f"not complete after {deadline_s:g} s", retry=True
            ) from None
        except httpx.HTTPError as fault:
            raise translated(fault) from fault
        except httpx.InvalidURL as fault:
            raise FetchError(Reason.BAD_URL, str(fault)) from fault


class _Run:
    """The state of one :meth:`Fetcher.fetch`."""

    timer: asyncio.Timeout

    def __init__(
        self,
        fetcher: Fetcher,
        url: str,
        headers: Mapping[str, str] | None,
        may_send: Callable[[], bool] | None,
        on_hop: Hook | None,
        on_resend: Hook | None,
        limits: FetchLimits,
    ) -> None:
        self.asked = url
        self._fetcher = fetcher
        self._headers = fetcher._headers
        if headers:
            self._headers = httpx.Headers(self._headers)
            self._headers.update(headers)
        self._may_send = may_send
        self._on_hop = on_hop
        self._on_resend = on_resend
        self._limits = limits
        self._started = fetcher._clock()
        self._hops: list[str] = []

    async def go(self) -> Response:
        url = wire(self.asked)
        while True:
            response = await self._send(url)
            stream = response.stream
            assert isinstance(stream, httpx.AsyncByteStream)
            try:
                if response.status_code not in REDIRECTS:
                    return await self._finish(url, response, stream)
                target = self._target(url, response)
                await drain(response, stream)
            finally:
                await stream.aclose()
            if origin(target) != origin(url):
                self._headers = httpx.Headers(self._headers)
                for name in _SECRETS:
                    self._headers.pop(name, None)
            self._hops.append(target)
            await self._await_hook(self._on_hop, target)
            url = target

    async def _send(self, url: str) -> httpx.Response:
        try:
            return await self._fetcher._transport.handle_async_request(self._request(url))
        except net.StaleConnection:
            if self._on_resend is None:
                raise
        await self._await_hook(self._on_resend, url)
        return await self._fetcher._transport.handle_async_request(self._request(url))

    def _request(self, url: str) -> httpx.Request:
        site = origin(url)
        return httpx.Request(
            "GET",
            _parsed_origin(site),
            headers=self._headers,
            stream=_NO_BODY,
            extensions={"target": url[len(site) :].encode("ascii"), "may_send": self._may_send},
        )

    async def _await_hook(self, hook: Hook | None, url: str) -> None:
        """Await a hook with the deadline's clock stopped."""
        if hook is None:
            return
        loop = asyncio.get_running_loop()
        ends_at, before, started = self.timer.when(), loop.time(), self._fetcher._clock()
        assert ends_at is not None
        self.timer.reschedule(None)
        try:
            await hook(url)
        finally:
            self.timer.reschedule(ends_at + loop.time() - before)
            self._started += self._fetcher._clock() - started

    def _target(self, url: str, response: httpx.Response) -> str:
        """Return where a redirect leads, or raise ``FetchError``."""
        location = next((value for name, value in response.headers.raw if name.lower() == b"location"), b"")
        # Bytes outside ASCII are percent-encoded as they are: their encoding is the site's affair.
        text = "".join(chr(byte) if byte < 0x80 else f"%{byte:02X}" for byte in location)
        if not text.strip():
            raise FetchError(Reason.REDIRECT_BAD, f"status {response.status_code} without a Location")
        try:
            target = join(url, text)
        except FetchError as fault:
            raise FetchError(Reason.REDIRECT_BAD, f"Location is {fault}") from None
        if target == url or target in self._hops or target == self.asked:
            raise FetchError(Reason.REDIRECT_LOOP, f"led back to {target}")
        if len(self._hops) >= self._limits.max_redirects:
            raise FetchError(Reason.REDIRECT_LIMIT, f"more than {self._limits.max_redirects} redirects")
        return target

    async def _finish(self, url: str, response: httpx.Response, stream: httpx.AsyncByteStream) -> Response:
        body, wire_bytes, was_cut = await read_body(response, stream, self._limits)
        fetcher = self._fetcher
        return Response(
            url=self.asked,
            final_url=url,
            status=response.status_code,
            headers=response.headers,
            body=body,
            wire_bytes=wire_bytes,
            elapsed_ms=round((fetcher._clock() - self._started) * 1000),
            hops=tuple(self._hops),
            was_cut=was_cut,
            received_at=fetcher._wall_clock(),
        )


@lru_cache(maxsize=4096)
def _parsed_origin(site: str) -> httpx.URL:
    return httpx.URL(site + "/")  # 59 microseconds, so once an origin


# The more special first.
_REASONS: tuple[tuple[type[httpx.HTTPError], Reason, bool], ...] = (
    (httpx.ConnectTimeout, Reason.TIMEOUT_CONNECT, True),
    (httpx.TimeoutException, Reason.TIMEOUT_TOTAL, True),
    (net.DnsError, Reason.DNS, True),
    (net.TlsError, Reason.TLS, False),
    (httpx.ConnectError, Reason.REFUSED, True),
    (net.Incomplete, Reason.TRUNCATED, True),
    (httpx.NetworkError, Reason.DISCONNECTED, True),
    (httpx.UnsupportedProtocol, Reason.SCHEME, False),
    (httpx.HTTPError, Reason.PROTOCOL, False),
)


def translated(fault: httpx.HTTPError) -> FetchError:
    """Return the ``FetchError`` of an httpx error, with its reason and whether another try may help."""
    reason, retry = next((reason, retry) for kind, reason, retry in _REASONS if isinstance(fault, kind))
    return FetchError(reason, str(fault)[:500], retry=retry)
