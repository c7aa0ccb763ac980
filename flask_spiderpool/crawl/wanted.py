"""What a spider asks for next: the :class:`Request` that ``parse`` yields."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from flask_spiderpool.crawl import option_checks as checks
from flask_spiderpool.crawl.items import BadItem, json_value
from flask_spiderpool.crawl.option_checks import Wrong

MAX_PRIORITY = 1_000_000

Callback = Callable[..., Any] | str


@dataclass(slots=True)
class Request:
    """A URL to be fetched in this task, once: a URL that the task knows already is not fetched again.

    ``url`` may be relative to the page that yields it. ``callback`` is a method of the spider, or a function at
    the top of the module of a spider made from a function, or the name of either; it is kept by name, since another
    process may call it. ``meta`` comes back as ``page.meta`` and must have a form in JSON. ``headers`` go on top
    of the spider's. ``priority``: smaller goes first.

    Raises ``TypeError`` or ``ValueError`` at once for what could not be stored.
    """

    url: str
    callback: Callback | None = None
    meta: Mapping[str, Any] | None = None
    headers: Mapping[str, str] | None = None
    priority: int = 0
    callback_name: str | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        if not isinstance(self.url, str):
            raise TypeError(f"the URL of a Request must be text, not {type(self.url).__name__}")
        self.callback_name = callback_name(self.callback)
        if self.meta is not None:
            if not isinstance(self.meta, Mapping):
                raise TypeError(f"the meta of a Request must be a mapping, not {type(self.meta).__name__}")
            try:
                self.meta = json_value(dict(self.meta), "meta")
            except BadItem as error:
                raise TypeError(f"Request({self.url[:200]!r}): {error}") from None
        try:
            self.priority = checks.whole(-MAX_PRIORITY, MAX_PRIORITY)(self.priority)
        except Wrong as wrong:
            raise ValueError(f"the priority of a Request {wrong}") from None
        if self.headers is not None:
            try:
                self.headers = dict(checks.headers(self.headers))
            except Wrong as wrong:
                raise ValueError(f"the headers of a Request: {wrong}") from None

    def payload(self) -> dict[str, Any] | None:
        """Return what the frontier keeps beside the URL, as JSON; ``None`` if there is nothing."""
        kept = {"callback": self.callback_name, "meta": self.meta, "headers": self.headers}
        return {name: value for name, value in kept.items() if value} or None


def callback_name(callback: Callback | None) -> str | None:
    """Return the name by which a callback is kept."""
    if callback is None or isinstance(callback, str):
        return callback or None
    name = getattr(callback, "__name__", None)
    if not callable(callback) or not isinstance(name, str):
        raise TypeError(f"a callback must be a function, a method or a name, not {type(callback).__name__}")
    if not name.isidentifier():
        raise TypeError(
            f"{name} cannot be a callback: another process must find it by its name, so use a def"
        )
    return name
