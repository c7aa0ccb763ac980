"""The slice as a whole: a real site, a real store, the real loop."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from flask_spiderpool.crawl.request import Outcome, Settled, Ticket
from flask_spiderpool.errors import Unavailable
from flask_spiderpool.models import Document, Item, Log, Page, Request, Slot
from flask_spiderpool.tasks.slice import run_slice
from flask_spiderpool.terms import Status, Verb
from tests.crawl.pool import EnginePool
from tests.site.server import Reply, Seen, Site

MakePool = Callable[..., EnginePool]


def _links(*hrefs: str, text: str = "") -> str:
    return f"<title>{text or 'page'}</title>" + "".join(f'<a href="{href}">x</a>' for href in hrefs)


def _outcomes(pool: EnginePool) -> Counter[tuple[int, str | None]]:
    return Counter((row.state, row.reason) for row in pool.rows(Request))


def test_every_reachable_page_is_stored_once(site: Site, make_pool: MakePool) -> None:
    """Broken links fail, duplicates are one, and the numbers add up."""
    site.pages |= {
        "/": _links("/a", "/b", "/a#x", "/gone", "http://elsewhere.example/"),
        "/a": _links("/b", "/c", "/"),
        "/b": _links("/a", "/c?x=1", "/c"),
        "/c": _links("/"),
        "/c?x=1": _links("/"),
    }
    pool = make_pool()
    task_id = pool.start("article", f"{site.url}/", links_only=True)
    assert pool.work(task_id) is Status.FINISHED
    assert sorted(row.url for row in pool.rows(Document)) == [
        f"{site.url}{path}" for path in ("/", "/a", "/b", "/c", "/c?x=1")
    ]
    assert _outcomes(pool) == {(3, None): 5, (4, "http_404"): 1}
    assert max(Counter(site.paths()).values()) == 1
    assert pool.store.reconcile(task_id)["ok"]
    assert pool.statuses(task_id) == ["pending", "running", "finished"]
    assert pool.runtime._extractor.child_pid is None


def test_articles_are_extracted(site: Site, make_pool: MakePool) -> None:
    """Text, Markdown and metadata stand in the page's row."""
    prose = "<p>" + "The lantern was lit at dusk, and nobody on the quay said a word about it. " * 6 + "</p>"
    site.pages["/"] = (
        f"<html lang=en><head><title>Dusk</title></head><body><article><h1>Dusk</h1>{prose * 4}</article></body>"
    )
    pool = make_pool()
    assert pool.work(pool.start("article", f"{site.url}/")) is Status.FINISHED
    (page,) = pool.rows(Page)
    assert page.title == "Dusk"
    assert "The lantern was lit" in page.text
    assert page.markdown
    assert page.meta["extraction"] == "trafilatura"


def test_robots_txt_is_obeyed(site: Site, make_pool: MakePool) -> None:
    """What robots.txt disallows is skipped with that reason and never asked for, redirects included."""
    site.pages |= {
        "/robots.txt": Reply("User-agent: *\nDisallow: /no", headers={"Content-Type": "text/plain"}),
        "/": _links("/no/a", "/yes", "/away"),
        "/yes": _links(),
        "/away": Reply(status=302, headers={"Location": "/no/b"}),
    }
    pool = make_pool()
    task_id = pool.start("article", f"{site.url}/", links_only=True)
    assert pool.work(task_id) is Status.FINISHED
    assert _outcomes(pool) == {(3, None): 2, (5, "robots"): 2}
    assert not any(path.startswith("/no") for path in site.paths())


def test_a_host_is_asked_no_sooner_than_its_delay(site: Site, make_pool: MakePool) -> None:
    """The site's own log shows the delay between any two requests, robots.txt and redirects included."""
    site.pages |= {
        "/": _links("/a", "/b", "/from"),
        "/a": _links(),
        "/b": _links(),
        "/from": Reply(status=301, headers={"Location": "/to"}),
        "/to": _links(),
    }
    pool = make_pool(delay_s=0.2)
    assert pool.work(pool.start("article", f"{site.url}/", links_only=True)) is Status.FINISHED
    times = [seen.at for seen in site.log]
    assert len(times) == 6
    assert min(later - earlier for earlier, later in pairwise(times)) >= 0.2


def test_crawl_delay_slows_the_host(site: Site, make_pool: MakePool) -> None:
    """A Crawl-delay that is longer than the spider's delay is kept."""
    site.pages |= {
        "/robots.txt": "User-agent: *\nCrawl-delay: 0.3",
        "/": _links("/a", "/b"),
        "/a": _links(),
        "/b": _links(),
    }
    pool = make_pool()
    assert pool.work(pool.start("article", f"{site.url}/", links_only=True)) is Status.FINISHED
    pages = [seen.at for seen in site.log if seen.path != "/robots.txt"]
    assert len(pages) == 3
    assert min(later - earlier for earlier, later in pairwise(pages)) >= 0.3


def test_a_busy_site_is_tried_again_and_given_up(site: Site, make_pool: MakePool) -> None:
    """A 503 that passes costs an attempt; one that stays fails with its reason after all attempts."""

    def once(seen: Seen) -> Reply | str:
        return Reply(status=503) if site.count("/passes") == 1 else _links()

    site.pages |= {"/": _links("/passes", "/stays"), "/passes": once, "/stays": Reply(status=503)}
    pool = make_pool(attempts=3)
    task_id = pool.start("article", f"{site.url}/", links_only=True)
    assert pool.work(task_id) is Status.FINISHED
    assert (site.count("/passes"), site.count("/stays")) == (2, 3)
    assert _outcomes(pool) == {(3, None): 2, (4, "http_503"): 1}
    assert pool.task(task_id).retries == 3


def test_the_page_limit_holds(site: Site, make_pool: MakePool) -> None:
    """Exactly max_pages documents are fetched, and the history says why it ended."""
    site.pages["/"] = _links(*(f"/{n}" for n in range(50)))
    site.default = _links()
    pool = make_pool()
    task_id = pool.start("article", f"{site.url}/", links_only=True, max_pages=7)
    assert pool.work(task_id) is Status.FINISHED
    task = pool.task(task_id)
    assert (task.done, task.end_reason) == (7, "max_pages")
    assert len([path for path in site.paths() if path != "/robots.txt"]) == 7


def test_the_depth_limit_holds(site: Site, make_pool: MakePool) -> None:
    """Links beyond max_depth never enter the frontier."""
    site.pages |= {"/": _links("/1"), "/1": _links("/2"), "/2": _links("/3"), "/3": _links()}
    pool = make_pool()
    pool.work(pool.start("article", f"{site.url}/", links_only=True, max_depth=2))
    assert sorted(row.depth for row in pool.rows(Request)) == [0, 1, 2]
    assert site.count("/3") == 0


def test_parse_yields_items_and_requests(site: Site, make_pool: MakePool) -> None:
    """Items are stored with their page; requests carry callback and meta; nothing else is followed."""
    site.pages |= {
        "/": '<li class=n><a href="/p1">x</a></li><a href="/other">y</a>',
        "/p1": "<b>one</b>",
        "/other": "",
    }
    pool = make_pool()

    @pool.registry.spider("shop")
    def parse(page: Any) -> Any:
        if page.meta:
            yield {"name": page.css("b::text").get(), "from": page.meta["from"]}
        yield from page.follow("li.n a", meta={"from": page.url})

    task_id = pool.start("shop", f"{site.url}/")
    assert pool.work(task_id) is Status.FINISHED
    assert [row.data for row in pool.rows(Item)] == [{"name": "one", "from": f"{site.url}/"}]
    assert site.count("/other") == 0
    assert pool.task(task_id).items == 1


def test_a_spider_that_raises_costs_that_page_only(site: Site, make_pool: MakePool) -> None:
    """The page fails with spider_error and says where; what it had yielded stays, and the crawl goes on."""
    site.pages |= {"/": _links("/bad", "/good"), "/bad": "bad", "/good": "good"}
    pool = make_pool()

    @pool.registry.spider("fragile", follow=True)
    def parse(page: Any) -> Any:
        yield {"url": page.url}
        if page.html == "bad":
            raise ValueError("no price")

    task_id = pool.start("fragile", f"{site.url}/")
    assert pool.work(task_id) is Status.FINISHED
    assert _outcomes(pool) == {(3, None): 2, (4, "spider_error"): 1}
    assert len(pool.rows(Item)) == 3
    assert any("no price" in row.message for row in pool.rows(Log))


def test_pause_gives_back_what_was_not_started(site: Site, make_pool: MakePool) -> None:
    """What is under way settles, the rest is queued again; after resume no page is fetched twice."""
    gate: list[asyncio.Event] = []
    asked = threading.Event()

    async def held(seen: Seen) -> str:
        gate.append(asyncio.Event())
        asked.set()
        await gate[-1].wait()
        return _links()

    site.pages |= {"/robots.txt": Reply(status=404), "/": _links(*(f"/{n}" for n in range(40)))}
    site.default = held
    pool = make_pool(concurrency_per_host=3)
    task_id = pool.start("article", f"{site.url}/", links_only=True)
    worker = threading.Thread(target=pool.work, args=(task_id,))
    worker.start()
    assert asked.wait(10)
    pool.change(Verb.PAUSE, task_id)
    assert pool.task(task_id).status == "pausing"
    _open_for_good(site, gate)
    worker.join(20)
    task = pool.task(task_id)
    assert task.status == "paused"
    assert pool.store.reconcile(task_id)["ok"]
    fetched = len(site.log)
    assert fetched <= 8
    pool.change(Verb.RESUME, task_id)
    assert pool.work(task_id) is Status.FINISHED
    assert max(Counter(site.paths()).values()) == 1
    assert pool.task(task_id).done == 41


def _open_for_good(site: Site, gate: list[asyncio.Event]) -> None:
    site.default = _links()
    site.call(lambda: [event.set() for event in gate])


def test_stop_cancels_what_outlasts_the_grace(site: Site, make_pool: MakePool) -> None:
    """A request that hangs is cancelled after the grace and queued again uncounted; then it is stopped."""
    asked = threading.Event()

    async def hang(seen: Seen) -> str:
        asked.set()
        await asyncio.sleep(60)
        return ""

    site.pages |= {"/": _links("/hangs"), "/hangs": hang}
    pool = make_pool(stop_grace_s=0.2)
    task_id = pool.start("article", f"{site.url}/", links_only=True)
    worker = threading.Thread(target=pool.work, args=(task_id,))
    worker.start()
    assert asked.wait(10)
    pool.change(Verb.STOP, task_id)
    worker.join(10)
    assert pool.task(task_id).status == "stopped"
    (row,) = pool.rows(Request, Request.url == f"{site.url}/hangs")
    assert (row.state, row.attempts, row.deaths) == (0, 0, 0)


def test_a_fenced_slice_writes_and_sends_nothing_more(site: Site, make_pool: MakePool) -> None:
    """When another epoch begins, what was fetched meanwhile is not stored by the old one."""
    asked = threading.Event()
    go: list[asyncio.Event] = []

    async def held(seen: Seen) -> str:
        if not go:
            go.append(asyncio.Event())
            asked.set()
            await go[0].wait()
        return _links("/next")

    site.pages |= {"/": held, "/next": _links()}
    pool = make_pool()
    task_id = pool.start("article", f"{site.url}/", links_only=True)
    ticket = pool.ticket()
    worker = threading.Thread(target=run_slice, args=(pool.runtime, ticket))
    worker.start()
    assert asked.wait(10)
    with pool.engine.begin() as connection:
        connection.execute(Slot.__table__.update().values(epoch=Slot.epoch + 7))
    for guard in pool.runtime.renewals.of_task(task_id):
        guard.lose()
    site.call(go[0].set)
    worker.join(10)
    assert not worker.is_alive()
    assert pool.task(task_id).done == 0
    assert pool.rows(Document) == []
    assert site.count("/next") == 0


def test_what_was_fetched_survives_a_database_that_is_away(site: Site, make_pool: MakePool) -> None:
    """A settle that finds no database is repeated until it is back; nothing is fetched again."""
    site.pages |= {"/": _links("/a"), "/a": _links()}
    pool = make_pool()
    real, failures = pool.store.settle, [2]

    def settle(ticket: Ticket, outcomes: list[Outcome]) -> Settled:
        if failures[0]:
            failures[0] -= 1
            raise Unavailable("the database is away")
        return real(ticket, outcomes)

    pool.store.settle = settle  # type: ignore[method-assign]
    task_id = pool.start("article", f"{site.url}/", links_only=True)
    assert pool.work(task_id) is Status.FINISHED
    assert pool.task(task_id).done == 2
    assert max(Counter(site.paths()).values()) == 1


@pytest.mark.parametrize(
    "answer", [Reply("\0\ud800".encode("utf-8", "surrogatepass")), Reply(b"\xff" * 9000)]
)
def test_what_no_database_takes_is_cleaned(site: Site, make_pool: MakePool, answer: Reply) -> None:
    """NUL bytes and broken UTF-8 never cost a page."""
    site.pages["/"] = answer
    pool = make_pool()
    assert pool.work(pool.start("article", f"{site.url}/")) is Status.FINISHED
    assert len(pool.rows(Page)) == 1


def test_an_address_that_is_not_allowed_fails_the_task(site: Site, make_pool: MakePool) -> None:
    """Without an allow list loopback is refused before anything is sent, and the reason is told."""
    site.pages["/"] = _links()
    pool = make_pool(allow_addresses=[])
    task_id = pool.start("article", f"{site.url}/")
    assert pool.work(task_id) is Status.FAILED
    assert pool.task(task_id).end_reason == "all_seeds_failed"
    assert _outcomes(pool) == {(4, "blocked_address"): 1}
    assert site.log == []


def test_a_parse_that_never_returns_costs_its_page_only(site: Site, make_pool: MakePool) -> None:
    """It fails with its own reason, its thread is replaced, and everything else goes on."""
    release = threading.Event()
    site.pages |= {"/": _links("/stuck1", "/stuck2", "/good")}
    site.default = "x"
    pool = make_pool(parse_timeout_s=0.1, callback_threads=1)

    @pool.registry.spider("stuck", follow=True)
    def parse(page: Any) -> Any:
        if "stuck" in page.url:
            release.wait()
        yield {"url": page.url}

    try:
        assert pool.work(pool.start("stuck", f"{site.url}/")) is Status.FINISHED
    finally:
        release.set()
    assert _outcomes(pool) == {(3, None): 2, (4, "spider_timeout"): 2}
    assert len(pool.rows(Item)) == 2


def test_a_spider_that_raises_keyboard_interrupt_ends_nothing(site: Site, make_pool: MakePool) -> None:
    """It is an error like any other: the loop lives and the next task is served."""
    site.pages["/"] = "x"
    pool = make_pool()

    @pool.registry.spider("interrupts")
    def parse(page: Any) -> Any:
        raise KeyboardInterrupt

    assert pool.work(pool.start("interrupts", f"{site.url}/")) is Status.FAILED
    assert _outcomes(pool) == {(4, "spider_error"): 1}
    assert pool.work(pool.start("article", f"{site.url}/", links_only=True)) is Status.FINISHED


def test_the_host_that_asks_for_rest_is_the_one_that_gets_it(site: Site, make_pool: MakePool) -> None:
    """A 429 behind a redirect puts the answering host to rest, not the one that redirected."""
    with Site({"/busy": Reply(status=429, headers={"Retry-After": "3600"})}) as other:
        site.pages |= {
            "/": _links("/away", "/a", "/b"),
            "/away": Reply(status=302, headers={"Location": f"{other.url}/busy"}),
            "/a": _links(),
            "/b": _links(),
        }
        pool = make_pool(allow_addresses=[site.host, other.host], attempts=1)
        task_id = pool.start(
            "article", f"{site.url}/", links_only=True, allowed_domains=[site.host, other.host]
        )
        assert pool.work(task_id) is Status.FINISHED
        assert _outcomes(pool) == {(3, None): 3, (4, "http_429"): 1}
        limiter = pool.runtime.parts.limiter
        assert limiter.acquire(site.host, 0, 1).granted == 1
        blocked = limiter.acquire(other.host, 0, 1)
        assert blocked.granted == 0
        assert 3500 < blocked.wait_s <= 3600


def test_a_block_holds_where_there_is_no_delay(site: Site, make_pool: MakePool) -> None:
    """A task without delay asks the limiter too: a host that rests is asked for nothing, robots.txt included."""
    site.pages["/"] = _links()
    pool = make_pool(slice_s=0.2)
    pool.runtime.parts.limiter.block(site.host, 3600)
    task_id = pool.start("article", f"{site.url}/", links_only=True)
    run_slice(pool.runtime, pool.ticket())
    assert site.log == []
    assert pool.task(task_id).done == 0


@pytest.mark.parametrize(("url", "reason"), [("http://127.0.0.1:{port}/", "refused")])
def test_a_host_that_cannot_be_reached_fails_with_its_reason(
    site: Site, make_pool: MakePool, url: str, reason: str
) -> None:
    """A missing robots.txt counts attempts: the task fails after them and says why."""
    site.stop()
    pool = make_pool(attempts=2)
    pool.runtime.engine.robots._network_rest_s = 0.05
    task_id = pool.start("article", url.format(port=site.port))
    assert pool.work(task_id) is Status.FAILED
    assert _outcomes(pool) == {(4, reason): 1}
    (row,) = pool.rows(Request)
    assert "robots.txt" in row.message
    assert row.attempts == 2


@pytest.mark.parametrize(
    ("wild", "why"),
    [
        ("<div " + " ".join(f"a{n}=1" for n in range(60_000)) + ">", "attributes"),
        ("<div>" * 100_000, "nesting"),
    ],
)
@pytest.mark.parametrize("links_only", [True, False])
def test_markup_that_would_hold_the_loop_is_not_parsed(
    site: Site, make_pool: MakePool, wild: str, why: str, links_only: bool
) -> None:
    """The page is kept and its log says why its links were not read; the others are crawled."""
    site.pages |= {
        "/": _links("/wild", "/good"),
        "/wild": wild + '<a href="/hidden">',
        "/good": _links("/end"),
    }
    site.pages["/end"] = "x"
    pool = make_pool()
    assert pool.work(pool.start("article", f"{site.url}/", links_only=links_only)) is Status.FINISHED
    assert _outcomes(pool) == {(3, None): 4}
    assert site.count("/hidden") == 0
    assert any(why in row.message for row in pool.rows(Log))
