"""The extraction child: a program of its own that turns HTML into text, Markdown and metadata.

It is started **by path** (``python -I extract_child.py``), not with ``-m``: so it imports trafilatura and
nothing of the pool, of Flask or of the host. It reads requests from stdin and writes answers to stdout,
strictly in order. It ends when stdin ends, when its parent dies (Linux), when a page takes far too long
(``SIGALRM``), or by itself when it has grown or worked enough; the parent then starts a new one.

Request frame:  ``id: u64, url bytes: u32, html bytes: u32``, the URL, the HTML (both UTF-8).
Answer frame:   ``id: u64, payload bytes: u32, last: u8``, JSON. ``last`` says: I end now.
The first request (id 0) carries the parent's ``sys.path`` as JSON; its answer says that the child is ready.
"""

from __future__ import annotations

import contextlib
import datetime
import itertools
import json
import logging
import os
import re
import signal
import struct
import sys
from typing import Any, BinaryIO

REQUEST = struct.Struct("!QII")
ANSWER = struct.Struct("!QIB")
HELLO_ID = 0

_PR_SET_PDEATHSIG = 1
_LANG = re.compile(
    r"<html\b[^<>]*?\s(?:xml:)?lang\s*=\s*[\"']?\s*([A-Za-z]{2,8}(?:[-_][A-Za-z0-9]{1,8})*)", re.I
)
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
#: A date that stands in a text run of more than this many characters is prose, not a date line.
_DATE_LINE_CHARS = 80
_DATES_LOOKED_AT = 50


def storable(text: str) -> str:
    """Return the text without NUL and lone surrogates, which neither a pipe nor a database takes."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return _UNSTORABLE.sub("\ufffd", text)
    # Ten times as quick as the pattern on the pages that need nothing, which are nearly all.
    return text.replace("\x00", "\ufffd") if "\x00" in text else text


def language_of(html: str) -> str | None:
    """Return the language that the ``<html>`` tag declares, as ``en`` or ``pt-BR``; ``None`` if none."""
    found = _LANG.search(html, 0, 8192)
    return found.group(1).replace("_", "-") if found else None


def extract_document(html: str, url: str | None) -> dict[str, Any]:
    """Return ``title, text, markdown`` and ``meta`` of a page; ``text`` is ``None`` if nothing was found.

    Costs about 4.5 ms for a 40 KB page, but a page can hold it for a minute in C and take a gigabyte:
    call it in the child only, unless the page is your own. ``url`` is a hint for the date; the document's own
    idea of its URL is not used (trafilatura turns ``&section=`` into ``§ion=``).
    """
    from trafilatura import bare_extraction
    from trafilatura.xml import xmltotxt

    html = storable(html)
    document: Any = bare_extraction(
        html,
        url=url,
        fast=True,
        include_comments=False,
        include_formatting=True,
        with_metadata=True,
        # Without this, htmldate searches the whole text and dates a page by its copyright line or a
        # telephone number (htmldate #28, #163).
        date_extraction_params={
            "original_date": True,
            "extensive_search": False,
            "max_date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        },
    )
    if document is None:
        return {"title": None, "text": None, "markdown": None, "meta": {"language": language_of(html)}}
    markdown = (document.text or "").strip()
    text = xmltotxt(document.body, False).strip() if markdown else ""
    return {
        "title": _line(document.title),
        "text": text or None,
        "markdown": markdown or None,
        "meta": {
            "author": _line(document.author),
            "published": None if _only_in_prose(document.date, html) else document.date,
            "language": language_of(html) or _line(document.language),
            "description": _line(document.description),
            "sitename": _line(document.sitename),
            "tags": _tags(document.tags),
        },
    }


def _line(value: Any) -> str | None:
    """Return a metadata value as one clean line, or ``None``."""
    return (" ".join(str(value).split()) or None) if value else None


def _tags(values: Any) -> list[str]:
    """Return keywords one by one: many pages hold them in a single comma-separated string."""
    parts = [part.strip() for value in values or [] for part in str(value).split(",")]
    return list(dict.fromkeys(part for part in parts if part))


def _only_in_prose(date: str | None, html: str) -> bool:
    """Tell whether the page names the date nowhere but inside running text.

    htmldate's last resort takes any numeric date out of the text: a biography would be published on
    its hero's birthday. A date in an attribute, a script or a short line of its own is kept.
    """
    if not date:
        return False
    year, month, day = date.split("-")
    spelled = re.compile(rf"{date}|{day}\.{month}\.{year}")
    seen = False
    for hit in itertools.islice(spelled.finditer(html), _DATES_LOOKED_AT):
        seen = True
        start, end = html.rfind(">", 0, hit.start()), html.find("<", hit.end())
        in_tag = html.rfind("<", 0, hit.start()) > start
        run = html[start + 1 : end if end >= 0 else len(html)]
        in_script = html.rfind("<script", 0, hit.start()) > html.rfind("</script", 0, hit.start())
        if in_tag or in_script or len(" ".join(run.split())) <= _DATE_LINE_CHARS:
            return False
    return seen


def _read_exactly(stream: BinaryIO, n: int) -> bytes | None:
    """Return ``n`` bytes, or ``None`` when the stream ends before."""
    data = stream.read(n)
    return data if len(data) == n else None


def _answer(stream: BinaryIO, request_id: int, payload: dict[str, Any], *, last: bool) -> None:
    body = json.dumps(payload, ensure_ascii=False).encode("utf-8", "replace")
    stream.write(ANSWER.pack(request_id, len(body), last) + body)
    stream.flush()


def _work(html: bytes, url: str | None) -> tuple[dict[str, Any], bool]:
    """Return the answer for one page and whether the child should end after it."""
    try:
        return extract_document(html.decode("utf-8", "replace"), url), False
    except MemoryError:
        return {"error": "memory"}, True
    except RecursionError:
        return {"error": "nesting"}, False
    except Exception as error:
        # lxml tells of a failed allocation in a parser error of its own.
        short_of_memory = "memory" in str(error).lower()
        return {
            "error": "memory" if short_of_memory else f"{type(error).__name__}: {error}"[:200]
        }, short_of_memory


def _rss_peak_bytes() -> int:
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def _bind_to_parent(parent_pid: int) -> None:
    """Die with the parent. Linux kills us even while C code runs; elsewhere the end of stdin must do.

    The signal comes when the *thread* that started us ends, so the parent starts us from a lasting one.
    """
    if sys.platform == "linux":
        import ctypes

        with contextlib.suppress(OSError):
            ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent_pid:
        sys.exit(0)


def _limit_memory(limit_bytes: int) -> None:
    """Let allocations fail beyond ``limit_bytes`` of address space, where the platform can."""
    import resource

    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_AS, (limit_bytes, limit_bytes))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _hello(stdin: BinaryIO, stdout: BinaryIO) -> bool:
    """Take over the parent's import path, import trafilatura, say ready."""
    header = _read_exactly(stdin, REQUEST.size)
    if header is None:
        return False
    _, n_url, n_html = REQUEST.unpack(header)
    path = _read_exactly(stdin, n_url + n_html)
    if path is None:
        return False
    sys.path.extend(entry for entry in json.loads(path) if entry not in sys.path)
    try:
        import trafilatura
    except Exception as error:
        _answer(stdout, HELLO_ID, {"error": f"{type(error).__name__}: {error}"[:500]}, last=True)
        return False
    logging.disable(logging.CRITICAL)
    _answer(stdout, HELLO_ID, {"ready": trafilatura.__version__}, last=False)
    return True


def main(argv: list[str]) -> int:
    """Serve until stdin ends: ``extract_child.py PARENT_PID MEMORY_BYTES RECYCLE_AFTER ALARM_S``."""
    parent_pid, memory_bytes, recycle_after, alarm_s = (int(argument) for argument in argv)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    _bind_to_parent(parent_pid)
    _limit_memory(memory_bytes)
    # Our own copies: a library that prints must not write into the frames.
    stdin, stdout = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(os.open(os.devnull, os.O_RDWR), 1)
    if not _hello(stdin, stdout):
        return 1
    pages = 0
    while (header := _read_exactly(stdin, REQUEST.size)) is not None:
        request_id, n_url, n_html = REQUEST.unpack(header)
        url, html = _read_exactly(stdin, n_url), _read_exactly(stdin, n_html)
        if url is None or html is None:
            break
        signal.alarm(alarm_s)
        payload, last = _work(html, url.decode("utf-8", "replace") or None)
        signal.alarm(0)
        pages += 1
        last = last or pages >= recycle_after or _rss_peak_bytes() > memory_bytes // 2
        _answer(stdout, request_id, payload, last=last)
        if last:
            break
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
