"""The page as a spider's ``parse`` sees it."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from typing import Any, Protocol
from uuid import UUID

from parsel import Selector, SelectorList

from flask_spiderpool.crawl.encoding import decode
from flask_spiderpool.crawl.extract import Extracted, extract_inline
from flask_spiderpool.crawl.links import extract_links
from flask_spiderpool.crawl.response import Response
from flask_spiderpool.crawl.scope import Scope
from flask_spiderpool.crawl.urls import join
from flask_spiderpool.crawl.wanted import Callback, Request
from flask_spiderpool.errors import FetchError

MAX_LOG_LINES = 1_000
MAX_LOG_CHARS = 2_000

Target = str | Selector | SelectorList[Selector] | Iterable["str | Selector"]


class Extracting(Protocol):
    """Whatever extracts a page; :class:`~flask_spiderpool.crawl.extract.Extractor` in a worker."""

    def extract(self, html: str, url: str = "") -> Extracted:
        """Extract and wait."""
        ...


class Page:
    """A fetched page. Everything is worked out when first asked for, and kept.

    :param extractor: what ``text``, ``markdown`` and ``metadata`` use. Without one, as in a test of your own, they
        extract in this process.
    :param extracted: what has been extracted of this page already.
    :param scope: what ``links`` keeps to; without one it returns all.
    """

    def __init__(
        self,
        response: Response,
        *,
        depth: int = 0,
        payload: Mapping[str, Any] | None = None,
        task_id: UUID | None = None,
        extractor: Extracting | None = None,
        extracted: Extracted | None = None,
        scope: Scope | None = None,
    ) -> None:
        payload = payload or {}
        self.url = response.final_url  #: where it was found, after redirects
        self.request_url = response.url  #: what was asked for
        self.status = response.status
        self.headers = response.headers  #: case does not matter in names
        self.body = response.body  #: bytes, unpacked
        self.content_type = response.content_type
        self.depth = depth  #: links from a start URL
        self.meta: dict[str, Any] = dict(payload.get("meta") or {})  #: what the request carried
        self.task_id = task_id
        self.logs: list[tuple[str, str]] = []
        self._extractor = extractor
        self._scope = scope
        self._given = extracted

    @classmethod
    def of(
        cls,
        url: str,
        body: bytes | str,
        *,
        status: int = 200,
        headers: Mapping[str, str] | None = None,
        meta: Mapping[str, Any] | None = None,
    ) -> Page:
        """Make a page from what is given, to try a spider without a network."""
        import httpx

        data = body.encode() if isinstance(body, str) else body
        fields = httpx.Headers(dict(headers or {}))
        if isinstance(body, str):
            fields.setdefault("content-type", "text/html; charset=utf-8")
        response = Response(
            url=url,
            final_url=url,
            status=status,
            headers=fields,
            body=data,
            wire_bytes=len(data),
            elapsed_ms=0,
        )
        return cls(response, payload={"meta": dict(meta or {})})

    # -- what it says -------------------------------------------------------------------------------------

    @cached_property
    def _decoded(self) -> tuple[str, str]:
        return decode(self.body, self.content_type)

    @property
    def html(self) -> str:
        """The body as text, decoded by BOM, header or meta."""
        return self._decoded[0]

    @property
    def encoding(self) -> str:
        """The encoding by which ``html`` was decoded."""
        return self._decoded[1]

    @cached_property
    def selector(self) -> Selector:
        """The parsed page (parsel)."""
        media_type = self.content_type.partition(";")[0].strip().lower()
        is_xml = media_type.endswith(("/xml", "+xml")) and media_type != "application/xhtml+xml"
        return Selector(text=self.html, type="xml" if is_xml else "html")

    def css(self, query: str) -> SelectorList[Selector]:
        """Select by CSS, with parsel's ``::text`` and ``::attr(name)``."""
        return self.selector.css(query)

    def xpath(self, query: str, **variables: Any) -> SelectorList[Selector]:
        """Select by XPath 1.0."""
        return self.selector.xpath(query, **variables)

    def json(self) -> Any:
        """Return the body as JSON; raises ``ValueError`` if it is none."""
        # The standard knows UTF-8, -16 and -32 only (RFC 8259), and json tells these apart itself.
        return json.loads(self.body)

    @cached_property
    def _extracted(self) -> Extracted:
        if self._given is not None:
            return self._given
        if self._extractor is None:
            return extract_inline(self.html, self.url)
        return self._extractor.extract(self.html, self.url)

    def text(self) -> str | None:
        """Return the main text, without navigation and comments; ``None`` if there is none."""
        return self._extracted.text

    def markdown(self) -> str | None:
        """Return the main text as Markdown; ``None`` if there is none."""
        return self._extracted.markdown

    def metadata(self) -> dict[str, Any]:
        """Return ``title, author, published, language, description, sitename, tags, extraction``."""
        return {"title": self._extracted.title, **self._extracted.meta}

    # -- where it leads -----------------------------------------------------------------------------------

    @cached_property
    def base_url(self) -> str:
        """What relative links of this page are relative to: its ``<base>``, if usable, or its URL."""
        for href in self.selector.xpath("//base/@href").getall():
            try:
                return join(self.url, href)
            except FetchError:
                continue
        return self.url

    def links(self) -> list[str]:
        """Return the links of the page that are in scope, each once, in their order."""
        found = extract_links(self.html, self.url).links
        if self._scope is None:
            return [link.url for link in found]
        return [link.url for link in found if self._scope.admit(link.url, self.depth + 1) is None]

    def follow(
        self,
        target: Target,
        callback: Callback | None = None,
        *,
        meta: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        priority: int = 0,
    ) -> Iterator[Request]:
        """Return a request for each link that ``target`` means, each URL once; a bad href is skipped.

        ``target`` is a CSS selector (``"li.next a"``), something selected (``page.css("a.next")``,
        ``page.xpath("//a/@href")``), or a list of such and of hrefs. A selected element without ``href`` stands for the links
        inside it. For one URL use :meth:`follow_url`.
        """
        if isinstance(target, str):
            target = self._select(target)
        seen: set[str] = set()
        requests = []
        for href in _hrefs(target):
            try:
                url = join(self.base_url, href)
            except FetchError as error:
                self.log("DEBUG", f"skipped a link: {error}")
                continue
            if url not in seen:
                seen.add(url)
                requests.append(Request(url, callback, meta, headers, priority))
        return iter(requests)

    def follow_url(
        self,
        url: str,
        callback: Callback | None = None,
        *,
        meta: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        priority: int = 0,
    ) -> Request:
        """Return a request for one URL, which may be relative; raises ``ValueError`` if it is none."""
        try:
            return Request(join(self.base_url, url), callback, meta, headers, priority)
        except FetchError as error:
            raise ValueError(str(error)) from None

    def _select(self, query: str) -> SelectorList[Selector]:
        if "://" in query.partition("[")[0] or query.startswith(("/", "?", "./", "../")):
            raise ValueError(f"follow({query!r}): this is a URL, not a CSS selector; use page.follow_url()")
        return self.css(query)

    # -- what is said of it -------------------------------------------------------------------------------

    def log(self, level: str | int, message: object) -> None:
        """Add a line to the task's log; at most 1,000 a page."""
        name = logging.getLevelName(level) if isinstance(level, int) else str(level).upper()
        if len(self.logs) < MAX_LOG_LINES:
            self.logs.append((name, str(message)[:MAX_LOG_CHARS]))

    def __repr__(self) -> str:
        return f"<Page {self.status} {self.url}>"


def _hrefs(target: Any) -> Iterator[str]:
    """Yield the hrefs that a target means, in their order."""
    if isinstance(target, str):
        yield target
    elif isinstance(target, Selector):
        yield from _selected_hrefs(target)
    elif isinstance(target, Iterable) and not isinstance(target, bytes | Mapping):
        for part in target:
            yield from _hrefs(part)
    else:
        raise TypeError(
            f"cannot follow a {type(target).__name__}; give a CSS selector, something selected or a list"
        )


def _selected_hrefs(selected: Selector) -> Iterator[str]:
    root = selected.root
    if isinstance(root, str):  # an attribute or a text: a::attr(href)
        yield root
        return
    own = selected.attrib.get("href")
    if own is not None:
        yield own
        return
    yield from selected.xpath(".//a/@href | .//area/@href").getall()
