"""Checks of single option values: each returns the clean value or raises :class:`Wrong` with what is allowed."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any

from flask_spiderpool.crawl.scope import Scope
from flask_spiderpool.crawl.urls import wire
from flask_spiderpool.errors import FetchError, InvalidParameter

Check = Callable[[Any], Any]

MAX_PATTERN_CHARS = 1_000
MAX_ENTRIES = 10_000

_TOKEN = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}")
# Framing is the client's: a spider that sets these would break the connection or unpack nothing.
_OWN_HEADERS = frozenset(
    {
        "accept-encoding",
        "connection",
        "content-length",
        "expect",
        "host",
        "keep-alive",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)


class Wrong(ValueError):
    """A value is not allowed; the message says what is."""


def whole(low: int, high: int, *, none: bool = False) -> Check:
    """Check for a whole number from ``low`` to ``high``."""

    def check(value: Any) -> int | None:
        if value is None and none:
            return None
        is_whole = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
        if isinstance(value, bool) or not is_whole or not low <= value <= high:
            raise Wrong(f"must be a whole number from {low} to {high}{' or null' if none else ''}")
        return int(value)

    return check


def number(low: float, high: float, *, none: bool = False) -> Check:
    """Check for a finite number from ``low`` to ``high``."""

    def check(value: Any) -> float | None:
        if value is None and none:
            return None
        if (
            isinstance(value, bool)
            or not isinstance(value, int | float)
            or not math.isfinite(value)
            or not low <= value <= high
        ):
            raise Wrong(f"must be a number from {low:g} to {high:g}{' or null' if none else ''}")
        return float(value)

    return check


def flag(*, none: bool = False) -> Check:
    """Check for true or false (and ``None``, which leaves the choice to the spider's kind)."""

    def check(value: Any) -> bool | None:
        if isinstance(value, bool) or (value is None and none):
            return value
        raise Wrong(f"must be true or false{', or null' if none else ''}")

    return check


def text(max_chars: int, pattern: str = r"[^\x00-\x1f\x7f]*", words: str = "one line of text") -> Check:
    """Check for a line of text that matches ``pattern``, or ``None``."""
    compiled = re.compile(pattern)

    def check(value: Any) -> str | None:
        if value is None:
            return None
        if not isinstance(value, str) or len(value) > max_chars or not compiled.fullmatch(value):
            raise Wrong(f"must be {words}, at most {max_chars} characters")
        return value

    return check


def paragraph(max_chars: int) -> Check:
    """Check for free text, lines allowed."""
    return text(max_chars, r"[^\x00]*", "text")


def _entries(value: Any, words: str) -> tuple[str, ...]:
    """Return a list of strings as a tuple; a lone string is a list of one."""
    if isinstance(value, str):
        value = [value]
    if not isinstance(value, Iterable) or isinstance(value, Mapping | bytes):
        raise Wrong(f"must be a list of {words}")
    entries = tuple(value)
    if not all(isinstance(entry, str) for entry in entries):
        raise Wrong(f"must be a list of {words}")
    if len(entries) > MAX_ENTRIES:
        raise Wrong(f"has more than {MAX_ENTRIES} entries")
    return tuple(dict.fromkeys(entry.strip() for entry in entries if entry.strip()))


def urls(value: Any) -> tuple[str, ...]:
    """Check for a list of http(s) URLs; they are kept as spelled, resolved, without fragment."""
    found = []
    for entry in _entries(value, "http or https URLs"):
        try:
            found.append(wire(entry))
        except FetchError as error:
            raise Wrong(f"{error}; a start URL looks like https://example.com/news") from None
    return tuple(dict.fromkeys(found))


def domains(value: Any) -> tuple[str, ...] | None:
    """Check for a list of ``host`` or ``host:port``, or ``None``."""
    if value is None:
        return None
    entries = tuple(entry.lower() for entry in _entries(value, "hosts, as example.com or 127.0.0.1:8000"))
    try:
        Scope(allowed_domains=entries)
    except InvalidParameter as error:
        raise Wrong(error.detail) from None
    return entries


def patterns(field: str) -> Check:
    """Check for a list of regular expressions that work side by side; ``field`` is ``include`` or ``exclude``."""

    def check(value: Any) -> tuple[str, ...]:
        entries = _entries(value, "regular expressions")
        for entry in entries:
            if len(entry) > MAX_PATTERN_CHARS:
                raise Wrong(f"has a pattern of more than {MAX_PATTERN_CHARS} characters")
        try:
            Scope(include=entries) if field == "include" else Scope(exclude=entries)
        except InvalidParameter as error:
            raise Wrong(error.detail) from None
        return entries

    return check


def headers(value: Any) -> Mapping[str, str]:
    """Check for request headers by name; a later spelling of a name replaces an earlier one."""
    if not isinstance(value, Mapping):
        raise Wrong("must be an object of header names and values")
    found: dict[str, tuple[str, str]] = {}
    for name, content in value.items():
        if not isinstance(name, str) or not _TOKEN.fullmatch(name):
            raise Wrong(f"{name!r:.60} is not a header name")
        if name.lower() in _OWN_HEADERS:
            raise Wrong(f"{name} is set by the client itself and cannot be given")
        if (
            not isinstance(content, str)
            or len(content) > 8_000
            or re.search(r"[\x00-\x08\x0a-\x1f\x7f]|[^\x00-\xff]", content)
        ):
            raise Wrong(f"the value of {name} must be one line of latin-1 text, at most 8000 characters")
        found[name.lower()] = (name, content.strip())
    return MappingProxyType(dict(found.values()))
