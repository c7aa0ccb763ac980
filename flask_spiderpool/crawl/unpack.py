"""Undo content codings piece by piece, with a bound on what comes out.

A few kilobytes may unpack to gigabytes (scrapy #7134, colly #886), so bytes are counted while they are
unpacked, at every layer, and no piece is larger than :data:`PIECE_BYTES`.
"""

from __future__ import annotations

import importlib
import zlib
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from flask_spiderpool.errors import FetchError
from flask_spiderpool.terms import Reason

PIECE_BYTES = 256 * 1024
_MAX_LAYERS = 3
_GZIP_MAGIC = b"\x1f\x8b"


class _Layer(Protocol):
    """One coding being undone."""

    def pieces(self, data: bytes) -> Iterator[bytes]:
        """Yield what ``data`` unpacks to, in pieces; raises ``FetchError(encoding)``."""
        ...

    @property
    def complete(self) -> bool:
        """Whether the coding's own end mark was seen."""
        ...


class Unpacker:
    """Unpacks one body. Feed it what comes; then ask ``complete``.

    ``content_encoding`` is the header's value; unknown words in it (``utf-8``, ``none``) count as identity,
    since such servers send plain bytes. Raises ``FetchError``: ``encoding`` for a coding that cannot be
    undone, ``bomb`` past ``max_bytes``. A body labelled gzip that is none is passed through as it is.
    """

    def __init__(self, content_encoding: str, max_bytes: int) -> None:
        words = [word.strip().lower() for word in content_encoding.split(",")]
        # The last coding named was applied last (RFC 9110, 8.4), so it is undone first.
        names = [word for word in reversed(words) if word in _KNOWN]
        if len(names) > _MAX_LAYERS:
            raise FetchError(Reason.ENCODING, f"{len(names)} content codings: {content_encoding[:100]!r}")
        self._layers: list[_Layer] = [_make(name) for name in names]
        self._produced = [0] * len(names)
        self._max_bytes = max_bytes
        self._fed = False

    @property
    def is_identity(self) -> bool:
        """Whether there is nothing to undo."""
        return not self._layers

    @property
    def complete(self) -> bool:
        """Whether every layer came to its end; an empty body is complete whatever its label (RFC 9110, 8.4)."""
        return not self._fed or all(layer.complete for layer in self._layers)

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Yield what ``data`` unpacks to; consume it whole before the next call."""
        if data:
            self._fed = True
        return self._run(0, data)

    def _run(self, depth: int, data: bytes) -> Iterator[bytes]:
        if depth == len(self._layers):
            yield data
            return
        for piece in self._layers[depth].pieces(data):
            self._produced[depth] += len(piece)
            if self._produced[depth] > self._max_bytes:
                raise FetchError(Reason.BOMB, f"unpacks to more than {self._max_bytes} bytes")
            yield from self._run(depth + 1, piece)


class _Gzip:
    """RFC 1952: members follow each other; what follows the last one is padding."""

    def __init__(self) -> None:
        self._inner: Any = None
        self._held = b""
        self._members = 0
        self._plain = False
        self._finished = False

    @property
    def complete(self) -> bool:
        return self._plain or self._finished or (self._members > 0 and self._inner is None)

    def pieces(self, data: bytes) -> Iterator[bytes]:
        if self._plain:
            yield data
            return
        data = self._held + data
        self._held = b""
        while data and not self._finished:
            if self._inner is None:
                if len(data) < 2 and _GZIP_MAGIC.startswith(data):
                    self._held = data
                    return
                if not data.startswith(_GZIP_MAGIC):
                    self._finished = self._members > 0
                    self._plain = not self._finished
                    if self._plain:  # the label lies: browsers fail here, readers want the page
                        yield data
                    return
                self._inner = zlib.decompressobj(wbits=31)
                self._members += 1
            yield from _inflate(self._inner, data)
            if not self._inner.eof:
                return
            data = self._inner.unused_data
            self._inner = None


class _Deflate:
    """RFC 9110 means a zlib stream; some servers send the bare one."""

    def __init__(self) -> None:
        self._inner: Any = None
        self._held = b""

    @property
    def complete(self) -> bool:
        return self._inner is not None and bool(self._inner.eof)

    def pieces(self, data: bytes) -> Iterator[bytes]:
        if self._inner is None:
            data = self._held + data
            if len(data) < 2:
                self._held = data
                return
            wrapped = data[0] & 0x0F == 8 and int.from_bytes(data[:2], "big") % 31 == 0
            self._inner = zlib.decompressobj(wbits=15 if wrapped else -15)
        if not self._inner.eof:
            yield from _inflate(self._inner, data)


def _inflate(inner: Any, data: bytes) -> Iterator[bytes]:
    try:
        while True:
            piece = inner.decompress(data, PIECE_BYTES)
            if piece:
                yield piece
            data = inner.unconsumed_tail
            if not data and len(piece) < PIECE_BYTES:
                return
    except zlib.error as fault:
        raise FetchError(Reason.ENCODING, f"not what its Content-Encoding says: {fault}") from None


class _Zstd:
    """RFC 8878, by the standard library from Python 3.14, else by ``backports.zstd``."""

    def __init__(self) -> None:
        self._inner: Any = None
        self._frames = 0

    @property
    def complete(self) -> bool:
        return self._frames > 0 and self._inner is None

    def pieces(self, data: bytes) -> Iterator[bytes]:
        try:
            while data:
                if self._inner is None:
                    self._inner = _zstd.ZstdDecompressor()
                    self._frames += 1
                piece = self._inner.decompress(data, PIECE_BYTES)
                while piece or not (self._inner.needs_input or self._inner.eof):
                    yield piece
                    if self._inner.eof:
                        break
                    piece = self._inner.decompress(b"", PIECE_BYTES)
                data = b""
                if self._inner.eof:
                    data, self._inner = self._inner.unused_data, None
        except _zstd.ZstdError as fault:
            raise FetchError(Reason.ENCODING, f"not what its Content-Encoding says: {fault}") from None


class _Brotli:
    """RFC 7932, by ``brotli`` 1.2 or later: before that it could not bound one step's output.

    Its bound is a wish that it may overstep twofold.
    """

    def __init__(self) -> None:
        self._inner = _brotli.Decompressor()

    @property
    def complete(self) -> bool:
        return bool(self._inner.is_finished())

    def pieces(self, data: bytes) -> Iterator[bytes]:
        try:
            piece = self._inner.process(data, output_buffer_limit=PIECE_BYTES // 4)
            while piece:
                yield piece
                if self._inner.is_finished():
                    return
                piece = self._inner.process(b"", output_buffer_limit=PIECE_BYTES // 4)
        except _brotli.error as fault:
            raise FetchError(Reason.ENCODING, f"not what its Content-Encoding says: {fault}") from None


def _optional(*names: str) -> Any:
    """Return the first of the modules that is installed, or None."""
    for name in names:
        try:
            return importlib.import_module(name)
        except ImportError:
            continue
    return None


_zstd = _optional("compression.zstd", "backports.zstd")
_brotli = _optional("brotli")
if _brotli is not None and not hasattr(_brotli.Decompressor, "can_accept_more_data"):
    _brotli = None

_CODINGS: dict[str, type[Any]] = {"gzip": _Gzip, "x-gzip": _Gzip, "deflate": _Deflate}
if _brotli is not None:
    _CODINGS["br"] = _Brotli
if _zstd is not None:
    _CODINGS["zstd"] = _Zstd
_KNOWN = frozenset(_CODINGS) | {"br", "zstd", "compress", "x-compress", "dcb", "dcz"}


def accepted_codings() -> Sequence[str]:
    """Return the names to advertise in ``Accept-Encoding``: only what can be undone here, within bounds."""
    return [name for name in _CODINGS if name != "x-gzip"]


def _make(name: str) -> _Layer:
    coding = _CODINGS.get(name)
    if coding is None:
        raise FetchError(Reason.ENCODING, f"sent with the content coding {name!r}, which was not asked for")
    layer: _Layer = coding()
    return layer
