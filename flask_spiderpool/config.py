"""Settings: every SPIDERPOOL_* key, read, checked and frozen once.

A key is a field of :class:`Settings`: ``SPIDERPOOL_SLICE_S`` is ``slice_s``. The numbers are those of
PROTOCOL.md (*Numbers*); tests shorten them.
"""

from __future__ import annotations

import difflib
import ipaddress
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from flask_spiderpool.errors import ConfigError

PREFIX = "SPIDERPOOL_"

Check = Callable[[Any], Any]


class _Bad(Exception):
    """What is allowed, in words."""


def _number(kind: type, low: float, high: float, *, none: bool = False) -> Check:
    def check(value: Any) -> Any:
        allowed = f"{'a whole number' if kind is int else 'a number'} from {low:g} to {high:g}"
        allowed += ", or nothing" if none else ""
        if none and value in (None, ""):
            return None
        if isinstance(value, bool):
            raise _Bad(allowed)
        try:
            number = kind(value) if not isinstance(value, float) or kind is float else _whole(value)
        except (TypeError, ValueError, OverflowError):
            raise _Bad(allowed) from None
        if not low <= number <= high:
            raise _Bad(allowed)
        return number

    return check


def _whole(value: float) -> int:
    if value != int(value):
        raise ValueError
    return int(value)


def _flag(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    words = {
        "1": True,
        "true": True,
        "yes": True,
        "on": True,
        "0": False,
        "false": False,
        "no": False,
        "off": False,
    }
    try:
        return words[str(value).strip().lower()]
    except KeyError:
        raise _Bad("true or false") from None


def _text(pattern: str, words: str, *, none: bool = False) -> Check:
    def check(value: Any) -> Any:
        if none and value in (None, ""):
            return None
        if not isinstance(value, str) or not re.fullmatch(pattern, value):
            raise _Bad(words + (", or nothing" if none else ""))
        return value

    return check


def _address(entry: Any) -> str:
    """Check one entry of the allow list: ``host:port``, a CIDR, or ``CIDR:port``."""
    text = str(entry).strip()
    if "/" in text:
        network, _, port = text.rpartition(":") if re.search(r"/\d+:\d+$", text) else (text, "", "")
        ipaddress.ip_network(network, strict=False)
        if port and not 0 < int(port) < 65536:
            raise ValueError
        return text
    host, _, port = text.rpartition(":")
    bare_ipv6 = ":" in host and not (host.startswith("[") and host.endswith("]"))
    if not host or bare_ipv6 or not port.isdecimal() or not 0 < int(port) < 65536:
        raise ValueError
    return text.lower()


def _addresses(value: Any) -> tuple[str, ...]:
    entries = value.split(",") if isinstance(value, str) else value
    try:
        return tuple(_address(entry) for entry in entries if str(entry).strip())
    except (TypeError, ValueError):
        raise _Bad("a list of host:port, CIDR or CIDR:port, as 127.0.0.1:8000 or 10.0.0.0/8") from None


def _setting(default: Any, check: Check, doc: str) -> Any:
    return field(default=default, metadata={"check": check, "doc": doc})


_URL = r"[a-z][a-z0-9+.-]*://.*"
_MIB = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The pool's settings, checked. Make them with :func:`settings_from`."""

    url_prefix: str = _setting(
        "/spiderpool",
        _text(r"(/[A-Za-z0-9._~-]+)+", "a path as /spiderpool"),
        "Where the routes are mounted.",
    )
    namespace: str = _setting(
        "spiderpool",
        _text(r"[a-z][a-z0-9_-]{0,40}", "lower-case letters, digits, - and _"),
        "Prefix of every key and channel in Redis.",
    )
    auth: str | None = _setting(
        None,
        _text(r"none", 'only "none", and only in a debug app', none=True),
        'Set to "none" aloud, in a debug app only, to open every route.',
    )
    database_url: str | None = _setting(
        None,
        _text(_URL, "a database URL", none=True),
        "A database of the pool's own; default: the host's, in whose transactions the verbs then join.",
    )
    bind_key: str | None = _setting(
        None,
        _text(r"[^\x00]{1,200}", "a key of SQLALCHEMY_BINDS", none=True),
        "Which of the host's SQLALCHEMY_BINDS holds the pool's tables; default: the main database.",
    )
    redis_url: str | None = _setting(
        None,
        _text(r"(rediss?|unix)://.*", "redis://host:port/db", none=True),
        "Redis for limiter and bus, when these are not named themselves.",
    )
    limiter_url: str | None = _setting(
        None,
        _text(r"(memory|rediss?|unix)://.*", "memory:// or redis://host:port/db", none=True),
        "Backend of the limiter; default: redis_url, else memory://.",
    )
    bus_url: str | None = _setting(
        None,
        _text(
            r"(memory|database|rediss?|unix)://.*",
            "memory://, database:// or redis://host:port/db",
            none=True,
        ),
        "Backend of the bus; default: redis_url, else database://.",
    )
    broker_url: str | None = _setting(
        None,
        _text(_URL, "a Celery broker URL", none=True),
        "Broker of the Celery app that is made when the host has none.",
    )
    queue: str = _setting(
        "spiderpool", _text(r"[A-Za-z0-9._-]{1,100}", "letters, digits, . _ -"), "Celery queue of the slices."
    )
    user_agent: str = _setting(
        "Flask-SpiderPool/0.1 (+https://pypi.org/project/Flask-SpiderPool)",
        _text(r"[\x20-\x7e]{3,300}", "3 to 300 printable ASCII characters; name a contact"),
        "What sites see; name a contact.",
    )
    allow_addresses: tuple[str, ...] = _setting(
        (), _addresses, "Private addresses that may be crawled: host:port, CIDR or CIDR:port."
    )
    obey_robots: bool = _setting(True, _flag, "Obey robots.txt (RFC 9309).")
    delay_s: float = _setting(1.0, _number(float, 0, 3600), "Seconds between requests to one host.")
    concurrency: int = _setting(32, _number(int, 1, 1000), "Requests under way at once in a slice.")
    concurrency_per_host: int = _setting(8, _number(int, 1, 256), "Requests under way at once to one host.")
    request_timeout_s: float = _setting(
        60.0, _number(float, 0.1, 3600), "Deadline of a whole request, redirects in."
    )
    connect_timeout_s: float = _setting(15.0, _number(float, 0.1, 600), "Deadline of making a connection.")
    max_bytes: int = _setting(16 * _MIB, _number(int, 1024, 2**31), "Body bytes on the wire.")
    max_unpacked_bytes: int = _setting(64 * _MIB, _number(int, 1024, 2**31), "Body bytes after unpacking.")
    max_depth: int = _setting(10, _number(int, 0, 100_000), "Default depth of a task.")
    max_pages: int = _setting(10_000, _number(int, 1, 10**12), "Default page limit of a task.")
    max_url_length: int = _setting(2048, _number(int, 100, 2048), "Characters of a URL.")
    attempts: int = _setting(3, _number(int, 1, 50), "Attempts of a request.")
    backoff_s: float = _setting(
        2.0, _number(float, 0, 3600), "First pause before another attempt; doubled each time, +- 50 %."
    )
    deaths: int = _setting(3, _number(int, 1, 50), "Deaths of its worker after which a request is set aside.")
    slice_s: float = _setting(20.0, _number(float, 0.1, 600), "How long a slice works at most.")
    lease_s: float = _setting(20.0, _number(float, 0.5, 600), "How long a slot is held without a renewal.")
    send_margin_s: float = _setting(
        1.0, _number(float, 0.05, 60), "No request starts this close to the lease's end."
    )
    resend_s: float = _setting(
        30.0,
        _number(float, 0.2, 3600),
        "A message not claimed is sent again after this; doubled up to resend_max_s.",
    )
    resend_max_s: float = _setting(600.0, _number(float, 0.2, 86_400), "Longest pause between re-sends.")
    keeper_s: float = _setting(2.0, _number(float, 0.05, 60), "Pause between two passes of the keeper.")
    settle_pages: int = _setting(50, _number(int, 1, 1000), "Pages settled in one transaction.")
    settle_s: float = _setting(1.0, _number(float, 0.01, 60), "Longest wait before a settle.")
    stop_grace_s: float = _setting(
        10.0, _number(float, 0, 600), "How long started requests may finish after pause or stop."
    )
    short_wait_s: float = _setting(
        5.0, _number(float, 0.1, 60), "Waits up to this stay in the slice; longer ones rest in the frontier."
    )
    bus_poll_s: float = _setting(
        0.5, _number(float, 0.01, 10), "Pause between two looks of the database bus."
    )
    worker_threads: int = _setting(64, _number(int, 1, 1024), "Slice threads of a worker process.")
    store_threads: int = _setting(
        4, _number(int, 1, 64), "Database connections of a worker process (PostgreSQL)."
    )
    callback_threads: int = _setting(4, _number(int, 1, 64), "Threads that run parse functions.")
    parse_timeout_s: float = _setting(
        60.0, _number(float, 0.1, 3600), "Longest run of a parse function on one page."
    )
    seen_size: int = _setting(
        500_000,
        _number(int, 1000, 10**8),
        "Fingerprints that a process remembers to keep duplicates from the database.",
    )
    extract_timeout_s: float = _setting(10.0, _number(float, 0.1, 600), "Longest extraction of one page.")
    extract_memory_bytes: int = _setting(
        1024 * _MIB, _number(int, 128 * _MIB, 2**36), "Memory of the extraction child."
    )
    robots_ttl_s: float = _setting(
        86_400.0, _number(float, 1, 86_400), "How long a robots.txt is kept (RFC 9309: at most 24 h)."
    )
    max_content_bytes: int = _setting(
        1 * _MIB, _number(int, 1024, 2**31), "Largest body that the REST API accepts."
    )
    log_level: str = _setting(
        "INFO",
        _text(r"DEBUG|INFO|WARNING|ERROR", "DEBUG, INFO, WARNING or ERROR"),
        "Least level of the lines kept per task.",
    )

    @property
    def renew_s(self) -> float:
        """A lease is renewed four times in its life."""
        return self.lease_s / 4


def settings_from(
    config: Mapping[str, Any], environ: Mapping[str, str] | None = None, *, may_open: bool = True
) -> Settings:
    """Read every ``SPIDERPOOL_*`` key of ``config``; what it lacks is taken from ``environ``.

    Raises :class:`~flask_spiderpool.errors.ConfigError` with all faults at once: an unknown key with the
    nearest known one, a bad value with what is allowed. ``environ`` holds other programs' keys too, so there
    an unknown one is passed over. ``may_open`` says whether ``SPIDERPOOL_AUTH = "none"`` is allowed in this app.
    """
    known = {PREFIX + spec.name.upper(): spec for spec in fields(Settings)}
    given = {key: value for key, value in (environ or {}).items() if key in known}
    given |= {key: value for key, value in config.items() if isinstance(key, str) and key.startswith(PREFIX)}
    values: dict[str, Any] = {}
    faults: list[str] = []
    for key in sorted(given):
        spec = known.get(key)
        if spec is None:
            faults.append(f"unknown key {key}{_nearest(key, known)}")
            continue
        try:
            values[spec.name] = spec.metadata["check"](given[key])
        except _Bad as bad:
            faults.append(f"{key} is {_shown(key, given[key])}; allowed is {bad}")
    if values.get("auth") == "none" and not may_open:
        faults.append(_OPEN)
    # What two settings together get wrong is worth saying only when each alone is right.
    settings = None if faults else Settings(**values)
    if settings is not None:
        faults = _cross_checks(settings)
    if settings is None or faults:
        raise ConfigError(faults)
    return settings


_OPEN = (
    'SPIDERPOOL_AUTH is "none", which opens every route to everyone: allowed in a debug or testing app only. Make a'
    " token (flask spiderpool token create) or register a rule (SpiderPool.access_rule)"
)


def _nearest(key: str, known: Mapping[str, Any]) -> str:
    """Suggest a known key; the prefix, which all share, does not count towards likeness."""
    names = [name.removeprefix(PREFIX) for name in known]
    near = difflib.get_close_matches(key.removeprefix(PREFIX), names, n=1)
    return f", did you mean {PREFIX}{near[0]}?" if near else ""


def _shown(key: str, value: Any) -> str:
    """Show a wrong value, but never the password that a URL may hold."""
    text = repr(value)
    if key.endswith("_URL"):
        text = re.sub(r"//[^@/]*@", "//***@", text)
    return text if len(text) <= 200 else text[:200] + "..."


def _cross_checks(settings: Settings) -> list[str]:
    """Check what only two settings together can get wrong."""
    faults = []
    if settings.send_margin_s >= settings.lease_s / 2:
        faults.append(
            f"SPIDERPOOL_SEND_MARGIN_S is {settings.send_margin_s:g}; allowed is less than half of "
            f"SPIDERPOOL_LEASE_S ({settings.lease_s:g})"
        )
    if settings.resend_max_s < settings.resend_s:
        faults.append(
            f"SPIDERPOOL_RESEND_MAX_S is {settings.resend_max_s:g}; allowed is at least "
            f"SPIDERPOOL_RESEND_S ({settings.resend_s:g})"
        )
    if settings.max_unpacked_bytes < settings.max_bytes:
        faults.append("SPIDERPOOL_MAX_UNPACKED_BYTES must not be smaller than SPIDERPOOL_MAX_BYTES")
    return faults
