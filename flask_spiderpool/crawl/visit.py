"""One request: fetch it, look at what came, and say what became of it."""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Awaitable, Callable
from hashlib import blake2b

from flask_spiderpool.crawl.callbacks import NeverReturned
from flask_spiderpool.crawl.encoding import codec_of_header, decode
from flask_spiderpool.crawl.extract import Extracted
from flask_spiderpool.crawl.guard import LeaseGuard
from flask_spiderpool.crawl.links import extract_links
from flask_spiderpool.crawl.page import Page
from flask_spiderpool.crawl.parse import ParseResult, run_parse
from flask_spiderpool.crawl.parts import EngineParts
from flask_spiderpool.crawl.plain_text import looks_wild, wild_markup
from flask_spiderpool.crawl.politeness import Pace
from flask_spiderpool.crawl.request import FetchedPage, LeasedRequest, NewRequest, Outcome, Verdict
from flask_spiderpool.crawl.response import Response
from flask_spiderpool.crawl.robots import RobotsRules
from flask_spiderpool.crawl.rules import TaskRules
from flask_spiderpool.crawl.spider import Spider
from flask_spiderpool.crawl.urls import Link, resolve
from flask_spiderpool.crawl.wanted import Request
from flask_spiderpool.errors import Fenced, FetchError
from flask_spiderpool.terms import Reason, http_reason

logger = logging.getLogger(__name__)

#: Statuses after which another attempt may help: the site is busy, or was interrupted.
RETRIED_STATUSES = frozenset({408, 425, 429, 500, 502, 503, 504, 520, 521, 522, 523, 524})

#: Reasons that are a rule's word, not a failure.
SKIPPED_REASONS = frozenset({Reason.ROBOTS, Reason.SCOPE, Reason.DEPTH, Reason.CONTENT_TYPE})

HTML_TYPES = ("text/html", "application/xhtml+xml", "application/vnd.wap.xhtml+xml")


class Visit:
    """Makes outcomes of leased requests for one slice."""

    def __init__(
        self,
        parts: EngineParts,
        guard: LeaseGuard,
        spider: Spider,
        rules: TaskRules,
        take_token: Callable[[str, Pace], Awaitable[None]],
    ) -> None:
        self._parts = parts
        self._guard = guard
        self._spider = spider
        self._rules = rules
        self._take_token = take_token
        self._known = parts.seen.of(guard.ticket.task_id)
        self._pending: set[bytes] = set()  #: in outcomes of this slice that are not settled yet

    async def make(self, request: LeasedRequest) -> Outcome:
        """Fetch and look; every fault becomes an outcome. Raises only ``Fenced`` and ``CancelledError``."""
        try:
            response = await self._fetch(request)
            return await self._look(request, response)
        except FetchError as error:
            return _failed(request, error)
        except (Fenced, asyncio.CancelledError):
            raise
        except Exception as error:
            # A fault of ours must cost one page, never the slice.
            logger.exception("visit of %s failed", request.url)
            return Outcome(
                request, Verdict.RETRY, reason=Reason.INTERNAL, message=f"{type(error).__name__}: {error}"
            )

    # -- robots -------------------------------------------------------------------------------------

    def known_robots(self, url: str) -> RobotsRules | None:
        """Return the robots rules of the URL's origin if they are known already; costs no wait."""
        return self._parts.robots.known(url, self._rules.user_agent)

    async def robots(self, url: str) -> RobotsRules:
        """Return the robots rules of the URL's origin, asking for them if need be.

        Raises ``RobotsUnreachable`` while they cannot be had (RFC 9309, 2.3.1.4).
        """
        return await self._parts.robots.rules(
            url,
            agent=self._rules.user_agent,
            take_token=self._pay,
            may_send=self._guard.may_send,
            deadline_s=self._rules.request_timeout_s,
        )

    async def _pay(self, url: str) -> None:
        """Take the token of a request that is no leased one: robots.txt, a second sending."""
        rules = self.known_robots(url) if self._rules.obey_robots else None
        pace = Pace.of(self._rules.delay_s, rules.crawl_delay_s if rules else None)
        await self._take_token(resolve(url).host_key, pace)

    # -- fetch --------------------------------------------------------------------------------------

    async def _fetch(self, request: LeasedRequest) -> Response:
        headers = self._rules.headers
        if request.payload and request.payload.get("headers"):
            headers = {**headers, **request.payload["headers"]}
        return await self._parts.fetcher.fetch(
            request.url,
            headers or None,
            deadline_s=self._rules.request_timeout_s,
            may_send=self._guard.may_send,
            on_hop=functools.partial(self._admit_hop, request),
            on_resend=self._pay,
            limits=self._rules.limits,
        )

    async def _admit_hop(self, request: LeasedRequest, url: str) -> None:
        """Ask scope, robots and limiter for a redirect's target, as for any other URL."""
        refused = self._rules.scope.admit(url, request.depth)
        if refused is not None:
            raise FetchError(refused, f"redirected out of scope, to {url}")
        if self._rules.obey_robots:
            rules = self.known_robots(url) or await self.robots(url)
            if not rules.allowed(url):
                raise FetchError(Reason.ROBOTS, f"redirected to {url}, which robots.txt disallows")
        await self._pay(url)

    # -- look ---------------------------------------------------------------------------------------

    async def _look(self, request: LeasedRequest, response: Response) -> Outcome:
        status = response.status
        if not 200 <= status < 300:
            return _answered(request, response)
        page = FetchedPage(
            url=response.final_url,
            fingerprint=resolve(response.final_url).fingerprint,
            status_code=status,
            content_type=response.content_type[:200],
            body_bytes=len(response.body),
            content_hash=blake2b(response.body, digest_size=16).digest(),
            etag=response.headers.get("etag"),
            last_modified=response.headers.get("last-modified"),
        )
        outcome = Outcome(
            request, Verdict.DONE, status_code=status, page=page, wire_bytes=response.wire_bytes
        )
        extracted: Extracted | None = None
        media_type = response.content_type.partition(";")[0].strip().lower()
        if media_type in HTML_TYPES or (not media_type and response.body.lstrip()[:1] == b"<"):
            extracted = await self._look_at_html(outcome, response, page)
        elif self._rules.extract and _is_textual(media_type):
            page.text = _text(response)
        if self._spider.has_parse:
            await self._parse(outcome, response, extracted)
        return outcome

    async def _look_at_html(
        self, outcome: Outcome, response: Response, page: FetchedPage
    ) -> Extracted | None:
        text = _text(response) if self._rules.extract else None
        html = _html(response) if text is None else text
        if why := _wild(response, html):
            # Parsed on the loop it would hold every slice of the process.
            outcome.logs.append(("WARNING", f"the links of {response.final_url} were not read: {why}"))
        else:
            found = extract_links(html, response.final_url, respect_nofollow=self._rules.respect_nofollow)
            page.title = found.title
            if self._rules.follow:
                self._admit(outcome, found.links, outcome.request.depth + 1)
        if text is None:
            return None
        extracted = await self._parts.extractor.aextract(text, response.final_url)
        page.title = extracted.title or page.title
        page.text = extracted.text
        page.markdown = extracted.markdown
        page.meta = extracted.meta
        return extracted

    def _admit(self, outcome: Outcome, links: list[Link], depth: int) -> None:
        """Add the links that are new to this process and belong to the task."""
        if depth > self._rules.max_depth:
            return
        known, pending, admit = self._known, self._pending, self._rules.scope.admit
        for link in links:
            fingerprint = link.fingerprint
            if fingerprint in known or fingerprint in pending or admit(link.url, depth) is not None:
                continue
            pending.add(fingerprint)
            outcome.links.append(NewRequest(link.url, fingerprint, link.host_key, depth))

    async def _parse(self, outcome: Outcome, response: Response, extracted: Extracted | None) -> None:
        """Run the spider's own code in a thread, inside the host's app context."""
        request = outcome.request
        page = Page(
            response,
            depth=request.depth,
            payload=request.payload or {},
            task_id=self._guard.ticket.task_id,
            extractor=self._parts.extractor,
            extracted=extracted,
            scope=self._rules.scope,
        )
        callback = (request.payload or {}).get("callback")
        timeout_s = self._parts.settings.parse_timeout_s
        try:
            parsed = await self._parts.callbacks.run(
                functools.partial(self._parse_in_app, page, callback), timeout_s
            )
        except NeverReturned:
            outcome.verdict = Verdict.FAILED
            outcome.reason = Reason.SPIDER_TIMEOUT
            outcome.message = f"{callback or 'parse'} did not return within {timeout_s:g} s"
            return
        outcome.items = parsed.items
        outcome.logs = [entry for entry in parsed.logs if _level(entry[0]) >= self._rules.log_level]
        for wanted in parsed.requests:
            self._admit_wanted(outcome, wanted)
        if parsed.error is not None:
            outcome.verdict = Verdict.FAILED
            outcome.reason = Reason.SPIDER_ERROR
            outcome.message = parsed.error

    def _parse_in_app(self, page: Page, callback: str | None) -> ParseResult:
        with self._parts.enter_app():
            return run_parse(self._spider, page, callback)

    def _admit_wanted(self, outcome: Outcome, wanted: Request) -> None:
        """Add a request that ``parse`` yielded, or say in the task's log why not."""
        depth = outcome.request.depth + 1
        try:
            link = resolve(wanted.url, outcome.page.url if outcome.page else None)
        except FetchError as error:
            outcome.logs.append(("WARNING", f"dropped {wanted.url[:200]!r}: {error}"))
            return
        refused = self._rules.scope.admit(link.url, depth)
        if refused is not None:
            if self._rules.log_level <= logging.DEBUG:
                outcome.logs.append(("DEBUG", f"dropped {link.url}: {refused}"))
            return
        if link.fingerprint in self._known or link.fingerprint in self._pending:
            return
        self._pending.add(link.fingerprint)
        outcome.links.append(
            NewRequest(link.url, link.fingerprint, link.host_key, depth, wanted.priority, wanted.payload())
        )


def _html(response: Response) -> bytes | str:
    """Return the page for the parser, which reads bytes as UTF-8: most pages need no decoding at all."""
    if codec_of_header(response.content_type) == "utf-8" and response.body[:2] not in (
        b"\xff\xfe",
        b"\xfe\xff",
    ):
        return response.body
    return _text(response)


def _wild(response: Response, html: bytes | str) -> str | None:
    """Say what in the page would hold a parser for seconds, or None."""
    if not looks_wild(html):
        return None
    return wild_markup(html if isinstance(html, str) else _text(response))


def _text(response: Response) -> str:
    return decode(response.body, response.content_type)[0]


def _is_textual(media_type: str) -> bool:
    return media_type.startswith("text/") or media_type.endswith(
        ("/json", "+json", "/xml", "+xml", "/javascript", "/x-ndjson")
    )


def _level(name: str) -> int:
    return logging.getLevelNamesMapping().get(name.upper(), logging.INFO)


def _answered(request: LeasedRequest, response: Response) -> Outcome:
    """Say what became of a request that was answered with no page."""
    status = response.status
    retry = status in RETRIED_STATUSES
    return Outcome(
        request,
        Verdict.RETRY if retry else Verdict.FAILED,
        reason=http_reason(status),
        status_code=status,
        # Only what the site asks for makes the whole host rest; a plain 500 concerns its page.
        retry_after_s=response.retry_after_s if retry else None,
        rest_host=resolve(response.final_url).host_key if retry else None,
        wire_bytes=response.wire_bytes,
    )


def _failed(request: LeasedRequest, error: FetchError) -> Outcome:
    if error.reason in SKIPPED_REASONS:
        verdict = Verdict.SKIPPED
    else:
        verdict = Verdict.RETRY if error.retry else Verdict.FAILED
    return Outcome(
        request, verdict, reason=error.reason, message=str(error)[:1000], retry_after_s=error.retry_after_s
    )
