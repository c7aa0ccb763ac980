"""URLs: the form that goes on the wire, and the key by which two spellings are one request.

Two forms are kept apart, since undoing percent-encoding changes what is asked for (scrapy #1068):

wire form
    as the site spells it, resolved by the URL standard (WHATWG, by ada), without fragment and userinfo;
canonical form
    only for deduplication. On top of the wire form: escapes in capitals, escapes of unreserved characters
    undone (RFC 3986, 6.2.2). Nothing reserved is decoded, no parameter is dropped or reordered.
"""

from __future__ import annotations

import re
from functools import lru_cache
from hashlib import blake2b
from typing import NamedTuple

from ada_url import join_url, normalize_url

from flask_spiderpool.errors import FetchError
from flask_spiderpool.terms import Reason

MAX_URL_LENGTH = 2048  #: characters of the wire form
FINGERPRINT_BYTES = 16

_MAX_HREF_LENGTH = 4 * MAX_URL_LENGTH  # dot segments and blanks may shrink; nothing longer is parsed at all
_CACHED_HREF_LENGTH = 400
_STRIPPED = "".join(map(chr, range(0x21)))  # C0 controls and space, as the URL standard strips them
_ESCAPE = re.compile(r"%[0-9A-Fa-f]{2}")
_BROKEN_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")
_OTHER_SCHEME = re.compile(r"(?!https?:)[a-z][a-z0-9+.-]*:", re.IGNORECASE)
_UNRESERVED = {
    f"%{ord(char):02X}": char for char in "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~"
}


class Link(NamedTuple):
    """One resolved URL with everything that the frontier needs to know of it."""

    url: str  #: wire form
    canonical: str
    fingerprint: bytes  #: 16 bytes of the canonical form
    host_key: str  #: ``host`` or ``host:port``


class Base:
    """What the links of one page are relative to.

    ``resolve`` never raises: one bad href must not lose the other links of its page. Answers are kept in a
    bounded cache of the process, since most links of a site (navigation) stand on every page.
    """

    __slots__ = ("_directory", "_origin", "url")

    def __init__(self, url: str) -> None:
        self.url = url
        slash = url.find("/", 8)
        self._origin = url[: slash + 1] if slash > 0 else url
        path = url.partition("?")[0]
        self._directory = path[: path.rfind("/") + 1] if slash > 0 else url

    def resolve(self, href: str) -> Link | Reason:
        """Return the link that ``href`` means on this page, or the reason why it is none."""
        href = href.strip(_STRIPPED)
        if len(href) > _CACHED_HREF_LENGTH:
            return _resolve(self.url, href)
        # How much of the base matters decides how many pages can share the answer.
        if href.startswith("/"):
            return _resolve_cached(self._origin, href)
        if href.startswith(("http://", "https://")):
            return _resolve_cached("", href)
        if not href or href[0] in "?#" or href[:5].lower() == "http:" or href[:6].lower() == "https:":
            return _resolve(self.url, href)
        return _resolve_cached(self._directory, href)


def resolve(url: str, base: str | None = None) -> Link:
    """Return the :class:`Link` of ``url``; raises ``FetchError`` (``bad_url``, ``scheme``, ``url_too_long``)."""
    found = _resolve(base or "", url.strip(_STRIPPED))
    if isinstance(found, Reason):
        raise FetchError(found, f"{_EXPLAINED[found]}: {_shown(url)}")
    return found


def wire(url: str) -> str:
    """Return ``url`` as it goes on the wire; raises ``FetchError``."""
    return resolve(url).url


def join(base: str, href: str) -> str:
    """Return the wire form of ``href`` found on the page ``base``; raises ``FetchError``."""
    return resolve(href, base).url


def canonicalize(url: str) -> str:
    """Return the deduplication key of ``url``; idempotent; raises ``FetchError``."""
    return resolve(url).canonical


def fingerprint(canonical: str) -> bytes:
    """Return the 16 bytes by which the frontier knows a canonical URL."""
    return blake2b(canonical.encode(), digest_size=FINGERPRINT_BYTES).digest()


def host_key(url: str) -> str:
    """Return the politeness key of ``url``: lower-case ``host``, or ``host:port`` when the port is not the scheme's own."""
    return resolve(url).host_key


def origin(url: str) -> str:
    """Return ``scheme://host[:port]`` of a URL in wire form."""
    slash = url.find("/", 8)
    return url[:slash] if slash > 0 else url


_EXPLAINED = {
    Reason.BAD_URL: "not a URL that can be asked for",
    Reason.SCHEME: "neither http nor https",
    Reason.URL_TOO_LONG: f"longer than {MAX_URL_LENGTH} characters",
}


def _shown(url: str) -> str:
    return repr(url if len(url) <= 200 else url[:200] + "…")


def _resolve(base: str, href: str) -> Link | Reason:
    if len(href) > _MAX_HREF_LENGTH:
        return Reason.SCHEME if _OTHER_SCHEME.match(href) else Reason.URL_TOO_LONG
    try:
        url = join_url(base, href) if base else normalize_url(href)
    except ValueError:  # lone surrogates raise UnicodeEncodeError, which is one
        return Reason.SCHEME if _OTHER_SCHEME.match(href) else Reason.BAD_URL
    if url.startswith("https://"):
        start = 8
    elif url.startswith("http://"):
        start = 7
    else:
        return Reason.SCHEME
    url = url.partition("#")[0]
    slash = url.find("/", start)
    authority = url[start:slash]
    if "@" in authority:
        authority = authority.rpartition("@")[2]
        url = f"{url[:start]}{authority}{url[slash:]}"
    if len(url) > MAX_URL_LENGTH:
        return Reason.URL_TOO_LONG
    key = _checked_host_key(authority)
    if key is None:
        return Reason.BAD_URL
    canonical = _canonical(url) if "%" in url else url
    return Link(url, canonical, blake2b(canonical.encode(), digest_size=FINGERPRINT_BYTES).digest(), key)


_resolve_cached = lru_cache(maxsize=8192)(_resolve)


@lru_cache(maxsize=4096)
def _checked_host_key(authority: str) -> str | None:
    """Return the politeness key of an authority without userinfo; None if DNS could never know the host."""
    host, colon, port = authority, "", ""
    if ":" in authority and not authority.endswith("]"):
        host, colon, port = authority.rpartition(":")
    if not host.startswith("["):
        # A trailing dot is the same host (RFC 1034, 3.1), so it shares the same bucket.
        host = host.removesuffix(".")
        labels = host.split(".")
        if len(host) > 253 or not all(0 < len(label) <= 63 for label in labels):
            return None
    return f"{host}{colon}{port}"


def _canonical(url: str) -> str:
    if _BROKEN_ESCAPE.search(url):
        # Undoing "%%34%31" would make a new escape: a URL with a broken one keeps its spelling.
        return _ESCAPE.sub(lambda found: found[0].upper(), url)
    return _ESCAPE.sub(_unescape_unreserved, url)


def _unescape_unreserved(found: re.Match[str]) -> str:
    escape = found[0].upper()
    return _UNRESERVED.get(escape, escape)
