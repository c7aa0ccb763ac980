"""Text as both databases can keep it."""

from __future__ import annotations

import re
from typing import Any

_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")


def clean(text: str) -> str:
    """Return ``text`` without NUL (PostgreSQL refuses it) and lone surrogates (no UTF-8 for them)."""
    return _UNSTORABLE.sub("\ufffd", text) if _UNSTORABLE.search(text) else text


def clean_or_none(text: str | None, length: int | None = None) -> str | None:
    """The same for a nullable column, cut to ``length`` characters."""
    return None if text is None else clean(text if length is None else text[:length])


def clean_json(value: Any) -> Any:
    """Clean every string of a JSON value. Raises ``RecursionError`` for a value nested too deeply."""
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, dict):
        return {clean(str(key)): clean_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [clean_json(item) for item in value]
    return value
