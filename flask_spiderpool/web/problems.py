"""Errors as ``application/problem+json`` (RFC 9457). What each means in HTTP stands here and nowhere else.

Handlers sit on the pool's own blueprints, so a host's error pages stay its own.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from flask import Blueprint, Response, json, request
from sqlalchemy.exc import SQLAlchemyError
from werkzeug.exceptions import HTTPException, MethodNotAllowed, NotFound, default_exceptions

from flask_spiderpool.control import translate
from flask_spiderpool.errors import (
    InvalidParameter,
    RequestError,
    SetupError,
    Unavailable,
    UnknownSpider,
    UnknownTask,
    VerbConflict,
)

MEDIA_TYPE = "application/problem+json"
RETRY_AFTER_S = 5  #: told with a 503
MAX_ECHO_CHARS = 200  #: of a name that was sent
MAX_DETAIL_CHARS = 1000
MAX_ERRORS = 20  #: fields named in one answer
_AWAY = "the pool's database cannot be used just now"

_log = logging.getLogger(__name__)

_STATUS: dict[type[RequestError], HTTPStatus] = {
    InvalidParameter: HTTPStatus.UNPROCESSABLE_ENTITY,
    UnknownSpider: HTTPStatus.NOT_FOUND,
    UnknownTask: HTTPStatus.NOT_FOUND,
    VerbConflict: HTTPStatus.CONFLICT,
}

#: Names that control and the spiders' options have for what the REST API calls otherwise.
_FIELDS = {"start_urls": "target_url", "delay_s": "crawl_delay", "note": "reason"}
_RENAMED = re.compile(rf"; ({'|'.join(_FIELDS)}): ")


def problem(
    status: int,
    detail: str,
    *,
    errors: list[dict[str, str]] | None = None,
    headers: Mapping[str, str] | None = None,
    **more: Any,
) -> Response:
    """Return a problem document; ``errors`` name fields: ``[{"field": ..., "detail": ...}]``."""
    known = HTTPStatus(status)
    body: dict[str, Any] = {"type": "about:blank", "title": known.phrase, "status": status}
    body["detail"] = _shortened(detail, MAX_DETAIL_CHARS)
    if errors:
        body["errors"] = [
            {
                "field": _shortened(error["field"], MAX_ECHO_CHARS),
                "detail": _shortened(error["detail"], MAX_DETAIL_CHARS),
            }
            for error in errors[:MAX_ERRORS]
        ]
    body.update(more)
    response = Response(json.dumps(body) + "\n", status, mimetype=MEDIA_TYPE)
    response.headers.extend(dict(headers or {}))
    response.headers["Cache-Control"] = "no-store"
    # What was sent may be quoted in it: no browser may take it for a page.
    response.headers["X-Content-Type-Options"] = "nosniff"
    return response


def _shortened(text: str, max_chars: int) -> str:
    return text if len(text) <= max_chars else text[: max_chars - 1] + "…"


def handle_problems(blueprint: Blueprint) -> None:
    """Answer every error of ``blueprint``'s routes with a problem document."""
    # Flask asks for handlers of the code first, the app's too, and only then for those of a class.
    for code in default_exceptions:
        blueprint.register_error_handler(code, _http)
    blueprint.register_error_handler(HTTPException, _http)
    blueprint.register_error_handler(RequestError, _request)
    blueprint.register_error_handler(Unavailable, _unavailable)
    blueprint.register_error_handler(SetupError, _setup)
    blueprint.register_error_handler(SQLAlchemyError, _database)


def unrouted(prefix: str) -> Response | None:
    """Answer a path below ``prefix`` that no route matches, or not with this method; None for all others."""
    fault = request.routing_exception
    if isinstance(fault, NotFound | MethodNotAllowed) and _below(request.path, prefix):
        return _http(fault)
    return None


def _below(path: str, prefix: str) -> bool:
    return path == prefix or path.startswith(f"{prefix}/")


def _http(fault: HTTPException) -> Response:
    if fault.response is not None and isinstance(fault.response, Response):
        return fault.response
    status = fault.code or 500
    messages = (getattr(fault, "data", None) or {}).get("messages")
    errors = _field_errors(messages) if messages else None
    detail = fault.description or HTTPStatus(status).phrase
    if errors:
        detail = "; ".join(
            f"{_shortened(error['field'], MAX_ECHO_CHARS)}: {error['detail']}"
            for error in errors[:MAX_ERRORS]
        )
    headers = {
        name: value
        for name, value in fault.get_headers()
        if name.lower() not in ("content-type", "content-length")
    }
    return problem(status, detail, errors=errors, headers=headers)


def _request(fault: RequestError) -> Response:
    status = next(
        (status for kind, status in _STATUS.items() if isinstance(fault, kind)), HTTPStatus.BAD_REQUEST
    )
    if isinstance(fault, VerbConflict):
        return problem(status, str(fault), verb=fault.verb, task_status=fault.status)
    field = getattr(fault, "field", None)
    if field is None:
        return problem(status, str(fault))
    field = _FIELDS.get(field, field)
    detail = _RENAMED.sub(lambda found: f"; {_FIELDS[found[1]]}: ", getattr(fault, "detail", str(fault)))
    detail = _shortened(detail, MAX_DETAIL_CHARS)
    return problem(
        status, f"{_shortened(field, MAX_ECHO_CHARS)}: {detail}", errors=[{"field": field, "detail": detail}]
    )


def _unavailable(fault: Unavailable) -> Response:
    """The driver's words name the server's address, and whoever calls need not be known yet: they are logged."""
    _log.warning("%s", fault)
    return problem(HTTPStatus.SERVICE_UNAVAILABLE, _AWAY, headers={"Retry-After": str(RETRY_AFTER_S)})


def _setup(fault: SetupError) -> Response:
    _log.error("%s", fault)
    return problem(HTTPStatus.SERVICE_UNAVAILABLE, str(fault))


def _database(fault: SQLAlchemyError) -> Response:
    """The host's own code may have met the database first, as when it looks up its user."""
    known = translate(fault)
    if isinstance(known, Unavailable):
        return _unavailable(known)
    if isinstance(known, SetupError):
        return _setup(known)
    raise fault


def _field_errors(messages: Any) -> list[dict[str, str]]:
    """Flatten marshmallow's nested messages: ``{"json": {"max_depth": ["Not a valid integer."]}}``."""
    found: list[dict[str, str]] = []

    def walk(path: tuple[str, ...], node: Any) -> None:
        if isinstance(node, Mapping):
            for key, value in node.items():
                walk(path if key == "_schema" else (*path, str(key)), value)
        else:
            for text in node if isinstance(node, list) else [node]:
                found.append({"field": ".".join(path[1:]) or "body", "detail": str(text)})

    walk((), messages)
    return found
