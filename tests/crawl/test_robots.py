"""robots.txt: rules, bounds, and the cache of a process."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from protego import Protego

from flask_spiderpool.crawl.robots import MAX_BYTES, RobotsCache, RobotsRules, RobotsUnreachable
from flask_spiderpool.errors import Fenced, FetchError
from flask_spiderpool.terms import Reason
from tests.crawl.fetching import AGENT, fetching
from tests.site.server import Raw, Reply, Seen, Site

H = "http://h.example"


def _rules(text: str | bytes, agent: str = AGENT) -> RobotsRules:
    return RobotsRules.parse(text if isinstance(text, bytes) else text.encode(), agent)


@pytest.mark.parametrize(
    ("text", "path", "allowed"),
    [
        ("User-agent: *\nDisallow: /private/", "/private/x", False),
        ("User-agent: *\nDisallow: /private/", "/public", True),
        (b"\xef\xbb\xbfUser-agent: *\r\nDisallow: /private/ # c\r\n", "/private/x", False),
        ("USER-AGENT : *\rDISALLOW:/private/\r", "/private/x", False),
        ("User-agent: *\nDisallow: /*s=", "/?s=x", False),
        ("User-agent: *\nDisallow: /search?q=", "/search?q=1", False),
        ("User-agent: *\nDisallow: /search?q=", "/search", True),
        ("User-agent: *\nDisallow: /*.pdf$", "/a.pdf", False),
        ("User-agent: *\nDisallow: /*.pdf$", "/a.pdf?x", True),
        ("User-agent: *\nDisallow: /a\nAllow: /a/b", "/a/b/c", True),
        ("User-agent: *\nDisallow: /a/b\nAllow: /a", "/a/b/c", False),
        ("User-agent: *\nDisallow: /a\nAllow: /a", "/a", True),
        ("User-agent: *\nDisallow:", "/x", True),
        ("User-agent: *\nDisallow: /", "/robots.txt", True),
        ("User-agent: other\nDisallow: /", "/x", True),
        ("User-agent: testbot\nDisallow: /x\n\nUser-agent: *\nDisallow: /", "/y", True),
        ("User-agent: *\nDisallow: /\n\nUser-agent: TestBot/2\nAllow: /\nUser-agent: testbot\nAllow: /y", "/y", True),
        ("User-agent: a\nUser-agent: testbot\nUser-agent: b\nDisallow: /x", "/x", False),
        ("User-agent: testbot\nDisallow: /x\nUser-agent: *\nDisallow: /z\nUser-agent: testbot\nDisallow: /y", "/y", False),
        ("User-agent: testbot\nSitemap: /s.xml\nUser-agent: *\nDisallow: /x", "/x", False),
        ("User-agent: bot\nDisallow: /", "/x", True),
        ("User-agent: example\nDisallow: /", "/x", True),
        ("Disallow: /", "/x", True),
        ("<!doctype html><title>robots: page</title><p>Disallow: /", "/x", True),
        ("", "/x", True),
        (b"\x00\xff\xfe garbage \xff", "/x", True),
    ],
)  # fmt: skip
def test_verdicts(text: str | bytes, path: str, allowed: bool) -> None:
    """RFC 9309, read leniently: groups, longest match, wildcards, odd spellings."""
    assert _rules(text).allowed(H + path) is allowed


_LINES = st.sampled_from(
    [
        "User-agent: *", "User-agent: testbot", "User-Agent: TestBot", "user agent other", "User-agent: testb",
        "Disallow: /a", "Disallow: /", "Disallow:", "Allow: /a/b", "Allow: /", "Crawl-delay: 2", "Disallow: /*x$",
        "Sitemap: http://h.example/s.xml", "Host: h.example", "Noindex: /a", "# comment", "", "nonsense", "Disallow /b",
    ]
)  # fmt: skip


@given(st.lists(_LINES, max_size=14), st.sampled_from(["/", "/a", "/a/b", "/b", "/ax", "/c"]))
def test_same_verdict_as_protego_on_the_whole_file(lines: list[str], path: str) -> None:
    """Keeping only the groups that apply changes no verdict and no delay."""
    text = "\n".join(lines)
    whole, ours = Protego.parse(text), _rules(text, "TestBot/1.0")
    assert ours.allowed(H + path) == whole.can_fetch(H + path, "TestBot/1.0")
    assert ours.crawl_delay_s == whole.crawl_delay("TestBot/1.0")
    assert list(ours.sitemaps) == list(dict.fromkeys(whole.sitemaps))


@pytest.mark.parametrize(
    ("lines", "delay_s"),
    [
        ("Crawl-delay: 2.5", 2.5),
        ("Crawl-delay: 0", None),
        ("Crawl-delay: soon", None),
        ("Crawl-delay: inf", None),
        ("Request-rate: 1/10s", 10.0),
        ("Crawl-delay: 3\nRequest-rate: 1/2s", 3.0),
        ("Disallow: /x", None),
    ],
)
def test_crawl_delay(lines: str, delay_s: float | None) -> None:
    """The longer of what Crawl-delay and Request-rate ask for."""
    assert _rules(f"User-agent: *\n{lines}").crawl_delay_s == delay_s


def test_nothing_forbidden_costs_nothing() -> None:
    """A file without a rule that forbids keeps no parser, though its delay counts."""
    rules = _rules("User-agent: *\nDisallow:\nAllow: /\nCrawl-delay: 2")
    assert rules._parser is None
    assert rules.crawl_delay_s == 2
    assert rules.allowed("anything at all")


def test_sitemaps_are_kept_from_any_group() -> None:
    """Sitemap lines belong to the whole file."""
    text = "Sitemap: http://h.example/1.xml\nUser-agent: x\nDisallow: /\nSitemap: http://h.example/2.xml"
    assert _rules(text).sitemaps == ("http://h.example/1.xml", "http://h.example/2.xml")


def test_what_is_no_url_is_not_allowed() -> None:
    """A URL that urllib cannot split raises nothing."""
    assert not _rules("User-agent: *\nDisallow: /x").allowed("http://[")


@pytest.mark.parametrize(
    "text",
    [
        "\n".join(f"User-agent: b{n}" for n in range(15_000)) + "\n" + "\n".join(f"Disallow: /{n}" for n in range(15_000)),
        "\n".join(f"User-agent: {AGENT[a:b]}" for a in range(20) for b in range(a + 1, 25)) + "\n"
        + "\n".join(f"Disallow: /{n}" for n in range(30_000)),
        "User-agent: *\n" + "\n".join(f"Disallow: /*a*{n}" for n in range(30_000)),
        "User-agent: *\nDisallow: /" + "*a" * 200_000,
    ],
    ids=["agents", "parts of our name", "wildcards", "one line"],
)  # fmt: skip
def test_large_files_are_bounded(text: str) -> None:
    """Files that are made to be slow are read in seconds of CPU, not minutes (34 s without the bounds)."""
    started = time.process_time()
    rules = _rules(text)
    rules.allowed(H + "/" + "ab" * 1000)
    assert time.process_time() - started < 3


def test_the_first_500_kib_are_read() -> None:
    """Rules within the first 500 KiB count, and a line cut at the bound does not."""
    early = b"User-agent: *\nDisallow: /early\n"
    filler = b"# " + b"x" * 997 + b"\n"
    content = early + filler * (MAX_BYTES // 1000) + b"Disallow: /late\n" * 100
    rules = _rules(content)
    assert not rules.allowed(H + "/early")
    assert rules.rule_count < 100


class _Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def _with_cache(
    site: Site, scenario: Callable[[RobotsCache, _Clock], Awaitable[Any]], *others: Site, **options: Any
) -> Any:
    async def run() -> Any:
        async with fetching(site, *others) as fetcher:
            clock = _Clock()
            return await scenario(RobotsCache(fetcher, clock=clock, **options), clock)

    return asyncio.run(run())


def test_one_request_an_origin(site: Site) -> None:
    """Many who ask at once cause one request; afterwards the rules are at hand."""
    site.pages["/robots.txt"] = Reply("User-agent: *\nDisallow: /x")

    async def scenario(cache: RobotsCache, clock: _Clock) -> None:
        assert cache.known(site.url + "/a") is None
        found = await asyncio.gather(*(cache.rules(f"{site.url}/{n}") for n in range(20)))
        assert all(rules is found[0] for rules in found)
        assert cache.known(site.url + "/a?b") is found[0]
        assert not found[0].allowed(site.url + "/x")

    _with_cache(site, scenario)
    assert site.paths() == ["/robots.txt"]
    assert site.log[0].headers["user-agent"] == AGENT


def test_rules_expire(site: Site) -> None:
    """After its time the file is asked for again."""

    async def scenario(cache: RobotsCache, clock: _Clock) -> None:
        await cache.rules(site.url + "/")
        clock.now += 99
        await cache.rules(site.url + "/")
        assert len(site.log) == 1
        clock.now += 2
        assert cache.known(site.url + "/") is None
        await cache.rules(site.url + "/")
        assert len(site.log) == 2

    _with_cache(site, scenario, ttl_s=100.0)


@pytest.mark.parametrize("status", [400, 401, 403, 404, 410])
def test_client_errors_allow_everything(site: Site, status: int) -> None:
    """4xx means that there is no file, whatever its body says."""
    site.pages["/robots.txt"] = Reply("User-agent: *\nDisallow: /", status)
    rules = _with_cache(site, lambda cache, clock: cache.rules(site.url + "/"))
    assert rules.allowed(site.url + "/x")


@pytest.mark.parametrize(
    ("page", "cause"),
    [
        (Reply("User-agent: *\nAllow: /", 503), "http_503"),
        (Reply("<html>", 500), "http_500"),
        (Reply("", 429), "http_429"),
        (Raw(b""), "disconnected"),
        (Raw(b"nonsense\r\n\r\n"), "protocol"),
    ],
)
def test_unreachable_forbids_everything(site: Site, page: Reply | Raw, cause: str) -> None:
    """5xx, 429 and failures of the network mean that nothing of the origin is fetched for a while."""
    site.pages["/robots.txt"] = page

    async def scenario(cache: RobotsCache, clock: _Clock) -> None:
        with pytest.raises(RobotsUnreachable) as caught:
            await cache.rules(site.url + "/")
        assert caught.value.reason == Reason.ROBOTS_UNREACHABLE
        assert (caught.value.retry, caught.value.retry_after_s, caught.value.cause) == (True, 60.0, cause)

    _with_cache(site, scenario)


def test_rest_grows_and_is_forgotten(site: Site) -> None:
    """Each failure doubles the rest up to its limit; within it nothing is asked; success begins anew."""
    site.pages["/robots.txt"] = Reply("", 503)

    async def rest_s(cache: RobotsCache) -> float | None:
        with pytest.raises(RobotsUnreachable) as caught:
            await cache.rules(site.url + "/")
        return caught.value.retry_after_s

    async def scenario(cache: RobotsCache, clock: _Clock) -> None:
        assert await rest_s(cache) == 60
        clock.now += 59
        assert await rest_s(cache) == 1
        assert len(site.log) == 1
        for expected in (120, 240, 300, 300):
            clock.now += 400
            assert await rest_s(cache) == expected
        site.pages["/robots.txt"] = "User-agent: *"
        clock.now += 400
        await cache.rules(site.url + "/")
        site.pages["/robots.txt"] = Reply("", 503)
        clock.now += 100_000
        assert await rest_s(cache) == 60

    _with_cache(site, scenario, rest_max_s=300.0)


def test_retry_after_lengthens_the_rest(site: Site) -> None:
    """The site's own wish counts if it is longer."""
    site.pages["/robots.txt"] = Reply("", 503, {"retry-after": "500"})

    async def scenario(cache: RobotsCache, clock: _Clock) -> None:
        with pytest.raises(RobotsUnreachable) as caught:
            await cache.rules(site.url + "/")
        assert caught.value.retry_after_s == 500

    _with_cache(site, scenario)


def test_redirects(site: Site) -> None:
    """Five redirects are followed, to other hosts too, and each takes a token; a sixth means no file."""

    def chain(seen: Seen) -> Reply:
        left = int(seen.path[1:])
        return (
            Reply("User-agent: *\nDisallow: /") if not left else Reply("", 302, {"location": f"/{left - 1}"})
        )

    with Site(default=chain) as other:
        tokens: list[str] = []

        async def take(url: str) -> None:
            tokens.append(url)

        async def scenario(cache: RobotsCache, clock: _Clock) -> RobotsRules:
            return await cache.rules(site.url + "/", take_token=take)

        site.pages["/robots.txt"] = Reply("", 301, {"location": other.url + "/4"})
        assert not _with_cache(site, scenario, other).allowed(site.url + "/x")
        assert len(tokens) == 6
        assert tokens[:2] == [site.url + "/robots.txt", other.url + "/4"]
        site.pages["/robots.txt"] = Reply("", 301, {"location": other.url + "/5"})
        assert _with_cache(site, scenario, other).allowed(site.url + "/x")


def test_fenced_owner_hands_over(site: Site) -> None:
    """If the one who fetches is fenced, one who waits takes over with its own fence."""
    order: list[str] = []

    async def scenario(cache: RobotsCache, clock: _Clock) -> None:
        begun = asyncio.Event()
        go = asyncio.Event()

        async def hold(url: str) -> None:
            order.append("first")
            begun.set()
            await go.wait()

        async def take(url: str) -> None:
            order.append("second")

        first = asyncio.create_task(cache.rules(site.url + "/", take_token=hold, may_send=lambda: False))
        await begun.wait()
        second = asyncio.create_task(cache.rules(site.url + "/", take_token=take))
        await asyncio.sleep(0)
        go.set()
        with pytest.raises(Fenced):
            await first
        assert (await second).allowed(site.url + "/x")

    _with_cache(site, scenario)
    assert order == ["first", "second"]
    assert site.paths() == ["/robots.txt"]


def test_cancelled_owner_hands_over(site: Site) -> None:
    """If the one who fetches is cancelled, one who waits takes over."""

    async def scenario(cache: RobotsCache, clock: _Clock) -> None:
        begun = asyncio.Event()

        async def hold(url: str) -> None:
            begun.set()
            await asyncio.Event().wait()

        first = asyncio.create_task(cache.rules(site.url + "/", take_token=hold))
        await begun.wait()
        second = asyncio.create_task(cache.rules(site.url + "/"))
        await asyncio.sleep(0)
        first.cancel()
        assert (await second).allowed(site.url + "/x")
        assert first.cancelled()

    _with_cache(site, scenario)


def test_blocked_address_is_said_as_such() -> None:
    """An origin that may not be reached at all is no matter of robots.txt."""
    with Site() as shut, Site() as site:

        async def scenario(cache: RobotsCache, clock: _Clock) -> None:
            with pytest.raises(FetchError) as caught:
                await cache.rules(shut.url + "/")
            assert caught.value.reason == Reason.BLOCKED_ADDRESS

        _with_cache(site, scenario)
        assert shut.connections == 0


def test_agents_are_kept_apart(site: Site) -> None:
    """Two user agents may be told different things."""
    site.pages["/robots.txt"] = "User-agent: other\nDisallow: /"

    async def scenario(cache: RobotsCache, clock: _Clock) -> None:
        assert (await cache.rules(site.url + "/")).allowed(site.url + "/x")
        assert not (await cache.rules(site.url + "/", agent="Other/1")).allowed(site.url + "/x")

    _with_cache(site, scenario)
    assert [seen.headers["user-agent"] for seen in site.log] == [AGENT, "Other/1"]


def test_memory_is_bounded(site: Site) -> None:
    """Origins, and rules over all origins, are bounded; the oldest go first."""
    with (
        Site(default="User-agent: *\n" + "Disallow: /x\n" * 10) as other,
        Site(default=other.default) as third,
    ):

        async def scenario(cache: RobotsCache, clock: _Clock) -> None:
            for each in (site, other, third):
                await cache.rules(each.url + "/")
            assert cache.known(site.url + "/") is None
            assert cache.known(other.url + "/") is None
            assert cache.known(third.url + "/") is not None

        _with_cache(site, scenario, other, third, max_rules=15)


def test_very_large_files_are_cut_not_refused(site: Site) -> None:
    """Of a file of a megabyte the first 500 KiB count."""
    site.pages["/robots.txt"] = "User-agent: *\nDisallow: /early\n" + "# filler\n" * 120_000

    async def scenario(cache: RobotsCache, clock: _Clock) -> None:
        assert not (await cache.rules(site.url + "/")).allowed(site.url + "/early")

    _with_cache(site, scenario)
