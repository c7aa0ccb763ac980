"""The one seam to the network: an httpx transport over aiohttp's connections.

httpx is the API, aiohttp the connections (FINDINGS measured 100-800 pages a second for httpx's own). No
other module imports aiohttp, so that another client can take its place here.

What it adds to httpx's transport contract:

- ``extensions["target"]``: the request target as bytes, sent exactly as spelled (httpx's own extension);
- ``extensions["may_send"]``: a callable, the *send fence*. It is asked by the socket itself, for every piece
  that is given to the kernel, after DNS, connect, any wait for a connection and the making of the header
  block; False raises :class:`~flask_spiderpool.errors.Fenced` and nothing is sent. What remains open is a
  process frozen in the microsecond between the fence's answer and the system call, and bytes that the
  kernel holds in its socket buffer;
- every failure is an httpx error, or ``FetchError(blocked_address)`` from the address guard.
"""

from __future__ import annotations

import asyncio
import ctypes
import errno
import os
import socket
import ssl
import weakref
from collections.abc import AsyncIterator, Callable
from contextvars import ContextVar
from typing import Any

import aiohttp
import httpx
from multidict import CIMultiDict
from yarl import URL

from flask_spiderpool.crawl.address import AddressGuard
from flask_spiderpool.errors import Fenced, FetchError


class DnsError(httpx.ConnectError):
    """The host's name has no address."""


class Refused(httpx.ConnectError):
    """No connection could be opened."""


class TlsError(httpx.ConnectError):
    """No TLS session could be agreed on."""


class Disconnected(httpx.ReadError):
    """The connection broke before the answer was complete."""


class StaleConnection(Disconnected):
    """A kept-alive connection turned out to be closed when it was used again; no answer had begun."""


class Incomplete(httpx.RemoteProtocolError):
    """The body ended before its announced length, or before its last chunk."""


class _Flight:
    """What the deeper layers need to know of the request that they work for."""

    __slots__ = ("blocked", "fenced", "host", "may_send", "opened", "reused")

    def __init__(self, host: str, may_send: Callable[[], bool] | None) -> None:
        self.host = host
        self.may_send = may_send
        self.blocked: FetchError | None = None
        self.fenced = False  #: the fence was shut when the bytes should have left
        self.opened = False  #: the guard let at least one address through
        self.reused = False  #: the request went out on a kept-alive connection


# aiohttp connects and writes in the task of the request (or in tasks made by it), so that a context
# variable reaches its socket factory and its request class without private names.
_flight: ContextVar[_Flight] = ContextVar("spiderpool_flight")

# Connections that have carried a request; weak, since aiohttp decides how long they live.
_used: weakref.WeakSet[Any] = weakref.WeakSet()


class _FencedSocket(socket.socket):
    """Asks the send fence of the request under way for every piece that is given to the kernel.

    The event loop takes the OSError for a broken connection, closes it and tells the request so.

    The system call is made without letting go of the interpreter's lock (the sockets of a loop do not
    block). ``socket.send`` lets go of it first and then, if another thread has asked for the lock, waits until
    that thread has been scheduled: of processes frozen at random on a busy machine one in forty stood
    there, its fence asked, and sent its request when it was revived.
    """

    flight: _Flight

    def send(self, data: Any, flags: int = 0, /) -> int:
        may_send = self.flight.may_send
        if may_send is None or _send is None:
            self._ask()
            return super().send(data, flags)
        piece, descriptor = bytes(data), self.fileno()
        length = len(piece)
        self._ask()
        sent: int = _send(descriptor, piece, length, flags)
        if sent < 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code))  # BlockingIOError and others by its number
        return sent

    def sendmsg(self, buffers: Any, /, *more: Any) -> int:
        return self.send(b"".join(buffers)) if not more else super().sendmsg(buffers, *more)

    def _ask(self) -> None:
        may_send = self.flight.may_send
        if may_send is not None and not may_send():
            self.flight.fenced = True
            raise PermissionError(errno.EACCES, "the lease may be over: nothing is sent")


def _find_send() -> Any:
    """Return the C library's ``send``, called with the interpreter's lock held; None where there is none."""
    try:
        send = ctypes.PyDLL(None, use_errno=True).send
    except (AttributeError, OSError, TypeError):  # Windows
        return None
    send.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_int)
    send.restype = ctypes.c_ssize_t
    return send


_send = _find_send()


# Open sockets by descriptor: asyncio shows a transport's socket only through a wrapper.
_sockets: weakref.WeakValueDictionary[int, _FencedSocket] = weakref.WeakValueDictionary()


class _FencedRequest(aiohttp.ClientRequest):
    """Gives the connection's socket the request's fence at the last public point before the bytes leave."""

    async def send(self, conn: Any) -> aiohttp.ClientResponse:
        flight = _flight.get()
        protocol = conn.protocol
        flight.reused = protocol in _used
        _used.add(protocol)
        _sockets[conn.transport.get_extra_info("socket").fileno()].flight = flight
        return await super().send(conn)


class AiohttpTransport(httpx.AsyncBaseTransport):
    """Carries httpx requests over one pool of aiohttp connections, bound to the loop that first uses it.

    Bodies come as they are on the wire (nothing is unpacked), redirects are not followed, cookies are not
    kept, proxies of the environment are ignored since they would go round the address guard. A response
    must be closed; one closed before its body's end takes its connection with it, never back to the pool.
    """

    def __init__(
        self,
        guard: AddressGuard,
        *,
        connect_timeout_s: float = 10.0,
        max_connections: int = 1024,
        keepalive_s: float = 15.0,
        dns_cache_s: int = 60,
        ssl_context: ssl.SSLContext | None = None,
    ) -> None:
        self.guard = guard
        self._connect_timeout_s = connect_timeout_s
        self._max_connections = max_connections
        self._keepalive_s = keepalive_s
        self._dns_cache_s = dns_cache_s
        self._ssl_context = ssl_context
        self._session: aiohttp.ClientSession | None = None

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send ``request`` and return its response with the body still on the wire."""
        session = self._session or self._open()
        url = request.url
        netloc = url.netloc.decode("ascii")
        extensions = request.extensions
        target = extensions.get("target") or url.raw_path
        flight = _Flight(url.raw_host.decode("ascii"), extensions.get("may_send"))
        _flight.set(flight)
        headers = CIMultiDict(
            (name.decode("latin-1"), value.decode("latin-1"))
            for name, value in request.headers.raw
            if name.lower() != b"host"  # aiohttp derives it from the URL
        )
        body = await request.aread() if request.method not in ("GET", "HEAD") else None
        try:
            response = await session.request(
                request.method,
                # encoded=True: yarl must not touch the spelling.
                URL(f"{url.scheme}://{netloc}{target.decode('ascii')}", encoded=True),
                headers=headers,
                data=body or None,
                allow_redirects=False,
            )
        except (aiohttp.ClientError, OSError, ValueError) as fault:
            if flight.fenced:
                raise Fenced from fault
            raise _translated(fault, flight, request) from fault
        return httpx.Response(
            response.status,
            headers=list(response.raw_headers),
            stream=_Body(response, flight, request),
            extensions={
                "reason_phrase": (response.reason or "").encode("latin-1", "replace"),
                "reused": flight.reused,
            },
        )

    async def aclose(self) -> None:
        """Close all connections. Idempotent."""
        if self._session is not None:
            session, self._session = self._session, None
            await session.close()

    def _open(self) -> aiohttp.ClientSession:
        connector = aiohttp.TCPConnector(
            limit=self._max_connections,
            keepalive_timeout=self._keepalive_s,
            ttl_dns_cache=self._dns_cache_s,
            socket_factory=self._socket,
            ssl=self._ssl_context if self._ssl_context is not None else True,
        )
        self._session = aiohttp.ClientSession(
            connector=connector,
            request_class=_FencedRequest,
            cookie_jar=aiohttp.DummyCookieJar(),
            trust_env=False,
            auto_decompress=False,
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=self._connect_timeout_s),
        )
        # aiohttp would send a GET again by itself when a kept-alive connection was closed: a request that
        # took no token of the limiter. There is no public switch; its own test client sets this one.
        self._session._retry_connection = False
        return self._session

    def _socket(self, addr_info: Any) -> socket.socket:
        family, kind, proto, _, address = addr_info
        flight = _flight.get()
        try:
            self.guard.check(address[0], address[1], flight.host)
        except FetchError as fault:
            flight.blocked = fault
            # Only OSError lets the connector go on to the name's next address.
            raise PermissionError(errno.EACCES, str(fault)) from fault
        flight.opened = True
        made = _FencedSocket(family, kind, proto)
        made.flight = flight
        _sockets[made.fileno()] = made
        return made


class _Body(httpx.AsyncByteStream):
    """The body on the wire, in whatever pieces it comes."""

    def __init__(self, response: aiohttp.ClientResponse, flight: _Flight, request: httpx.Request) -> None:
        self._response = response
        self._flight = flight
        self._request = request

    async def __aiter__(self) -> AsyncIterator[bytes]:
        content = self._response.content
        try:
            while chunk := await content.readany():
                yield chunk
        except (aiohttp.ClientError, OSError, ValueError) as fault:
            raise _translated(fault, self._flight, self._request, answered=True) from fault

    async def aclose(self) -> None:
        # After the body's end the connection is back in the pool already and this does nothing; before it,
        # the connection is closed, for what is still under way must not answer another request.
        self._response.close()


def _translated(
    fault: Exception, flight: _Flight, request: httpx.Request, *, answered: bool = False
) -> Exception:
    """Return what an error of aiohttp is called on our side.

    Cases, the more special first: the guard refused every address; name; certificate and handshake; time;
    connection not opened; closed before an answer; body cut short; not HTTP; wrong URL or header of ours.
    """
    # aiohttp's words span lines and repeat the URL; a reason is one line.
    text = fault.message if isinstance(fault, aiohttp.ClientResponseError) else str(fault)
    text = " ".join(text.split())[:300] or type(fault).__name__
    if flight.blocked is not None and not flight.opened:
        return flight.blocked
    for kinds, target in _TRANSLATIONS:
        if isinstance(fault, kinds):
            stale = target is Disconnected and flight.reused and not answered
            return (StaleConnection if stale else target)(text, request=request)
    return httpx.LocalProtocolError(text, request=request)


_TRANSLATIONS: tuple[tuple[tuple[type[Exception], ...], type[httpx.RequestError]], ...] = (
    ((aiohttp.ClientConnectorDNSError,), DnsError),
    ((aiohttp.ClientSSLError, aiohttp.ServerFingerprintMismatch, ssl.SSLError), TlsError),
    ((aiohttp.ConnectionTimeoutError,), httpx.ConnectTimeout),
    ((aiohttp.ServerTimeoutError, asyncio.TimeoutError), httpx.ReadTimeout),
    ((aiohttp.ClientConnectorError,), Refused),
    ((aiohttp.ClientPayloadError,), Incomplete),
    ((aiohttp.ServerDisconnectedError, aiohttp.ClientOSError, ConnectionError), Disconnected),
    ((aiohttp.ClientResponseError,), httpx.RemoteProtocolError),
    ((aiohttp.InvalidURL, aiohttp.NonHttpUrlClientError), httpx.UnsupportedProtocol),
    ((aiohttp.ClientConnectionError,), Disconnected),
    ((aiohttp.ClientError,), httpx.RemoteProtocolError),
    ((OSError,), Disconnected),
)
