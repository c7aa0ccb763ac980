"""What a request came to, and how its body is read within bounds."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime

import httpx

from flask_spiderpool.crawl.unpack import Unpacker
from flask_spiderpool.errors import FetchError
from flask_spiderpool.terms import Reason

MIB = 1024 * 1024

RETRY_AFTER_MOST_S = 86_400.0

_DRAINED_BYTES = 16 * 1024
_DRAIN_S = 1.0


@dataclass(frozen=True, slots=True)
class FetchLimits:
    """Bounds of one request."""

    max_bytes: int = 16 * MIB  #: of the body on the wire
    max_unpacked_bytes: int = 64 * MIB
    max_redirects: int = 10
    cut: bool = False  #: keep the first bytes of a body that is too large instead of failing


@dataclass(slots=True)
class Response:
    """What a request came to."""

    url: str  #: as asked for
    final_url: str  #: after redirects, in wire form: what links are relative to
    status: int
    headers: httpx.Headers
    body: bytes  #: unpacked
    wire_bytes: int  #: of the body, as it was sent
    elapsed_ms: int  #: without the time spent in hooks
    hops: tuple[str, ...] = ()  #: the URLs between ``url`` and ``final_url``, the latter included
    was_cut: bool = False  #: the body goes on; see :attr:`FetchLimits.cut`
    received_at: float = field(default=0.0, repr=False)  #: wall clock, seconds since the epoch

    @property
    def content_type(self) -> str:
        """The Content-Type header, or an empty string."""
        return str(self.headers.get("content-type", ""))

    @property
    def retry_after_s(self) -> float | None:
        """How long the site asks to be left alone, or None."""
        return parse_retry_after(self.headers.get("retry-after"), now=self.received_at)


async def read_body(
    response: httpx.Response, stream: httpx.AsyncByteStream, limits: FetchLimits
) -> tuple[bytes, int, bool]:
    """Return (unpacked body, bytes on the wire, whether it was cut)."""
    announced = response.headers.get("content-length", "")
    if announced.isdecimal() and int(announced) > limits.max_bytes and not limits.cut:
        raise FetchError(Reason.TOO_LARGE, f"announces {announced} bytes, more than {limits.max_bytes}")
    unpacker = Unpacker(response.headers.get("content-encoding", ""), limits.max_unpacked_bytes)
    pieces: list[bytes] = []
    wire_bytes = 0
    try:
        async for chunk in stream:
            wire_bytes += len(chunk)
            if wire_bytes > limits.max_bytes:
                raise FetchError(Reason.TOO_LARGE, f"more than {limits.max_bytes} bytes")
            if unpacker.is_identity:
                pieces.append(chunk)
            else:
                pieces.extend(unpacker.feed(chunk))
                # Unpacking holds the loop: a body in many small chunks must let others run.
                await asyncio.sleep(0)
    except FetchError as fault:
        if limits.cut and fault.reason in (Reason.TOO_LARGE, Reason.BOMB):
            return b"".join(pieces)[: limits.max_unpacked_bytes], wire_bytes, True
        raise
    except httpx.TransportError as fault:
        # A length that counts the unpacked page is a known fault of servers (scrapy #2586): the end mark of
        # the coding itself is the better witness.
        if not unpacker.is_identity and wire_bytes and unpacker.complete:
            return b"".join(pieces), wire_bytes, False
        if isinstance(fault, httpx.TimeoutException):
            raise
        raise FetchError(
            Reason.TRUNCATED, f"the body broke off after {wire_bytes} bytes: {fault}", retry=True
        ) from fault
    if not unpacker.complete:
        raise FetchError(
            Reason.TRUNCATED, f"the packed body ends early, after {wire_bytes} bytes", retry=True
        )
    return b"".join(pieces), wire_bytes, False


async def drain(response: httpx.Response, stream: httpx.AsyncByteStream) -> None:
    """Read a redirect's body if it is short, so that its connection can be used again."""
    announced = response.headers.get("content-length", "0")
    if not announced.isdecimal() or int(announced) > _DRAINED_BYTES:
        return
    got = 0
    try:
        async with asyncio.timeout(_DRAIN_S):
            async for chunk in stream:
                got += len(chunk)
                if got > _DRAINED_BYTES:
                    return
    except (httpx.TransportError, TimeoutError):
        return  # closing the stream drops the connection


def parse_retry_after(value: str | None, *, now: float) -> float | None:
    """Return the seconds that a Retry-After header asks for, given as a number or a date; None if neither.

    ``now`` is the wall clock, in seconds since the epoch. A date in the past is 0. More than
    :data:`RETRY_AFTER_MOST_S` counts as that: one answer must not put a host aside for years.
    """
    asked_s = _asked_s(value, now)
    return None if asked_s is None else min(asked_s, RETRY_AFTER_MOST_S)


def _asked_s(value: str | None, now: float) -> float | None:
    if value is None:
        return None
    value = value.strip()
    if value.isascii() and value.isdecimal():
        return float(value[:12])
    try:
        when = parsedate_to_datetime(value)
        return max(0.0, when.timestamp() - now)
    except (TypeError, ValueError, IndexError, OverflowError):
        return None
