"""Spiders: reusable crawler definitions, and the registry of one app."""

from __future__ import annotations

import difflib
import re
import sys
import types
from collections.abc import Callable, Iterable, Iterator
from typing import Any, ClassVar, TypeVar

from flask_spiderpool.crawl.option_checks import Wrong, text
from flask_spiderpool.crawl.options import OPTION_NAMES, SpiderOptions
from flask_spiderpool.crawl.page import Page
from flask_spiderpool.crawl.wanted import Request as Request
from flask_spiderpool.errors import InvalidParameter, SetupError, SpiderLoadError, UnknownSpider

F = TypeVar("F", bound=Callable[..., Any])

ParseFunction = Callable[[Page], Any]

_NAME = r"[A-Za-z0-9][A-Za-z0-9._-]*"
_MAX_NAME_CHARS = 100


class Spider:
    """A crawler definition. Subclass it, name it, give it options as class attributes, write ``parse``.

    ::

        class Quotes(Spider):
            name = "quotes"
            start_urls = ["https://quotes.example/"]
            max_depth = 3

            def parse(self, page):
                for quote in page.css("div.quote"):
                    yield {"text": quote.css("span.text::text").get()}
                yield from page.follow("li.next a")
                yield from page.follow("a.author", callback=self.parse_author)

            def parse_author(self, page): ...

    ``parse`` and other callbacks may return or yield items and :class:`Request`, return a list of them, or nothing;
    they may be ``async``. One instance serves all tasks and threads of a process, and the next page may be
    another process's: keep nothing of a crawl on ``self``, give it on in ``Request(meta=...)``.

    Without ``parse`` it is an article spider: it follows every link in scope and keeps text, Markdown and metadata.
    """

    name: ClassVar[str] = ""
    kind: ClassVar[str] = "python"  #: chooses the runner

    options: SpiderOptions

    def __init__(self, name: str | None = None, **options: Any) -> None:
        self.name = _checked_name(name or type(self).name, type(self))  # type: ignore[misc]
        declared = {key: getattr(type(self), key) for key in OPTION_NAMES if hasattr(type(self), key)}
        try:
            self.options = SpiderOptions.parse(**{**declared, **options})
        except InvalidParameter as error:
            raise SetupError(f"spider {self.name!r}: {error}") from None

    def parse(self, page: Page) -> Any:
        """Take what is wanted from a page: yield items and requests."""
        raise NotImplementedError

    def start_requests(self) -> Iterable[Request]:
        """Return what a task begins with, when its start names no URLs itself. Runs once a task."""
        return [Request(url) for url in self.options.start_urls]

    @property
    def has_parse(self) -> bool:
        """Whether pages are given to code of the spider's own."""
        return type(self).parse is not Spider.parse

    def callback(self, name: str | None) -> ParseFunction:
        """Return the callback of that name; ``None`` is ``parse``.

        Raises :class:`~flask_spiderpool.errors.SpiderLoadError` if there is none: the code has changed since the
        request was stored, or the callback is no method of the spider.
        """
        if name is None or name == "parse":
            if self.has_parse:
                return self.parse
            raise SpiderLoadError(f"spider {self.name!r} has no parse")
        found = self._named_callback(name)
        if found is None:
            raise SpiderLoadError(f"spider {self.name!r} has no callback {name!r}; {self._callback_remedy()}")
        return found

    def _named_callback(self, name: str) -> ParseFunction | None:
        # Only what the spider's author wrote: neither this class's own methods nor anything dunder.
        if name.startswith("__") or hasattr(Spider, name):
            return None
        found = getattr(self, name, None)
        return found if callable(found) else None

    def _callback_remedy(self) -> str:
        return "a callback must be a method of the spider"

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r}>"


class FunctionSpider(Spider):
    """A spider made from one function; what ``@pool.spider("name", ...)`` registers.

    Further callbacks are functions at the top level of the same module.
    """

    def __init__(self, name: str, parse: ParseFunction, **options: Any) -> None:
        if not callable(parse):
            raise SetupError(f'spider {name!r}: write @pool.spider("{name}") above a function')
        self._parse = parse
        if not options.get("description") and (doc := getattr(parse, "__doc__", None)):
            options["description"] = " ".join(doc.strip().partition("\n\n")[0].split())[:2000]
        super().__init__(name, **options)

    def parse(self, page: Page) -> Any:
        """Call the function."""
        return self._parse(page)

    @property
    def has_parse(self) -> bool:
        """A function spider always has one."""
        return True

    def callback(self, name: str | None) -> ParseFunction:
        """Return the function itself for ``None`` and its own name, else one of its module."""
        if name in (None, "parse", getattr(self._parse, "__name__", None)):
            return self._parse
        return super().callback(name)

    def _named_callback(self, name: str) -> ParseFunction | None:
        module = sys.modules.get(getattr(self._parse, "__module__", ""))
        found = getattr(module, name, None)
        # A name that the module merely imported is not meant to be called with a page.
        if isinstance(found, types.FunctionType) and found.__module__ == self._parse.__module__:
            return found
        return None

    def _callback_remedy(self) -> str:
        return f"a callback must be a function at the top level of {self._parse.__module__}"


class ArticleSpider(Spider):
    """The built-in ``article`` spider: follows every link in scope, keeps text, Markdown and metadata."""

    name = "article"
    description = "Text, Markdown and metadata of every page in scope."


class SpiderRegistry:
    """The spiders of one app, by name. ``article`` is always there."""

    def __init__(self) -> None:
        self._spiders: dict[str, Spider] = {}
        self.add(ArticleSpider)

    def add(self, spider: Spider | type[Spider]) -> Spider:
        """Register a spider, or a class of which an instance is made; returns the instance.

        Raises :class:`~flask_spiderpool.errors.SetupError` for a name that is taken or options that are wrong.
        """
        if isinstance(spider, type):
            spider = spider()
        known = self._spiders.get(spider.name)
        if known is not None and known is not spider:
            raise SetupError(
                f"there is a spider {spider.name!r} already ({_place(known)}); give {_place(spider)} another name"
            )
        self._spiders[spider.name] = spider
        return spider

    def spider(self, name: str, **options: Any) -> Callable[[F], F]:
        """Decorate a function to register it as the ``parse`` of a spider called ``name``."""

        def register(parse: F) -> F:
            self.add(FunctionSpider(name, parse, **options))
            return parse

        return register

    def get(self, name: str) -> Spider:
        """Return a spider; raises :class:`~flask_spiderpool.errors.UnknownSpider`, with the nearest name."""
        try:
            return self._spiders[name]
        except (KeyError, TypeError):
            near = difflib.get_close_matches(str(name), self._spiders, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(self.names())}"
            raise UnknownSpider(f"there is no spider {str(name)[:100]!r}; {hint}") from None

    def names(self) -> list[str]:
        """Return all names, sorted."""
        return sorted(self._spiders)

    def __iter__(self) -> Iterator[Spider]:
        return iter([self._spiders[name] for name in self.names()])

    def __len__(self) -> int:
        return len(self._spiders)

    def __contains__(self, name: object) -> bool:
        return name in self._spiders


def _checked_name(name: str, kind: type[Spider]) -> str:
    if not name:
        raise SetupError(f'{kind.__name__} has no name; write name = "..." in the class')
    try:
        text(_MAX_NAME_CHARS, _NAME)(name)
    except Wrong:
        raise SetupError(
            f"{name!r:.120} is no name for a spider: letters, digits, . _ - are allowed,"
            f" at most {_MAX_NAME_CHARS}"
        ) from None
    return name


def _place(spider: Spider) -> str:
    """Return where a spider was written, for a person."""
    written: Any = getattr(spider, "_parse", None) or type(spider)
    return re.sub(r"\.?<locals>\.?", ".", f"{written.__module__}.{written.__qualname__}")
