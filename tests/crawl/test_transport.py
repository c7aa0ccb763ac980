"""The transport: what leaves, when it leaves, and what an error is called."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import ssl
from typing import Any

import aiohttp
import httpx
import pytest

from flask_spiderpool.crawl import transport as net
from flask_spiderpool.crawl.address import AddressGuard
from flask_spiderpool.crawl.urls import wire
from flask_spiderpool.errors import Fenced, FetchError
from flask_spiderpool.terms import Reason
from tests.site.server import Raw, Reply, Seen, Site


def _request(url: str, **extensions: Any) -> httpx.Request:
    return httpx.Request("GET", url, extensions=extensions)


async def _get(transport: net.AiohttpTransport, url: str, **extensions: Any) -> bytes:
    response = await transport.handle_async_request(_request(url, **extensions))
    try:
        return await response.aread()
    finally:
        await response.aclose()


def _transport(*sites: Site, **options: Any) -> net.AiohttpTransport:
    return net.AiohttpTransport(AddressGuard([site.host for site in sites]), **options)


def test_works_under_an_httpx_client(site: Site) -> None:
    """It is an ordinary httpx transport: a client over it gets bodies, headers and posts."""
    site.pages["/"] = Reply("hello", headers={"x-two": "a"})
    site.pages["/post"] = lambda seen: seen.method + seen.headers.get("content-length", "")

    async def scenario() -> None:
        async with httpx.AsyncClient(transport=_transport(site), trust_env=False) as client:
            answer = await client.get(site.url)
            assert (answer.text, answer.headers["x-two"], answer.reason_phrase) == ("hello", "a", "OK")
            assert (await client.post(site.url + "/post", content=b"abc")).text == "POST3"

    asyncio.run(scenario())


def test_target_is_sent_as_spelled(site: Site) -> None:
    """The target extension reaches the site byte for byte."""
    targets = ["/a%2Fb?x='1'&y", "/100%", "/%7e", "/a|b?c={d}", "/q?wsdl", "//x"]

    async def scenario() -> None:
        transport = _transport(site)
        for target in targets:
            await _get(transport, site.url, target=target.encode())
        await transport.aclose()

    asyncio.run(scenario())
    assert site.paths() == targets


def test_fence_shut_sends_nothing(site: Site) -> None:
    """With the fence shut Fenced is raised and the site sees no request."""

    async def scenario() -> None:
        transport = _transport(site)
        with pytest.raises(Fenced):
            await _get(transport, site.url, may_send=lambda: False)
        await transport.aclose()

    asyncio.run(scenario())
    assert site.log == []


def test_fence_is_asked_after_the_wait_for_a_connection(site: Site) -> None:
    """A fence that shuts while a request waits for a free connection still holds it back."""
    gate = asyncio.Event()
    arrived: asyncio.Event
    loop: asyncio.AbstractEventLoop

    async def slow(seen: Seen) -> str:
        loop.call_soon_threadsafe(arrived.set)
        await gate.wait()
        return "done"

    site.pages["/slow"] = slow
    is_open = True

    async def scenario() -> None:
        nonlocal is_open, arrived, loop
        loop, arrived = asyncio.get_running_loop(), asyncio.Event()
        transport = _transport(site, max_connections=1)
        first = asyncio.create_task(_get(transport, site.url + "/slow"))
        await arrived.wait()
        second = asyncio.create_task(_get(transport, site.url + "/second", may_send=lambda: is_open))
        for _ in range(5):
            await asyncio.sleep(0)  # it is in the queue for the one connection now
        is_open = False
        site.call(gate.set)
        assert await first == b"done"
        with pytest.raises(Fenced):
            await second
        await transport.aclose()

    asyncio.run(scenario())
    assert site.paths() == ["/slow"]


def test_fence_is_asked_after_the_connection_is_made(site: Site) -> None:
    """At the time of the question the connection to the site stands already."""
    asked: list[bool] = []

    async def scenario() -> None:
        transport = _transport(site)
        opened: list[int] = []
        make_socket = transport._socket

        def counting(addr_info: Any) -> Any:
            opened.append(1)
            return make_socket(addr_info)

        transport._socket = counting  # type: ignore[method-assign]

        def may_send() -> bool:
            asked.append(bool(opened))
            return True

        await _get(transport, site.url, may_send=may_send)
        await transport.aclose()

    asyncio.run(scenario())
    assert asked == [True]


def test_whole_bodies_give_their_connection_back(site: Site) -> None:
    """Two requests after each other share one connection."""

    async def scenario() -> None:
        transport = _transport(site)
        await _get(transport, site.url + "/a")
        await _get(transport, site.url + "/b")
        await transport.aclose()

    asyncio.run(scenario())
    assert {seen.connection for seen in site.log} == {1}


def test_an_early_stop_takes_the_connection_with_it(site: Site) -> None:
    """After a body that was not read to its end the next request goes over another connection."""
    site.pages["/long"] = Raw(
        b"HTTP/1.1 200 OK\r\nContent-Length: 10000000\r\n\r\n" + b"x" * 200_000, then="hang"
    )

    async def scenario() -> None:
        transport = _transport(site)
        response = await transport.handle_async_request(_request(site.url + "/long"))
        assert isinstance(response.stream, httpx.AsyncByteStream)
        async for _ in response.stream:
            break
        await response.aclose()
        assert await _get(transport, site.url + "/next") == b"not here"
        await transport.aclose()

    asyncio.run(scenario())
    assert [seen.connection for seen in site.log] == [1, 2]


def test_left_over_bytes_never_answer_the_next_request(site: Site) -> None:
    """A body longer than announced is no answer to the request after it."""
    site.pages["/overlong"] = Raw(
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\nSMUGGLED",
        then="keep",
    )

    async def scenario() -> None:
        transport = _transport(site)
        with contextlib.suppress(httpx.RemoteProtocolError):
            assert await _get(transport, site.url + "/overlong") == b"ok"
        assert await _get(transport, site.url + "/innocent") == b"not here"
        await transport.aclose()

    asyncio.run(scenario())


def test_nothing_is_sent_again_by_itself(site: Site) -> None:
    """A kept-alive connection that the site closes is an error of its own; only one request was sent."""
    site.pages["/gone"] = Raw(b"")

    async def scenario() -> None:
        transport = _transport(site)
        await _get(transport, site.url + "/first")
        with pytest.raises(net.StaleConnection):
            await _get(transport, site.url + "/gone")
        await transport.aclose()

    asyncio.run(scenario())
    assert site.paths() == ["/first", "/gone"]


def test_redirects_cookies_and_codings_are_left_alone(site: Site) -> None:
    """The transport follows nothing, keeps no cookie and unpacks nothing."""
    site.pages["/r"] = Reply("body", 302, {"location": "/", "set-cookie": "a=b", "content-encoding": "gzip"})

    async def scenario() -> None:
        transport = _transport(site)
        response = await transport.handle_async_request(_request(site.url + "/r"))
        assert isinstance(response.stream, httpx.AsyncByteStream)
        assert response.status_code == 302
        assert b"".join([chunk async for chunk in response.stream]) == b"body"
        await response.aclose()
        await _get(transport, site.url + "/after")
        await transport.aclose()

    asyncio.run(scenario())
    assert site.paths() == ["/r", "/after"]
    assert "cookie" not in site.log[1].headers


def test_environment_proxies_are_ignored(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """A proxy named by the environment would go round the address guard."""
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    monkeypatch.setenv("NO_PROXY", "")

    async def scenario() -> None:
        transport = _transport(site)
        assert await _get(transport, site.url) == b"not here"
        await transport.aclose()

    asyncio.run(scenario())


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "localhost", "2130706433", "0x7f.1", "[::ffff:127.0.0.1]", "0.0.0.0"]
)
def test_guard_sees_every_spelling(site: Site, host: str) -> None:
    """Loopback is refused before the connection is made, however it is spelled."""

    async def scenario() -> None:
        transport = net.AiohttpTransport(AddressGuard())
        with pytest.raises(FetchError) as caught:
            await _get(transport, wire(f"http://{host}:{site.port}/"))
        assert caught.value.reason == Reason.BLOCKED_ADDRESS
        await transport.aclose()

    asyncio.run(scenario())
    assert site.connections == 0


def test_plain_text_where_tls_is_expected() -> None:
    """A failed handshake is a TLS error."""

    async def scenario() -> None:
        async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            await writer.drain()
            writer.close()

        server = await asyncio.start_server(talk, "127.0.0.1", 0)
        host = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        transport = net.AiohttpTransport(AddressGuard([host]))
        with pytest.raises(net.TlsError):
            await _get(transport, f"https://{host}/")
        await transport.aclose()
        server.close()

    asyncio.run(scenario())


def test_nobody_listens() -> None:
    """A port without a listener refuses."""
    with Site() as gone:
        pass

    async def scenario() -> None:
        transport = _transport(gone)
        with pytest.raises(net.Refused):
            await _get(transport, gone.url)
        await transport.aclose()

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("page", "kind"),
    [
        (Raw(b""), net.Disconnected),
        (Raw(b"", reset=True), net.Disconnected),
        (Raw(b"SSH-2.0-x\r\n\r\n"), httpx.RemoteProtocolError),
        (Raw(b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n"), httpx.RemoteProtocolError),
        (Raw(b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nabc"), net.Incomplete),
        (Raw(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab"), net.Incomplete),
    ],
)
def test_broken_answers(site: Site, page: Raw, kind: type[Exception]) -> None:
    """Each way in which an answer can break has its own error."""
    site.pages["/"] = page

    async def scenario() -> None:
        transport = _transport(site)
        with pytest.raises(kind) as caught:
            await _get(transport, site.url)
        assert "\n" not in str(caught.value)
        await transport.aclose()

    asyncio.run(scenario())


def _client_errors() -> list[type[Exception]]:
    exported = [getattr(aiohttp, name) for name in dir(aiohttp)]
    errors = {kind for kind in exported if inspect.isclass(kind) and issubclass(kind, aiohttp.ClientError)}
    return sorted(errors, key=lambda kind: kind.__name__)


@pytest.mark.parametrize(
    "kind", [*_client_errors(), OSError, ConnectionResetError, TimeoutError, ValueError, ssl.SSLError]
)
def test_no_error_of_aiohttp_gets_out(kind: type[Exception]) -> None:
    """Every error that aiohttp exports has a name on our side."""
    # Their constructors differ; only the class and the text matter here.
    plain = type(
        kind.__name__, (kind,), {"__str__": lambda self: "what happened", "message": "what happened"}
    )
    fault = plain.__new__(plain)
    flight = net._Flight("h", None)
    assert isinstance(net._translated(fault, flight, _request("http://h/")), httpx.TransportError)


def test_close_is_idempotent(site: Site) -> None:
    """A transport may be closed twice, and before it was used."""

    async def scenario() -> None:
        transport = _transport(site)
        await transport.aclose()
        await _get(transport, site.url)
        await transport.aclose()
        await transport.aclose()

    asyncio.run(scenario())
