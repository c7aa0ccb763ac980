"""Query strings: what a route does not know is refused, as in bodies."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from flask import Response, current_app, request

from flask_spiderpool.web.problems import MAX_ECHO_CHARS, problem
from flask_spiderpool.web.unknown import unknown_name

F = TypeVar("F", bound=Callable[..., Any])

_QUERY = "spiderpool_query"


def takes_query(*names: str) -> Callable[[F], F]:
    """Mark a view as taking these query parameters. A view without a mark takes none."""

    def mark(view: F) -> F:
        setattr(view, _QUERY, names)
        return view

    return mark


def check_query() -> Response | None:
    """Refuse a query parameter that the current route does not take (422): it would be silently ignored."""
    known: Iterable[str] = getattr(current_app.view_functions[request.endpoint or ""], _QUERY, ())
    errors = [
        {"field": name, "detail": unknown_name("parameter", name, known)}
        for name in request.args
        if name not in known
    ]
    if not errors:
        return None
    return problem(422, f"{errors[0]['field'][:MAX_ECHO_CHARS]}: {errors[0]['detail']}", errors=errors)
