"""Request bodies: JSON, of a bounded size, and without text that no database takes."""

from __future__ import annotations

from typing import Any

from flask import Response, request
from werkzeug.exceptions import BadRequest, LengthRequired, RequestEntityTooLarge, UnsupportedMediaType

from flask_spiderpool.web.problems import MAX_ECHO_CHARS, problem


def check_body(max_bytes: int) -> Response | None:
    """Refuse a body that is too large (413), not JSON (415), malformed (400) or holds bad text (422)."""
    if request.method not in ("POST", "PUT", "PATCH", "DELETE"):
        return None
    _limit(max_bytes)
    if not request.is_json:
        raise UnsupportedMediaType("the body must be JSON, sent with Content-Type: application/json")
    try:
        data = request.get_json()
    except RecursionError:
        raise BadRequest("the body is nested too deeply") from None
    except BadRequest as fault:
        raise BadRequest(f"the body is not JSON: {_first_cause(fault)}") from None
    bad = _bad_text(data)
    if bad is None:
        return None
    detail = "holds a NUL character or half of a surrogate pair"
    return problem(422, f"{bad[:MAX_ECHO_CHARS]}: {detail}", errors=[{"field": bad, "detail": detail}])


def _first_cause(fault: BaseException) -> BaseException:
    """Return what the parser itself said, below what Flask and Werkzeug have put on it."""
    while (below := fault.__cause__ or fault.__context__) is not None:
        fault = below
    return fault


def _limit(max_bytes: int) -> None:
    """Bound what will be read. A host's own, smaller limit stays."""
    length = request.content_length
    own = request.max_content_length
    limit = max_bytes if own is None else min(own, max_bytes)
    too_large = RequestEntityTooLarge(f"the body is larger than {limit} bytes")
    if length is not None:
        if length > limit:
            raise too_large
        return
    try:
        # Werkzeug cuts a body without a length off at the limit and says nothing: let it read one more byte.
        request.max_content_length = limit + 1
    except AttributeError:  # before Flask 3.1 it is read from the app's configuration only
        raise LengthRequired("send the body with a Content-Length") from None
    if len(request.get_data()) > limit:
        raise too_large


def _bad_text(data: Any) -> str | None:
    """Return the path of the first text in ``data`` that cannot be stored, or None."""
    waiting: list[tuple[str, Any]] = [("", data)]
    while waiting:
        path, node = waiting.pop()
        if isinstance(node, dict):
            for key, value in node.items():
                if _unstorable(key):
                    return path or "body"
                waiting.append((f"{path}.{key}" if path else key, value))
        elif isinstance(node, list):
            waiting.extend(
                (f"{path}.{index}" if path else str(index), value) for index, value in enumerate(node)
            )
        elif isinstance(node, str) and _unstorable(node):
            return path or "body"
    return None


def _unstorable(text: str) -> bool:
    return "\x00" in text or any("\ud800" <= char <= "\udfff" for char in text)
