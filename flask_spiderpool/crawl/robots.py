"""robots.txt by RFC 9309: what one origin allows this crawler."""

from __future__ import annotations

import asyncio
import re
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from protego import Protego

from flask_spiderpool.crawl.fetch import Fetcher, FetchLimits
from flask_spiderpool.crawl.urls import origin
from flask_spiderpool.errors import Fenced, FetchError
from flask_spiderpool.terms import Reason

MAX_BYTES = 500 * 1024  #: what RFC 9309, section 2.5, obliges a crawler to read
MAX_RULES = 20_000
MAX_LINE = 4096  #: characters; no URL that is asked for is longer
MAX_SITEMAPS = 1000
_OFF_LOOP_BYTES = 16 * 1024  # larger files are parsed in a thread

_AGENT = re.compile(r"user[-\s]*agent\s*(?::|\s)\s*(.*)", re.IGNORECASE)
_SITEMAP = re.compile(r"site-?maps?\s*(?::|\s)\s*(\S+)", re.IGNORECASE)
_HOST = re.compile(r"host\s*(?::|\s)", re.IGNORECASE)
# Spellings that Protego reads as Disallow; a file without one of them, followed by a value, forbids nothing.
_DISALLOW = re.compile(r"(?:diss?all?ow|disallaw|diasllow)\s*(?::|\s)\s*\S", re.IGNORECASE)
_RULE_WORDS = re.compile(r"(?:allow|di[a-z]*|crawl.delay|request.rate|visit.time)\b", re.IGNORECASE)
_URL_IN_AGENT = re.compile(r"\+?https?://\S+", re.IGNORECASE)


class RobotsUnreachable(FetchError):
    """The robots.txt of an origin cannot be read just now, so that nothing of the origin may be fetched.

    ``retry_after_s`` says for how long it will not be asked again; ``cause`` is the reason of the failure,
    as ``dns`` or ``http_503``.
    """

    def __init__(self, site: str, cause: str, retry_after_s: float) -> None:
        self.cause = cause
        super().__init__(
            Reason.ROBOTS_UNREACHABLE,
            f"{site}/robots.txt cannot be read ({cause}); nothing of the origin is fetched until it can",
            retry=True,
            retry_after_s=retry_after_s,
        )


@dataclass(frozen=True, slots=True)
class RobotsRules:
    """What one robots.txt says to one crawler."""

    crawl_delay_s: float | None = None  #: the longer of Crawl-delay and Request-rate; None: nothing asked
    sitemaps: tuple[str, ...] = ()
    rule_count: int = 0
    _parser: Protego | None = field(default=None, repr=False, compare=False)  #: None: everything is allowed

    @classmethod
    def parse(cls, content: bytes, agent: str) -> RobotsRules:
        """Read a robots.txt for the crawler with the user agent ``agent``. Never raises.

        Bounded: at most :data:`MAX_BYTES`, :data:`MAX_RULES` rules and :data:`MAX_LINE` characters a line
        are read, and only the groups that apply to ``agent`` reach Protego, which takes time and memory by
        groups x rules (34 s for a legal file of 396 KiB). Anything may stand in the file, HTML too.
        """
        if len(content) > MAX_BYTES:
            content = content[: max(content.rfind(b"\n", 0, MAX_BYTES), 0)]
        # utf-8-sig: a byte order mark glued to the first line hides the first group.
        lines = content.decode("utf-8-sig", "replace").splitlines()
        rules, sitemaps = _applying(lines, agent)
        if not rules:
            return cls(sitemaps=sitemaps)
        parser = Protego.parse("\n".join(["User-agent: *", *rules]))
        return cls(
            crawl_delay_s=_crawl_delay(parser),
            sitemaps=sitemaps,
            rule_count=len(rules),
            _parser=parser if any(_DISALLOW.match(line) for line in rules) else None,
        )

    def allowed(self, url: str) -> bool:
        """Tell whether ``url`` (wire form, with its query) may be fetched. Free if nothing is forbidden."""
        if self._parser is None:
            return True
        try:
            return bool(self._parser.can_fetch(url, "*"))
        except ValueError:  # urllib's, on what is no URL: nothing that we could ask for
            return False


ALLOW_ALL = RobotsRules()


def _crawl_delay(parser: Protego) -> float | None:
    asked = [parser.crawl_delay("*") or 0.0]
    rate = parser.request_rate("*")
    if rate is not None and rate.requests > 0:
        asked.append(rate.seconds / rate.requests)
    return max(asked) or None


def _applying(lines: list[str], agent: str) -> tuple[list[str], tuple[str, ...]]:
    """Return the rule lines of the groups that apply to ``agent``, and the sitemaps.

    The groups of the longest product token that the agent holds apply, merged (RFC 9309, 2.2.1); without
    any, those of ``*``. Lines are told apart as Protego does, which is more lenient than the RFC.
    """
    lines = [line for line in (line.partition("#")[0].strip() for line in lines) if 0 < len(line) <= MAX_LINE]
    product = _best_product(lines, _URL_IN_AGENT.sub("", agent).lower())
    rules: list[str] = []
    sitemaps: dict[str, None] = {}
    applies = False
    naming = False  # the last line named an agent: the next one that does adds to the same group
    for line in lines:
        if named := _AGENT.match(line):
            applies = (applies and naming) or _product(named[1]) == product
            naming = True
        elif sitemap := _SITEMAP.match(line):
            if len(sitemaps) < MAX_SITEMAPS:
                sitemaps[sitemap[1]] = None
        elif not _HOST.match(line) and (":" in line or _RULE_WORDS.match(line)):
            naming = False
            if applies and len(rules) < MAX_RULES:
                rules.append(line)
    return rules, tuple(sitemaps)


def _best_product(lines: list[str], agent: str) -> str:
    """Return the longest product token of the file that names ``agent``, else ``*``."""
    products = {_product(named[1]) for line in lines if (named := _AGENT.match(line))}
    return max((product for product in products if _names(product, agent)), key=len, default="*")


def _product(value: str) -> str:
    value = value.strip().lower()
    return value if value == "*" else value.replace("*", "")


def _names(product: str, agent: str) -> bool:
    """Tell whether the product token stands in the agent, beginning at a word's start."""
    if not product:
        return False
    at = agent.find(product)
    while at > 0 and (agent[at - 1].isalnum() or agent[at - 1] in "-_"):
        at = agent.find(product, at + 1)
    return at >= 0


@dataclass(slots=True)
class _Entry:
    """What is known of one origin for one agent."""

    until: float
    rules: RobotsRules | None  #: None: could not be read
    cause: str = ""
    failures: int = 0


class RobotsCache:
    """The robots.txt of every origin that a process has met; belongs to one event loop.

    A file is kept ``ttl_s``. 4xx means there is none: everything is allowed (RFC 9309, 2.3.1.3). 5xx, 429
    and failures of the network mean that nothing is (2.3.1.4): the origin is asked again after ``rest_s``
    (``network_rest_s`` where no connection came about), doubled with each failure up to ``rest_max_s``. One request an origin is under way at a time, in the
    task of the caller that came first; if that caller is fenced or cancelled, one that waits takes over.
    """

    def __init__(
        self,
        fetcher: Fetcher,
        *,
        ttl_s: float = 86_400.0,
        rest_s: float = 60.0,
        network_rest_s: float = 2.0,
        rest_max_s: float = 3600.0,
        max_origins: int = 10_000,
        max_rules: int = 100_000,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._fetcher = fetcher
        self._ttl_s = ttl_s
        self._rest_s = rest_s
        self._network_rest_s = network_rest_s
        self._rest_max_s = rest_max_s
        self._max_origins = max_origins
        self._max_rules = max_rules
        self._clock = clock
        self._entries: OrderedDict[tuple[str, str], _Entry] = OrderedDict()
        self._rules_kept = 0
        self._under_way: dict[tuple[str, str], asyncio.Event] = {}

    def known(self, url: str, agent: str | None = None) -> RobotsRules | None:
        """Return the rules of the URL's origin if they are at hand and fresh; never waits, never raises."""
        entry = self._entries.get((origin(url), self._fetcher.user_agent if agent is None else agent))
        return entry.rules if entry is not None and self._clock() < entry.until else None

    async def rules(
        self,
        url: str,
        *,
        agent: str | None = None,
        take_token: Callable[[str], Awaitable[None]] | None = None,
        may_send: Callable[[], bool] | None = None,
        deadline_s: float = 60.0,
    ) -> RobotsRules:
        """Return the rules of the URL's origin, fetched if need be.

        ``take_token(url)`` is awaited before each request that is sent, redirects too. Raises
        :class:`RobotsUnreachable`, or ``FetchError(blocked_address)`` for an origin that may not be reached
        at all, or whatever ``take_token`` raises; ``Fenced`` if ``may_send`` forbids it.
        """
        key = (origin(url), self._fetcher.user_agent if agent is None else agent)
        while True:
            entry = self._entries.get(key)
            now = self._clock()
            if entry is not None and now < entry.until:
                self._entries.move_to_end(key)
                if entry.rules is None:
                    raise RobotsUnreachable(key[0], entry.cause, entry.until - now)
                return entry.rules
            waiting = self._under_way.get(key)
            if waiting is not None:
                await waiting.wait()
                continue
            done = self._under_way[key] = asyncio.Event()
            try:
                self._keep(key, await self._load(key, entry, take_token, may_send, deadline_s))
            finally:
                del self._under_way[key]
                done.set()

    async def _load(
        self,
        key: tuple[str, str],
        last: _Entry | None,
        take_token: Callable[[str], Awaitable[None]] | None,
        may_send: Callable[[], bool] | None,
        deadline_s: float,
    ) -> _Entry:
        site, agent = key
        address = f"{site}/robots.txt"
        if take_token is not None:
            await take_token(address)
        try:
            response = await self._fetcher.fetch(
                address,
                {"User-Agent": agent},
                deadline_s=deadline_s,
                may_send=may_send,
                on_hop=take_token,
                on_resend=take_token,
                limits=FetchLimits(
                    max_bytes=MAX_BYTES, max_unpacked_bytes=MAX_BYTES, max_redirects=5, cut=True
                ),
            )
        except Fenced:
            raise
        except FetchError as fault:
            if fault.reason in _NO_FILE:
                return self._read(ALLOW_ALL)
            if fault.reason == Reason.BLOCKED_ADDRESS:
                raise
            return self._unreachable(last, fault.reason, fault.retry_after_s)
        if response.status == 429 or response.status >= 500:
            return self._unreachable(last, f"http_{response.status}", response.retry_after_s)
        if not 200 <= response.status < 300:
            return self._read(ALLOW_ALL)
        if len(response.body) > _OFF_LOOP_BYTES:
            return self._read(await asyncio.to_thread(RobotsRules.parse, response.body, agent))
        return self._read(RobotsRules.parse(response.body, agent))

    def _read(self, rules: RobotsRules) -> _Entry:
        return _Entry(self._clock() + self._ttl_s, rules)

    def _unreachable(self, last: _Entry | None, cause: str, asked_s: float | None) -> _Entry:
        failures = 1 if last is None else last.failures + 1
        # Asking again for a host that no packet reaches costs the site nothing.
        first_s = self._network_rest_s if cause in _NOT_REACHED else self._rest_s
        rest_s = min(first_s * 2.0 ** min(failures - 1, 30), self._rest_max_s)
        if asked_s is not None:
            rest_s = min(max(rest_s, asked_s), self._ttl_s)
        return _Entry(self._clock() + rest_s, None, cause, failures)

    def _keep(self, key: tuple[str, str], entry: _Entry) -> None:
        self._drop(key)
        self._entries[key] = entry
        self._rules_kept += entry.rules.rule_count if entry.rules is not None else 0
        while len(self._entries) > 1 and (
            len(self._entries) > self._max_origins or self._rules_kept > self._max_rules
        ):
            self._drop(next(iter(self._entries)))

    def _drop(self, key: tuple[str, str]) -> None:
        entry = self._entries.pop(key, None)
        if entry is not None and entry.rules is not None:
            self._rules_kept -= entry.rules.rule_count


_NOT_REACHED = frozenset({Reason.DNS, Reason.REFUSED})

# RFC 9309, 2.3.1.2: after five redirects the file may be taken to be unavailable, as for a redirect that
# leads nowhere; what breaks the coding is no robots.txt either.
_NO_FILE = frozenset({Reason.REDIRECT_LIMIT, Reason.REDIRECT_LOOP, Reason.REDIRECT_BAD, Reason.ENCODING})
