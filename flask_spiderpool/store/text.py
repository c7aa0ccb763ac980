"""Text as both databases can keep it."""

from __future__ import annotations

import re
from typing import Any

_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
_CONTROL = re.compile("[\x01-\x1f\x7f]")


def clean(text: str) -> str:
    """Return ``text`` without NUL (PostgreSQL refuses it) and lone surrogates (no UTF-8 for them)."""
    return _UNSTORABLE.sub("\ufffd", text) if _UNSTORABLE.search(text) else text


def clean_url(url: str) -> str:
    """The same for a URL; control characters, which no URL holds, are percent-encoded."""
    if url.isprintable():
        return url
    url = clean(url)
    return _CONTROL.sub(lambda found: f"%{ord(found[0]):02X}", url) if _CONTROL.search(url) else url


def clean_or_none(text: str | None, length: int | None = None) -> str | None:
    """The same for a nullable column, cut to ``length`` characters."""
    return None if text is None else clean(text if length is None else text[:length])


def sixteen(key: bytes) -> bytes:
    """Return a fingerprint or hash, which has 16 bytes; else raise ``ValueError``."""
    if len(key) != 16:
        raise ValueError(f"a fingerprint has 16 bytes, not {len(key)}")
    return key


def clean_json(value: Any) -> Any:
    """Clean every string of a JSON value. Raises ``RecursionError`` for a value nested too deeply."""
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, dict):
        return {clean(str(key)): clean_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [clean_json(item) for item in value]
    return value
