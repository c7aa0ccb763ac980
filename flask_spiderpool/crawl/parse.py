"""Running a spider's callback on one page: everything that it does becomes a result, never an exception."""

from __future__ import annotations

import asyncio
import inspect
import site
import sysconfig
import traceback
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from flask_spiderpool.crawl.items import as_record, json_item
from flask_spiderpool.crawl.page import Page
from flask_spiderpool.crawl.spider import Spider
from flask_spiderpool.crawl.wanted import Request

MAX_ITEMS = 100_000  #: of one page
MAX_REQUESTS = 100_000  #: of one page
MAX_ERROR_CHARS = 500

_PACKAGE: Final = str(Path(__file__).resolve().parent.parent)


@dataclass(slots=True)
class ParseResult:
    """What a callback made of a page."""

    items: list[dict[str, Any]] = field(default_factory=list)  #: JSON-safe
    requests: list[Request] = field(default_factory=list)
    #: One line, ``ValueError: no price (shop/spiders.py:42 in parse)``; what was yielded before is kept.
    error: str | None = None
    logs: list[tuple[str, str]] = field(default_factory=list)  #: (level name, message)


class _Refused(TypeError):
    """The callback yielded what is neither item nor request, or too much of it."""


def run_parse(spider: Spider, page: Page, callback_name: str | None = None) -> ParseResult:
    """Run a callback of ``spider`` on ``page`` (``None``: its ``parse``), in the calling thread.

    A callback may be a function or generator, or ``async`` of either: those run in an event loop of their own,
    made for this page, so a client or a session made in one cannot be used in another. It takes as long as
    it takes: whoever calls this bounds the wait.
    """
    result = ParseResult(logs=page.logs)
    try:
        outcome = spider.callback(callback_name)(page)
        if inspect.isawaitable(outcome) or inspect.isasyncgen(outcome):
            asyncio.run(_collect_async(spider, outcome, result))
        else:
            _collect(spider, outcome, result)
    # SystemExit and KeyboardInterrupt too: what a callback raises costs a page, not the thread or the loop.
    except BaseException as error:
        result.error = describe(error)
        page.logs.append(("ERROR", result.error))
    return result


def _collect(spider: Spider, outcome: Any, result: ParseResult) -> None:
    for value in _values(spider, outcome):
        _take(spider, value, result)


async def _collect_async(spider: Spider, outcome: Any, result: ParseResult) -> None:
    if inspect.isasyncgen(outcome):
        async for value in outcome:
            _take(spider, value, result)
    else:
        _collect(spider, await outcome, result)


def _values(spider: Spider, outcome: Any) -> Iterator[Any]:
    """Yield the single items and requests of what a callback returned."""
    if outcome is None:
        return
    if isinstance(outcome, Request | Mapping | str | bytes):
        yield outcome
    elif isinstance(outcome, Iterator | list | tuple | set | frozenset) and not hasattr(outcome, "_asdict"):
        yield from outcome
    elif as_record(outcome) is not None:
        yield outcome
    elif isinstance(outcome, Iterable):
        yield from outcome
    else:
        raise _Refused(_refusal(spider, outcome, "returned"))


def _take(spider: Spider, value: Any, result: ParseResult) -> None:
    if value is None:
        return
    if isinstance(value, Request):
        if len(result.requests) >= MAX_REQUESTS:
            raise _Refused(f"spider {spider.name!r} yielded more than {MAX_REQUESTS} requests for one page")
        if value.callback_name is not None:
            spider.callback(value.callback_name)
        result.requests.append(value)
        return
    item = None if isinstance(value, str | bytes) else json_item(value)
    if item is None:
        raise _Refused(_refusal(spider, value, "yielded"))
    if len(result.items) >= MAX_ITEMS:
        raise _Refused(f"spider {spider.name!r} yielded more than {MAX_ITEMS} items for one page")
    result.items.append(item)


def _refusal(spider: Spider, value: Any, verb: str) -> str:
    hint = ""
    if isinstance(value, str):
        hint = "; for a URL yield Request(url) or page.follow_url(url)"
    elif isinstance(value, Iterable):
        hint = "; use yield from"
    return (
        f"spider {spider.name!r} {verb} a {type(value).__name__} ({_shortened(value)}),"
        f" but only dicts, dataclasses and Request are taken{hint}"
    )


def _shortened(value: Any) -> str:
    try:
        shown = repr(value)
    except Exception:
        return "…"
    return shown if len(shown) <= 60 else shown[:59] + "…"


def describe(error: BaseException) -> str:
    """Return an exception in one line, with the place in the spider's own code where it came from."""
    try:
        text = " ".join(str(error).split())
    except Exception:
        text = "(its message cannot be shown)"
    kind = "" if isinstance(error, _Refused) else type(error).__name__
    said = ": ".join(part for part in (kind, text) if part)
    place = _place(error)
    room = MAX_ERROR_CHARS - len(place)
    return f"{said if len(said) <= room else said[: room - 1] + '…'}{place}"


def _place(error: BaseException) -> str:
    """Return `` (file:line in function)`` of the innermost frame that is neither ours nor a library's."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if not _is_library(frame.filename)]
    if not own:
        return ""
    path = Path(own[-1].filename)
    shown = path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else Path(*path.parts[-2:])
    return f" ({shown}:{own[-1].lineno} in {own[-1].name})"


def _is_library(filename: str) -> bool:
    return filename.startswith((_PACKAGE, "<", *_LIBRARIES))


_LIBRARIES: Final = tuple(
    {sysconfig.get_path("stdlib"), sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    | set(site.getsitepackages())
)
