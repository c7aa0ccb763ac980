"""Fetching: bounds, redirects, reasons."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import Callable
from email.utils import formatdate
from typing import Any

import httpx
import pytest

from flask_spiderpool.crawl import response
from flask_spiderpool.crawl import transport as net
from flask_spiderpool.crawl.fetch import Fetcher, FetchLimits, Response, translated
from flask_spiderpool.crawl.response import parse_retry_after
from flask_spiderpool.errors import Fenced, FetchError
from flask_spiderpool.terms import Reason
from tests.crawl.fetching import AGENT, fetching
from tests.site.server import Raw, Reply, Seen, Site

KIB = 1024


def _fetch(
    site: Site, path: str = "/", *others: Site, limits: FetchLimits | None = None, **options: Any
) -> Response:
    async def scenario() -> Response:
        async with fetching(site, *others, limits=limits) as fetcher:
            return await fetcher.fetch(site.url + path, **options)

    return asyncio.run(scenario())


def _fault(site: Site, path: str = "/", *others: Site, **options: Any) -> FetchError:
    with pytest.raises(FetchError) as caught:
        _fetch(site, path, *others, **options)
    return caught.value


def test_a_page(site: Site) -> None:
    """A page comes with its final URL, status, headers and body."""
    site.pages["/x"] = Reply("<p>é", headers={"etag": '"1"'})
    response = _fetch(site, "/x#frag", headers={"X-Own": "1"})
    assert (response.status, response.body, response.wire_bytes) == (200, "<p>é".encode(), 5)
    assert response.final_url == site.url + "/x"
    assert response.headers["ETag"] == '"1"'
    assert response.content_type == "text/html; charset=utf-8"
    assert (response.hops, response.was_cut, response.retry_after_s) == ((), False, None)
    seen = site.log[0].headers
    assert (seen["user-agent"], seen["x-own"], seen["host"]) == (AGENT, "1", site.host)
    assert "gzip" in seen["accept-encoding"]


def test_a_callers_header_replaces_the_default(site: Site) -> None:
    """A spider may name its own user agent."""
    _fetch(site, headers={"user-agent": "Other/2"})
    assert site.log[0].headers["user-agent"] == "Other/2"


def test_packed_body(site: Site) -> None:
    """A packed body is unpacked; both sizes are known."""
    packed = gzip.compress(b"text" * 1000)
    site.pages["/"] = Reply(packed, headers={"content-encoding": "gzip"})
    response = _fetch(site)
    assert (response.body, response.wire_bytes) == (b"text" * 1000, len(packed))


@pytest.mark.parametrize("chunked", [False, True])
def test_size_limit_is_exact(site: Site, chunked: bool) -> None:
    """A body of exactly the limit is kept, one byte more is too large, announced or not."""

    def page(seen: Seen) -> Reply | Raw:
        size = int(seen.path[1:])
        if chunked:
            return Raw(
                b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\n\r\n"
                % (size, b"x" * size)
            )
        return Reply(b"x" * size)

    site.default = page
    limits = FetchLimits(max_bytes=10 * KIB)
    assert len(_fetch(site, f"/{10 * KIB}", limits=limits).body) == 10 * KIB
    fault = _fault(site, f"/{10 * KIB + 1}", limits=limits)
    assert (fault.reason, fault.retry) == (Reason.TOO_LARGE, False)


def test_an_announced_size_is_believed(site: Site) -> None:
    """A length beyond the limit is refused from the header alone, while the site says nothing more."""
    site.pages["/"] = Raw(b"HTTP/1.1 200 OK\r\nContent-Length: 10000000000\r\n\r\nx", then="hang")
    assert _fault(site).reason == Reason.TOO_LARGE


def test_bomb(site: Site) -> None:
    """What unpacks beyond its limit is a bomb and is not tried again."""
    site.pages["/"] = Reply(gzip.compress(bytes(5_000_000)), headers={"content-encoding": "gzip"})
    fault = _fault(site, limits=FetchLimits(max_unpacked_bytes=1_000_000))
    assert (fault.reason, fault.retry) == (Reason.BOMB, False)


def test_cut_keeps_the_beginning(site: Site) -> None:
    """With ``cut`` a body that is too large gives its first bytes, packed or not."""
    site.pages["/plain"] = "0123456789" * 100_000
    site.pages["/gz"] = Reply(gzip.compress(b"0123456789" * 1_000_000), headers={"content-encoding": "gzip"})
    limits = FetchLimits(max_bytes=200_000, max_unpacked_bytes=500_000, cut=True)
    for path in ("/plain", "/gz"):
        response = _fetch(site, path, limits=limits)
        assert response.was_cut
        assert 0 < len(response.body) <= 500_000
        assert response.body.startswith(b"01234567890")


@pytest.mark.parametrize(
    ("page", "reason", "retry"),
    [
        (Raw(b""), Reason.DISCONNECTED, True),
        (Raw(b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nabc"), Reason.TRUNCATED, True),
        (Raw(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab"), Reason.TRUNCATED, True),
        (Raw(b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nabc", reset=True), Reason.TRUNCATED, True),
        (
            Reply(gzip.compress(b"x" * 5000)[:20], headers={"content-encoding": "gzip"}),
            Reason.TRUNCATED,
            True,
        ),
        (Reply(b"\x1f\x8bnonsense", headers={"content-encoding": "gzip"}), Reason.ENCODING, False),
        (Reply("x", headers={"content-encoding": "compress"}), Reason.ENCODING, False),
        (Raw(b"ICY 200 OK\r\n\r\n"), Reason.PROTOCOL, False),
        (Reply("", 302), Reason.REDIRECT_BAD, False),
        (Reply("", 302, {"location": " "}), Reason.REDIRECT_BAD, False),
        (Reply("", 302, {"location": "http://["}), Reason.REDIRECT_BAD, False),
        (Reply("", 302, {"location": "file:///etc/passwd"}), Reason.REDIRECT_BAD, False),
        (Reply("", 302, {"location": "/"}), Reason.REDIRECT_LOOP, False),
    ],
)
def test_reasons(site: Site, page: Reply | Raw, reason: Reason, retry: bool) -> None:
    """Every way to fail has its reason, and says whether another try may help."""
    site.pages["/"] = page
    fault = _fault(site)
    assert (fault.reason, fault.retry) == (reason, retry)


def test_whole_packed_body_with_the_wrong_length(site: Site) -> None:
    """Content-Length of the unpacked page with the packed body: complete by its own end mark."""
    packed = gzip.compress(b"x" * 5000)
    site.pages["/"] = Raw(
        b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 5000\r\n\r\n" + packed
    )
    assert _fetch(site).body == b"x" * 5000


def test_deadline_bounds_everything_together(site: Site) -> None:
    """A site that answers and then falls silent is given up when the whole time is over."""
    site.pages["/"] = Raw(b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nabc", then="hang")
    fault = _fault(site, deadline_s=0.05)
    assert (fault.reason, fault.retry) == (Reason.TIMEOUT_TOTAL, True)


def test_connecting_has_its_own_deadline() -> None:
    """A connection that does not come about is told from a page that does not come."""

    class Silent(httpx.AsyncBaseTransport):
        async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
            raise httpx.ConnectTimeout("too slow")

    with pytest.raises(FetchError) as caught:
        asyncio.run(Fetcher(Silent(), user_agent=AGENT).fetch("http://h.example/"))
    assert (caught.value.reason, caught.value.retry) == (Reason.TIMEOUT_CONNECT, True)


def test_time_in_hooks_is_not_the_sites(site: Site) -> None:
    """Waiting for the limiter before a hop takes nothing from the deadline, nor adds to the elapsed time."""
    site.pages["/"] = Reply("", 302, {"location": "/end"})
    site.pages["/end"] = "end"

    async def wait(url: str) -> None:
        await asyncio.sleep(0.4)

    response = _fetch(site, deadline_s=0.3, on_hop=wait)
    assert response.body == b"end"
    assert response.elapsed_ms < 300


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_redirects_are_followed(site: Site, status: int) -> None:
    """Every redirect is followed by GET; each hop is announced first."""
    site.pages["/"] = Reply("moved", status, {"location": "a/b?c#d"})
    site.pages["/a/b"] = "there"
    hops: list[str] = []

    async def on_hop(url: str) -> None:
        hops.append(url)
        assert site.paths() == ["/"]

    response = _fetch(site, on_hop=on_hop)
    assert (response.body, response.final_url, response.url) == (
        b"there",
        site.url + "/a/b?c",
        site.url + "/",
    )
    assert response.hops == tuple(hops) == (site.url + "/a/b?c",)
    assert site.paths() == ["/", "/a/b?c"]
    assert {seen.connection for seen in site.log} == {1}


def test_300_is_an_answer(site: Site) -> None:
    """A choice of several is not followed blindly."""
    site.pages["/"] = Reply("choose", 300, {"location": "/x"})
    assert _fetch(site).status == 300


@pytest.mark.parametrize(
    ("location", "target"),
    [
        ("/ok/石".encode(), "/ok/%E7%9F%B3"),
        (b"/ok/caf\xe9", "/ok/caf%E9"),
        (b"  /ok/a b?c= d ", "/ok/a%20b?c=%20d"),
        (b"?x=1", "/start?x=1"),
    ],
)
def test_odd_locations(site: Site, location: bytes, target: str) -> None:
    """Bytes outside ASCII are percent-encoded as they are; blanks are mended; the base is the URL itself."""
    site.pages["/start"] = Raw(
        b"HTTP/1.1 302 Found\r\nContent-Length: 0\r\nLocation: " + location + b"\r\n\r\n", then="keep"
    )
    site.pages["/start?x=1"] = "x"
    assert _fetch(site, "/start").final_url == site.url + target


def test_redirect_limit(site: Site) -> None:
    """As many redirects as the limit says are followed, one more is not."""

    def chain(seen: Seen) -> str | Reply:
        left = int(seen.path[1:])
        return "end" if left == 0 else Reply("", 302, {"location": f"/{left - 1}"})

    site.default = chain
    assert _fetch(site, "/10").body == b"end"
    assert _fault(site, "/11").reason == Reason.REDIRECT_LIMIT


def test_redirect_circle(site: Site) -> None:
    """A circle of several URLs ends at its first repetition."""
    site.pages.update({"/a": Reply("", 302, {"location": "/b"}), "/b": Reply("", 302, {"location": "/a"})})
    assert _fault(site, "/a").reason == Reason.REDIRECT_LOOP
    assert site.paths() == ["/a", "/b"]


def test_secrets_stay_with_their_origin(site: Site) -> None:
    """Authorization and Cookie are not carried to another origin, nor back again."""
    with Site() as other:
        site.pages["/"] = Reply("", 302, {"location": "/same"})
        site.pages["/same"] = Reply("", 302, {"location": other.url + "/other"})
        other.pages["/other"] = Reply("", 302, {"location": site.url + "/back"})
        _fetch(site, "/", other, headers={"Authorization": "Bearer x", "Cookie": "a=b", "X-Own": "1"})
        by_path = {seen.path: seen.headers for seen in [*site.log, *other.log]}
    assert [path for path, headers in by_path.items() if "authorization" in headers] == ["/", "/same"]
    assert [path for path, headers in by_path.items() if "cookie" in headers] == ["/", "/same"]
    assert all(headers["x-own"] == "1" for headers in by_path.values())


def test_a_hop_may_be_refused(site: Site) -> None:
    """What the hook raises ends the fetch before the hop is sent."""
    site.pages["/"] = Reply("", 302, {"location": "/out"})

    async def refuse(url: str) -> None:
        raise FetchError(Reason.SCOPE, url)

    assert _fault(site, on_hop=refuse).reason == Reason.SCOPE
    assert site.paths() == ["/"]


def test_a_redirect_to_a_private_address_is_blocked(site: Site) -> None:
    """The address guard sees every hop."""
    with Site() as canary:
        site.pages["/"] = Reply("", 302, {"location": canary.url})
        assert _fault(site).reason == Reason.BLOCKED_ADDRESS
        assert canary.connections == 0


def test_fence_holds_back_every_hop(site: Site) -> None:
    """A fence that shuts between two hops lets the second one no more out."""
    site.pages["/"] = Reply("", 302, {"location": "/next"})
    answers = iter([True, False])
    with pytest.raises(Fenced):
        _fetch(site, may_send=lambda: next(answers))
    assert site.paths() == ["/"]


def _after_a_warm_connection(site: Site, **options: Any) -> Callable[[], Response]:
    site.pages["/gone"] = Raw(b"")

    async def scenario() -> Response:
        async with fetching(site) as fetcher:
            await fetcher.fetch(site.url + "/warm")
            return await fetcher.fetch(site.url + "/gone", **options)

    return lambda: asyncio.run(scenario())


def test_stale_connection_without_a_hook(site: Site) -> None:
    """Nothing is sent twice behind the limiter's back."""
    with pytest.raises(FetchError) as caught:
        _after_a_warm_connection(site)()
    assert (caught.value.reason, caught.value.retry) == (Reason.DISCONNECTED, True)
    assert site.count("/gone") == 1


def test_stale_connection_with_a_hook(site: Site) -> None:
    """With a hook the request is sent once more, after the hook, and only once."""
    announced: list[int] = []

    async def on_resend(url: str) -> None:
        announced.append(site.count("/gone"))

    with pytest.raises(FetchError):
        _after_a_warm_connection(site, on_resend=on_resend)()
    assert announced == [1]
    assert site.count("/gone") == 2


def test_cancelling_closes_the_connection(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cancelled fetch raises CancelledError and leaves no connection in the pool."""
    site.pages["/"] = Raw(b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nabc", then="hang")

    async def scenario() -> None:
        async with fetching(site) as fetcher:
            reading = asyncio.Event()

            async def read_body(*arguments: Any) -> Any:
                reading.set()
                return await response.read_body(*arguments)

            monkeypatch.setattr("flask_spiderpool.crawl.fetch.read_body", read_body)
            task = asyncio.create_task(fetcher.fetch(site.url))
            await reading.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await fetcher.fetch(site.url + "/next")

    asyncio.run(scenario())
    assert [seen.connection for seen in site.log] == [1, 2]


@pytest.mark.parametrize("url", ["http://[", "ftp://h.example/", "", "http://h.example/" + "x" * 3000])
def test_wrong_urls(url: str) -> None:
    """A URL that cannot be asked for is a FetchError too."""

    async def scenario() -> None:
        async with fetching() as fetcher:
            await fetcher.fetch(url)

    with pytest.raises(FetchError) as caught:
        asyncio.run(scenario())
    assert caught.value.reason in (Reason.BAD_URL, Reason.SCHEME, Reason.URL_TOO_LONG)


def _http_errors(kind: type[httpx.HTTPError] = httpx.HTTPError) -> list[type[httpx.HTTPError]]:
    return [kind, *(each for child in kind.__subclasses__() for each in _http_errors(child))]


@pytest.mark.parametrize("kind", [kind for kind in _http_errors() if kind is not httpx.HTTPStatusError])
def test_every_httpx_error_has_a_reason(kind: type[httpx.HTTPError]) -> None:
    """No error of httpx, nor one of our own kinds, is left without a reason."""
    fault = translated(kind("what happened"))
    assert fault.reason in set(Reason)
    assert str(fault) == "what happened"


def test_tls_is_not_tried_again() -> None:
    """A handshake that failed will fail again; a name may come back."""
    assert not translated(net.TlsError("x")).retry
    assert translated(net.DnsError("x")).retry
    assert translated(net.DnsError("x")).reason == Reason.DNS


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (None, None),
        ("2", 2.0),
        (" 120 ", 120.0),
        ("0", 0.0),
        (formatdate(1_700_000_030, usegmt=True), 30.0),
        (formatdate(1_600_000_000, usegmt=True), 0.0),
        ("soon", None),
        ("-5", None),
        ("1.5", None),
        ("", None),
        ("٣", None),
        ("Mon, 99 Nov 2026 99:99:99 GMT", None),
        ("9" * 400, 86_400.0),
    ],
)
def test_retry_after(value: str | None, seconds: float | None) -> None:
    """Seconds and dates are understood; everything else counts as absent."""
    assert parse_retry_after(value, now=1_700_000_000.0) == seconds


def test_retry_after_of_a_response(site: Site) -> None:
    """A 429 is a response with the wish of the site, by the injected wall clock."""
    site.pages["/"] = Reply("", 429, {"retry-after": formatdate(1_700_000_007, usegmt=True)})

    async def scenario() -> Response:
        async with fetching(site) as made:
            fetcher = Fetcher(made._transport, user_agent=AGENT, wall_clock=lambda: 1_700_000_000.0)
            return await fetcher.fetch(site.url)

    response = asyncio.run(scenario())
    assert (response.status, response.retry_after_s) == (429, 7.0)
