"""Content codings: undone piece by piece, bounded, told apart."""

from __future__ import annotations

import contextlib
import gzip
import importlib
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flask_spiderpool.crawl.unpack import PIECE_BYTES, Unpacker, accepted_codings
from flask_spiderpool.errors import FetchError
from flask_spiderpool.terms import Reason

TEXT = b"Text that repeats. " * 5000


def _raw_deflate(data: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-15)
    return packer.compress(data) + packer.flush()


def _packers() -> dict[str, object]:
    packers = {"gzip": gzip.compress, "x-gzip": gzip.compress, "deflate": zlib.compress}
    if "br" in accepted_codings():
        packers["br"] = importlib.import_module("brotli").compress
    if "zstd" in accepted_codings():
        try:
            packers["zstd"] = importlib.import_module("compression.zstd").compress
        except ImportError:
            packers["zstd"] = importlib.import_module("backports.zstd").compress
    return packers


PACKERS = _packers()


def _unpack(coding: str, packed: bytes, *, step: int = 1000, max_bytes: int = 10**7) -> tuple[bytes, bool]:
    unpacker = Unpacker(coding, max_bytes)
    out = b"".join(
        piece for at in range(0, len(packed), step) for piece in unpacker.feed(packed[at : at + step])
    )
    return out, unpacker.complete


@pytest.mark.parametrize("coding", PACKERS)
@pytest.mark.parametrize("step", [1, 7, 1 << 20])
def test_whole_bodies(coding: str, step: int) -> None:
    """What was packed comes out whole, however the network cuts it."""
    data = TEXT[:3000] if step == 1 else TEXT
    assert _unpack(coding, PACKERS[coding](data), step=step) == (data, True)  # type: ignore[operator]


@pytest.mark.parametrize("coding", PACKERS)
def test_cut_bodies_are_not_complete(coding: str) -> None:
    """A body that ends early is told from a whole one."""
    packed: bytes = PACKERS[coding](TEXT)  # type: ignore[operator]
    out, complete = _unpack(coding, packed[: len(packed) // 2])
    assert not complete
    assert TEXT.startswith(out)


@pytest.mark.parametrize("coding", PACKERS)
def test_bombs_stop_early(coding: str) -> None:
    """Unpacking stops at the limit; no piece is larger than the bound."""
    packed: bytes = PACKERS[coding](bytes(20_000_000))  # type: ignore[operator]
    unpacker = Unpacker(coding, 1_000_000)
    got = 0
    with pytest.raises(FetchError) as caught:  # noqa: PT012 - the loop is what is tested
        for at in range(0, len(packed), 4096):
            for piece in unpacker.feed(packed[at : at + 4096]):
                assert len(piece) <= PIECE_BYTES
                got += len(piece)
    assert caught.value.reason == Reason.BOMB
    assert got <= 1_000_000


def test_limit_is_exact() -> None:
    """A body of exactly the limit passes; one more byte does not."""
    assert _unpack("gzip", gzip.compress(bytes(1000)), max_bytes=1000)[0] == bytes(1000)
    with pytest.raises(FetchError):
        _unpack("gzip", gzip.compress(bytes(1001)), max_bytes=1000)


def test_layers() -> None:
    """The coding named last is undone first; every layer is bounded."""
    assert _unpack("deflate, gzip", gzip.compress(zlib.compress(TEXT))) == (TEXT, True)
    hidden = gzip.compress(gzip.compress(b"") + bytes(5_000_000))
    with pytest.raises(FetchError, match="unpacks to more"):
        _unpack("gzip, gzip", hidden, max_bytes=1_000_000)
    with pytest.raises(FetchError) as caught:
        Unpacker("gzip, gzip, gzip, gzip", 1000)
    assert caught.value.reason == Reason.ENCODING


def test_gzip_members_and_padding() -> None:
    """Members follow each other; what follows the last one is ignored."""
    packed = gzip.compress(b"one") + gzip.compress(b"two")
    for step in (1, 1000):
        assert _unpack("gzip", packed + b"\0\0padding", step=step) == (b"onetwo", True)


def test_bare_deflate() -> None:
    """Servers that send deflate without its zlib wrapping are understood."""
    for step in (1, 1000):
        assert _unpack("deflate", _raw_deflate(TEXT[:2000]), step=step) == (TEXT[:2000], True)


@pytest.mark.parametrize("step", [1, 1000])
def test_plain_body_labelled_gzip(step: int) -> None:
    """A page that is not packed at all is kept, whatever its label."""
    assert _unpack("gzip", b"<!doctype html><p>plain", step=step) == (b"<!doctype html><p>plain", True)


def test_empty_is_complete() -> None:
    """An empty body needs no end mark."""
    assert Unpacker("gzip", 10).complete
    assert _unpack("deflate", b"") == (b"", True)


@pytest.mark.parametrize("label", ["", "identity", "none", "UTF-8", "binary, identity"])
def test_unknown_labels_are_identity(label: str) -> None:
    """Words that name no coding change nothing."""
    assert Unpacker(label, 10).is_identity


def test_damage_is_an_encoding_fault() -> None:
    """Bytes that break the coding are a fault without a retry."""
    packed = bytearray(gzip.compress(TEXT))
    packed[len(packed) // 2] ^= 0xFF
    with pytest.raises(FetchError) as caught:
        _unpack("gzip", bytes(packed))
    assert caught.value.reason == Reason.ENCODING
    assert not caught.value.retry


def test_codings_not_asked_for() -> None:
    """A coding that cannot be undone here is refused, and was not advertised."""
    assert "compress" not in accepted_codings()
    with pytest.raises(FetchError, match="not asked for"):
        Unpacker("compress", 10)


@given(st.binary(max_size=300), st.sampled_from(list(PACKERS)), st.integers(1, 50))
def test_any_bytes_unpack_or_are_refused(data: bytes, coding: str, step: int) -> None:
    """Whatever bytes come, the only error is a FetchError."""
    out = b""
    with contextlib.suppress(FetchError):
        out, _ = _unpack(coding, data, step=step, max_bytes=10_000)
    assert len(out) <= 10_000
