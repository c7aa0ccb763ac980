"""Text of a page without a parser: what stands in for the extractor when it gives up.

Linear in the page's length whatever the page holds. A tree is not an alternative here: one tag with
100,000 attributes takes lexbor 25 s and trafilatura 49 s, a million nested ``<div>`` longer still.
"""

from __future__ import annotations

import re
from html import unescape

#: More of a page than this is not looked at.
MAX_CHARS = 1024 * 1024
#: A tag with more attributes than this is an attack; the quadratic parsers are still quick there.
MAX_ATTRIBUTES = 2_000
#: Tags opened and never closed; lexbor takes 0.6 s for 20,000 nested ``<div>`` and 9 s for 50,000.
MAX_UNCLOSED = 20_000

# ``[^<>]`` keeps each match inside one tag, so that the scan never goes back over what it has read.
_TAG = re.compile(r"<(?:(/?)([a-zA-Z][a-zA-Z0-9]*)[^<>]*|!--|[!?/][^<>]*)>?")
_LONG = 10_000  #: characters without ``>``: a tag of so many may hold an attack
_LONG_TAG = re.compile(r"<[a-zA-Z][^<>]{9000,}")
_QUOTED = re.compile(r"\"[^\"]*\"|'[^']*'")
_SILENT = frozenset(
    {"script", "style", "noscript", "template", "title", "svg", "iframe", "object", "textarea"}
)
#: Elements that do not end a line.
_INLINE_NAMES = (
    "a abbr b bdi bdo cite code data dfn em font i kbd mark q s samp small span strong sub sup time u var wbr"
)
_INLINE = frozenset(_INLINE_NAMES.split())


def wild_markup(html: str) -> str | None:
    """Say what in this page would hold a parser for seconds, or ``None``. Costs some 10 µs per 40 KB."""
    if not looks_wild(html):
        return None
    for tag in _LONG_TAG.finditer(html):
        if len(_QUOTED.sub("", tag.group()).split(None, MAX_ATTRIBUTES + 1)) > MAX_ATTRIBUTES:
            return "attributes"
    return "nesting" if _unclosed(html) > MAX_UNCLOSED else None


def looks_wild(html: str | bytes) -> bool:
    """Tell cheaply whether :func:`wild_markup` may have something to say; bytes are read as ASCII is."""
    close = ">" if isinstance(html, str) else b">"
    at, end = 0, len(html)
    while end - at > _LONG:
        # The last ``>`` of a window: most pages are crossed in a few steps.
        found = html.rfind(close, at, at + _LONG)  # type: ignore[arg-type]  # str with str, bytes with bytes
        if found < 0:
            return True
        at = found + 1
    return end > 3 * MAX_UNCLOSED and _unclosed(html) > MAX_UNCLOSED


def _unclosed(html: str | bytes) -> int:
    """Return how many more tags are opened than closed, roughly: nesting cannot be deeper."""
    if isinstance(html, str):
        return html.count("<") - 2 * html.count("</")
    return html.count(b"<") - 2 * html.count(b"</")


def title_of(html: str) -> str | None:
    """Return the text of ``<title>``, or ``None``."""
    start = re.search(r"<title\b[^<>]*>", html[:MAX_CHARS], re.IGNORECASE)
    if start is None:
        return None
    end = html.find("<", start.end())
    text = unescape(html[start.end() : end if end >= 0 else start.end() + 500])
    return " ".join(text.split())[:500] or None


def plain_text(html: str) -> str | None:
    """Return the page's visible text, a line a block; ``None`` if there is none.

    Scripts, styles and the title are left out; navigation is not told from content.
    """
    if len(html) > MAX_CHARS:
        html = html[:MAX_CHARS]
        if (cut_tag := html.rfind("<")) > html.rfind(">"):
            html = html[:cut_tag]
    parts: list[str] = []
    position, skipping = 0, ""
    comments_end = True  # once one has no end, none behind it has: do not look again and again
    for tag in _TAG.finditer(html):
        start = tag.start()
        if start < position:  # inside a comment that has been left out
            continue
        if not skipping:
            parts.append(html[position:start])
        position = tag.end()
        name = (tag.group(2) or "").lower()
        if skipping:
            if tag.group(1) and name == skipping:
                skipping = ""
        elif comments_end and tag.group().startswith("<!--"):
            end = html.find("-->", position)
            comments_end = end >= 0
            position = end + 3 if comments_end else position
        elif name in _SILENT and not tag.group(1) and not tag.group().endswith("/>"):
            skipping = name
        elif name not in _INLINE:
            parts.append("\n")
    if not skipping:
        parts.append(html[position:])
    lines = (" ".join(line.split()) for line in unescape("".join(parts)).split("\n"))
    return "\n".join(line for line in lines if line) or None
