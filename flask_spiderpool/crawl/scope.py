"""Which URLs belong to a task."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from flask_spiderpool.crawl.patterns import Pattern, compile_any, compile_pattern
from flask_spiderpool.crawl.urls import MAX_URL_LENGTH, origin, resolve
from flask_spiderpool.errors import FetchError, InvalidParameter
from flask_spiderpool.terms import Reason

_REMEMBERED_ORIGINS = 10_000
_DEFAULT_PORTS = {"http": "80", "https": "443"}


@dataclass(frozen=True)
class Scope:
    """Rules that a URL must meet before it may enter a task's frontier.

    ``allowed_domains`` holds hosts; each stands for itself and its subdomains, on every port. An entry with
    a port (``127.0.0.1:8000``) stands for exactly that host and port. Empty means every host.
    ``include`` and ``exclude`` are regular expressions (RE2 syntax) searched in the URL: nothing that matches an
    ``exclude`` is admitted, and if there are any ``include`` one of them must match.
    Wrong values raise :class:`~flask_spiderpool.errors.InvalidParameter` naming the field.
    """

    allowed_domains: tuple[str, ...] = ()
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    max_depth: int | None = None  #: seeds have depth 0; None: no limit
    max_url_length: int = MAX_URL_LENGTH  #: characters
    _include: Pattern | None = field(init=False, repr=False, compare=False, default=None)
    _exclude: Pattern | None = field(init=False, repr=False, compare=False, default=None)
    _hosts: tuple[tuple[str, str | None], ...] = field(init=False, repr=False, compare=False, default=())
    _origins: dict[str, bool] = field(init=False, repr=False, compare=False, default_factory=dict)

    def __post_init__(self) -> None:
        if self.max_depth is not None and self.max_depth < 0:
            raise InvalidParameter("max_depth", "must be 0 or more")
        if not 0 < self.max_url_length <= MAX_URL_LENGTH:
            raise InvalidParameter("max_url_length", f"must be from 1 to {MAX_URL_LENGTH}")
        set_once = object.__setattr__
        set_once(self, "allowed_domains", tuple(self.allowed_domains))
        set_once(self, "include", tuple(self.include))
        set_once(self, "exclude", tuple(self.exclude))
        set_once(self, "_hosts", tuple(_parse_domain(entry) for entry in self.allowed_domains))
        set_once(self, "_include", _compile("include", self.include))
        set_once(self, "_exclude", _compile("exclude", self.exclude))

    def admit(self, url: str, depth: int) -> Reason | None:
        """Return the reason why ``url`` (wire form) stays out, or None if it belongs to the task.

        Asked once a link: about half a microsecond without patterns.
        """
        if self.max_depth is not None and depth > self.max_depth:
            return Reason.DEPTH
        if len(url) > self.max_url_length:
            return Reason.URL_TOO_LONG
        if self._hosts:
            site = url[: url.find("/", 8)]
            inside = self._origins.get(site)
            if inside is None:
                inside = self._look_up(site)
            if not inside:
                return Reason.SCOPE
        if self._exclude is not None and self._exclude.search(url):
            return Reason.SCOPE
        if self._include is not None and not self._include.search(url):
            return Reason.SCOPE
        return None

    def explain(self, url: str, depth: int) -> str | None:
        """Return one sentence about the rule that keeps ``url`` out, or None if it belongs to the task."""
        reason = self.admit(url, depth)
        if reason is None:
            return None
        if reason is Reason.DEPTH:
            return f"depth {depth} is beyond max_depth {self.max_depth}"
        if reason is Reason.URL_TOO_LONG:
            return f"{len(url)} characters are more than max_url_length {self.max_url_length}"
        if self._hosts and not self._look_up(origin(url)):
            return f"its host is none of allowed_domains ({', '.join(self.allowed_domains)})"
        for pattern in self.exclude:
            if compile_pattern(pattern).search(url):
                return f"exclude {pattern!r} matches it"
        return f"no include matches it ({', '.join(map(repr, self.include))})"

    def _look_up(self, site: str) -> bool:
        scheme, _, authority = site.partition("://")
        if authority.endswith("]") or ":" not in authority:
            host, port = authority, _DEFAULT_PORTS.get(scheme, "")
        else:
            host, _, port = authority.rpartition(":")
        host = host.removesuffix(".")
        inside = any(
            host == allowed and port == allowed_port
            if allowed_port is not None
            else host == allowed or host.endswith(f".{allowed}")
            for allowed, allowed_port in self._hosts
        )
        # A hostile page may name any number of hosts: what is remembered stays bounded.
        if len(self._origins) >= _REMEMBERED_ORIGINS:
            self._origins.clear()
        self._origins[site] = inside
        return inside


def _parse_domain(entry: str) -> tuple[str, str | None]:
    """Return (host, port or None) of one entry of ``allowed_domains``."""
    fault = f"{entry!r} is not a host or host:port such as 'example.com' or '127.0.0.1:8000'"
    if not entry or any(char in entry for char in "/?#@\\ "):
        raise InvalidParameter("allowed_domains", fault)
    if "*" in entry:
        raise InvalidParameter("allowed_domains", f"{entry!r}: leave out '*.', subdomains are included")
    bare_ipv6 = entry.count(":") > 1 and not entry.startswith("[")
    # The scheme's port would be dropped as a default one: a scheme that lacks it keeps it.
    scheme = "https" if entry.endswith(":80") else "http"
    try:
        key = resolve(f"{scheme}://[{entry}]/" if bare_ipv6 else f"{scheme}://{entry}/").host_key
    except FetchError:
        raise InvalidParameter("allowed_domains", fault) from None
    if key.endswith("]") or ":" not in key:
        return key, None
    host, _, port = key.rpartition(":")
    return host, port


def _compile(name: str, patterns: Sequence[str]) -> Pattern | None:
    """Return one pattern that finds what any of ``patterns`` finds; None for none."""
    for pattern in patterns:
        if not isinstance(pattern, str):
            raise InvalidParameter(name, f"{pattern!r} is not a regular expression: it is no text")
        try:
            compile_pattern(pattern)
        except ValueError as fault:
            raise InvalidParameter(name, f"{pattern[:200]!r} is not a regular expression: {fault}") from None
    try:
        return compile_any(patterns)
    except ValueError as fault:
        # Valid alone but not side by side: two groups of one name, or too large together.
        raise InvalidParameter(name, f"the patterns cannot be combined: {fault}") from None
