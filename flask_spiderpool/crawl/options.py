"""What a spider may be told: every option, checked once, merged in layers, kept as JSON with the task.

Layers, later wins: code < stored spider < live setting < start parameters. Limits of safety only tighten on the way
(robots, pace, sizes): :meth:`SpiderOptions.override` refuses to loosen one. ``None`` means: the pool's setting of that name.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields, replace
from types import MappingProxyType
from typing import Any, Final

from flask_spiderpool.crawl import option_checks as checks
from flask_spiderpool.crawl.option_checks import Check, Wrong
from flask_spiderpool.crawl.scope import Scope
from flask_spiderpool.crawl.urls import MAX_URL_LENGTH, host_key
from flask_spiderpool.errors import InvalidParameter

_MIB: Final = 1024 * 1024


def _option(default: Any, check: Check, *, tightens: Callable[[Any, Any], Any] | None = None) -> Any:
    """Declare an option. ``tightens`` returns the stricter of two values and makes it a limit of safety."""
    metadata = {"check": check, "tightens": tightens}
    if callable(default):
        return field(default_factory=default, metadata=metadata)
    return field(default=default, metadata=metadata)


def _no_headers() -> Mapping[str, str]:
    return MappingProxyType({})


def _user_agent(value: Any) -> str | None:
    return checks.text(300, r"[\x20-\x7e]+", "printable ASCII text")(value)  # type: ignore[no-any-return]


@dataclass(frozen=True, slots=True, kw_only=True)
class SpiderOptions:
    """The options of one spider or task. Make them with :meth:`parse`, which checks; then they are never wrong."""

    #: Where to begin. Depth 0.
    start_urls: tuple[str, ...] = _option((), checks.urls)
    #: ``host`` (with its subdomains, any port) or ``host:port``; ``None``: the hosts of the start URLs.
    allowed_domains: tuple[str, ...] | None = _option(None, checks.domains)
    #: Regular expressions searched in the URL: one of ``include`` must match, none of ``exclude`` may.
    include: tuple[str, ...] = _option((), checks.patterns("include"))
    exclude: tuple[str, ...] = _option((), checks.patterns("exclude"))
    max_depth: int | None = _option(None, checks.whole(0, 100_000, none=True))  #: links; the pool's is 10
    max_pages: int | None = _option(None, checks.whole(1, 10**12, none=True))  #: the pool's is 10,000
    max_time_s: float | None = _option(None, checks.number(1, 10**9, none=True))
    #: Seconds between two requests to one host; robots.txt may ask for more. ``None``: the pool's, 1 s.
    delay_s: float | None = _option(None, checks.number(0, 3600, none=True), tightens=max)
    concurrency: int | None = _option(None, checks.whole(1, 1000, none=True))  #: in a slice; the pool's is 32
    #: Requests under way at once to one host; the pool's is 8.
    concurrency_per_host: int | None = _option(None, checks.whole(1, 256, none=True), tightens=min)
    headers: Mapping[str, str] = _option(_no_headers, checks.headers)  #: merged by name, layer by layer
    user_agent: str | None = _option(None, _user_agent)
    obey_robots: bool = _option(True, checks.flag(), tightens=max)
    #: Follow every link in scope. ``None``: article spiders do, spiders with ``parse`` only what it yields.
    follow: bool | None = _option(None, checks.flag(none=True))
    #: Extract text, Markdown and metadata of each page. ``None``: article spiders do.
    extract: bool | None = _option(None, checks.flag(none=True))
    links_only: bool = _option(False, checks.flag())  #: keep URL, status and title only
    max_parallel: int = _option(1, checks.whole(1, 256))  #: slices at once, so how far over the cluster
    #: The spider's own Celery queue; ``None``: the pool's.
    queue: str | None = _option(
        None, checks.text(100, r"[A-Za-z0-9._-]+", "a queue name of letters, digits, . _ -")
    )
    priority: int = _option(0, checks.whole(-1000, 1000))  #: smaller goes first
    respect_nofollow: bool = _option(False, checks.flag())
    request_timeout_s: float | None = _option(None, checks.number(0.1, 3600, none=True), tightens=min)
    max_bytes: int | None = _option(None, checks.whole(1024, 2**31, none=True), tightens=min)
    max_unpacked_bytes: int | None = _option(None, checks.whole(1024, 2**31, none=True), tightens=min)
    attempts: int | None = _option(None, checks.whole(1, 50, none=True))
    backoff_s: float | None = _option(None, checks.number(0, 3600, none=True))
    description: str | None = _option(None, checks.paragraph(2_000))

    @classmethod
    def parse(cls, **values: Any) -> SpiderOptions:
        """Check ``values`` and return them with the defaults for the rest.

        Raises :class:`~flask_spiderpool.errors.InvalidParameter` for the first wrong field; its message
        names the other wrong ones as well.
        """
        return cls(**_checked(values))

    def override(self, **values: Any) -> SpiderOptions:
        """Return these options with ``values`` on top; headers are merged by name.

        Raises :class:`~flask_spiderpool.errors.InvalidParameter` as :meth:`parse` does, and for a limit of
        safety that would be loosened: what is asked for now must not be silently something else.
        """
        checked = _checked(values)
        loosened: dict[str, str] = {}
        for name, value in checked.items():
            stricter = _FIELDS[name].metadata["tightens"]
            own = getattr(self, name)
            if stricter is None or own is None:
                continue
            if value is None or stricter(own, value) != value:
                loosened[name] = (
                    f"{_shown(own)}, the limit of the spider or the pool, can only be made stricter, not {_shown(value)}"
                )
        if loosened:
            raise _fault(loosened)
        if "headers" in checked:
            checked["headers"] = checks.headers(
                {**self.headers, **_recased(self.headers, checked["headers"])}
            )
        return replace(self, **checked)

    def to_json(self) -> dict[str, Any]:
        """Return every option as JSON-safe values."""
        values = {name: getattr(self, name) for name in _FIELDS}
        return {
            name: list(value)
            if isinstance(value, tuple)
            else dict(value)
            if isinstance(value, Mapping)
            else value
            for name, value in values.items()
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> SpiderOptions:
        """Return options from what :meth:`to_json` gave, checked again.

        Names that this version does not know are left out: they were written by a newer one, and a task
        must not fail in the middle of a deployment.
        """
        return cls.parse(**{name: value for name, value in data.items() if name in _FIELDS})

    def follows(self, has_parse: bool) -> bool:
        """Tell whether every link in scope is followed."""
        return not has_parse if self.follow is None else self.follow

    def extracts(self, has_parse: bool) -> bool:
        """Tell whether each page's text is extracted and stored."""
        if self.links_only:
            return False
        return not has_parse if self.extract is None else self.extract

    def domains(self) -> tuple[str, ...]:
        """Return the hosts that belong to the crawl: those named, or those of the start URLs."""
        if self.allowed_domains is not None:
            return self.allowed_domains
        return tuple(dict.fromkeys(host_key(url) for url in self.start_urls))

    def scope(self, max_url_length: int = MAX_URL_LENGTH) -> Scope:
        """Return the rules that a URL must meet to enter the frontier."""
        return Scope(
            allowed_domains=self.domains(),
            include=self.include,
            exclude=self.exclude,
            max_depth=self.max_depth,
            max_url_length=min(max_url_length, MAX_URL_LENGTH),
        )

    def request_headers(self) -> dict[str, str]:
        """Return the headers of every request, with ``User-Agent`` if the spider has its own."""
        own = {} if self.user_agent is None else {"User-Agent": self.user_agent}
        return {**{k: v for k, v in self.headers.items() if not (own and k.lower() == "user-agent")}, **own}


_FIELDS: Final[dict[str, Field[Any]]] = {spec.name: spec for spec in fields(SpiderOptions)}

#: The names of all options.
OPTION_NAMES: Final = tuple(_FIELDS)


def _recased(own: Mapping[str, str], new: Mapping[str, str]) -> dict[str, str]:
    """Return ``new`` spelled as in ``own`` where only the case differs, so that it replaces."""
    spelled = {name.lower(): name for name in own}
    return {spelled.get(name.lower(), name): value for name, value in new.items()}


def _shown(value: Any) -> str:
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else f"{value:g}"


def _checked(values: Mapping[str, Any]) -> dict[str, Any]:
    faults: dict[str, str] = {}
    checked: dict[str, Any] = {}
    for name, value in values.items():
        spec = _FIELDS.get(name)
        if spec is None:
            near = difflib.get_close_matches(name, _FIELDS, n=1)
            hint = f"did you mean {near[0]}?" if near else f"options are {', '.join(_FIELDS)}"
            faults[name] = f"is not an option; {hint}"
            continue
        try:
            checked[name] = spec.metadata["check"](_none_as_empty(spec, value))
        except Wrong as wrong:
            faults[name] = str(wrong)
    if faults:
        raise _fault(faults)
    return checked


def _none_as_empty(spec: Field[Any], value: Any) -> Any:
    """Return the empty default for a list or object that is given as null."""
    if value is not None:
        return value
    if spec.default_factory is not MISSING:
        return spec.default_factory()
    return () if spec.default == () else None


def _fault(faults: Mapping[str, str]) -> InvalidParameter:
    (first, message), *others = faults.items()
    also = "".join(f"; {name}: {text}" for name, text in others)
    return InvalidParameter(first, message + also)
