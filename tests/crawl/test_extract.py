"""The extraction child and its parent's side: nothing that a page does loses a page."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import psutil
import pytest

from flask_spiderpool.crawl.extract import META_KEYS, Extractor, extract_inline
from flask_spiderpool.crawl.extract_child import extract_document, storable
from flask_spiderpool.crawl.plain_text import MAX_CHARS, plain_text, title_of, wild_markup
from flask_spiderpool.errors import Unavailable

BODY = "Some words of an article of good length stand here. " * 25
ARTICLE = f"""<html lang="en-GB"><head><title>A title</title><meta name="author" content="Ada Writer">
<meta name="description" content="What it is"><meta property="article:published_time" content="2024-05-06T07:08:09Z">
<meta property="og:site_name" content="The Paper"><meta name="keywords" content="one, two"></head>
<body><nav>Menu</nav><article><h1>A title</h1><p>{BODY}<strong>bold</strong> words.</p></article></body></html>"""

#: Holds trafilatura for a minute and passes the quick look for such tags, since its quotes hold angles.
SLOW = "<html><body><p " + " ".join(f"a{n}='>'" for n in range(60_000)) + ">hello</p></body></html>"


@pytest.fixture
def extractor() -> Iterator[Extractor]:
    made = Extractor()
    yield made
    made.close()


def gone(pid: int, within_s: float = 10.0) -> bool:
    """Wait for a process of any parent to end; a zombie has not been reaped and is not gone."""
    try:
        psutil.Process(pid).wait(within_s)
    except psutil.NoSuchProcess:
        return True
    except psutil.TimeoutExpired:
        return False
    return True


def extraction_children() -> list[int]:
    """Return the extraction children of this process."""
    found = []
    for child in psutil.Process().children():
        with contextlib.suppress(psutil.NoSuchProcess):
            if any("extract_child" in part for part in child.cmdline()):
                found.append(child.pid)
    return found


def test_text_markdown_and_metadata(extractor: Extractor) -> None:
    """One call gives plain text, Markdown and what the page says of itself."""
    found = extractor.extract(ARTICLE, "https://a.example/x?a=1&section=2")
    assert found.title == "A title"
    assert found.text is not None
    assert found.markdown is not None
    assert "bold words." in found.text
    assert "**bold** words." in found.markdown
    assert "Menu" not in found.text
    assert found.meta == {
        "author": "Ada Writer",
        "published": "2024-05-06",
        "language": "en-GB",
        "description": "What it is",
        "sitename": "The Paper",
        "tags": ["one", "two"],
        "extraction": "trafilatura",
    }


def test_nothing_is_started_before_the_first_page(extractor: Extractor) -> None:
    """A crawl of links only never has a child."""
    assert extractor.child_pid is None
    assert extractor._thread is None
    assert extraction_children() == []


def test_the_child_imports_nothing_of_the_pool() -> None:
    """The child's file run by path loads neither Flask nor this package."""
    from flask_spiderpool.crawl import extract_child

    program = (
        f"import runpy, sys; m = runpy.run_path({extract_child.__file__!r});"
        "m['extract_document']('<html><p>x</p><p>y</p></html>', None);"
        "print([n for n in sys.modules if n.partition('.')[0] in ('flask', 'flask_spiderpool', 'sqlalchemy')])"
    )
    assert subprocess.check_output([sys.executable, "-I", "-c", program], text=True).strip() == "[]"


def test_answers_belong_to_their_pages(extractor: Extractor) -> None:
    """Pages handed in from many threads each get their own text."""
    found: dict[int, str | None] = {}

    def work(n: int) -> None:
        found[n] = extractor.extract(ARTICLE.replace("bold", f"number{n}")).text

    threads = [threading.Thread(target=work, args=(n,)) for n in range(24)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(f"number{n} words." in (found[n] or "") for n in range(24))


def test_from_an_event_loop(extractor: Extractor) -> None:
    """aextract answers many at once, and a cancelled call disturbs none of the others."""

    async def work() -> list[Any]:
        calls = [asyncio.create_task(extractor.aextract(ARTICLE)) for _ in range(12)]
        await asyncio.sleep(0)
        calls[7].cancel()
        return await asyncio.gather(*calls, return_exceptions=True)

    answers = asyncio.run(work())
    assert isinstance(answers.pop(7), asyncio.CancelledError)
    assert all(answer.title == "A title" for answer in answers)


def test_a_page_that_takes_too_long_falls_back() -> None:
    """It gets plain text and says so; the pages behind it are extracted by a new child; the old one is gone."""
    extractor = Extractor(timeout_s=0.5)
    try:
        extractor.extract(ARTICLE)
        first = extractor.child_pid
        assert first is not None
        slow, behind = extractor.submit(SLOW, "https://a.example/"), extractor.submit(ARTICLE)
        assert slow.result().meta["extraction"] == "fallback:timeout"
        assert "hello" in (slow.result().text or "")
        assert behind.result().meta["extraction"] == "trafilatura"
        assert extractor.child_pid != first
        assert gone(first)
    finally:
        extractor.close()


def test_a_killed_child_costs_at_most_the_page_it_was_at(extractor: Extractor) -> None:
    """After kill -9 of the child, every page is answered and at most one by the fallback."""
    extractor.extract(ARTICLE)
    pid = extractor.child_pid
    assert pid is not None
    waiting = [extractor.submit(ARTICLE) for _ in range(20)]
    os.kill(pid, signal.SIGKILL)
    ways = [future.result().meta["extraction"] for future in waiting]
    assert ways.count("trafilatura") >= 19
    assert set(ways) <= {"trafilatura", "fallback:crashed"}


def test_the_child_is_replaced_after_its_pages() -> None:
    """With recycle_after 3, ten pages take several children, and none is answered by the fallback."""
    extractor = Extractor(recycle_after=3)
    try:
        pids = set()
        for _ in range(10):
            assert extractor.extract(ARTICLE).meta["extraction"] == "trafilatura"
            pids.add(extractor.child_pid)
        assert len(pids - {None}) >= 3
    finally:
        extractor.close()


def test_memory_is_limited() -> None:
    """A page that needs more memory than the child may have is answered, and so is the next."""
    extractor = Extractor(memory_limit_bytes=200 * 1024 * 1024)
    try:
        huge = extractor.extract("<html><body>" + "<p>word <b>word</b></p>" * 200_000 + "</body></html>")
        assert huge.meta["extraction"].startswith("fallback:")
        assert huge.text is not None
        assert extractor.extract(ARTICLE).meta["extraction"] == "trafilatura"
    finally:
        extractor.close()


def test_an_idle_child_is_ended() -> None:
    """A child without work for idle_s is ended; the next page starts another."""
    extractor = Extractor(idle_s=0.0)
    try:
        for _ in range(2):
            assert extractor.extract(ARTICLE).title == "A title"
            assert all(gone(pid) for pid in extraction_children())
    finally:
        extractor.close()


def test_a_child_that_cannot_start_costs_no_page(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a working interpreter pages get plain text at once; the next start is tried when its time has come."""
    now = [100.0]
    extractor = Extractor(clock=lambda: now[0])
    real = sys.executable
    try:
        monkeypatch.setattr(sys, "executable", "/nonexistent/python")
        assert extractor.extract(ARTICLE).meta["extraction"] == "fallback:unavailable"
        monkeypatch.setattr(sys, "executable", real)
        assert extractor.extract(ARTICLE).meta["extraction"] == "fallback:unavailable"
        now[0] += 2.0
        assert extractor.extract(ARTICLE).meta["extraction"] == "trafilatura"
    finally:
        extractor.close()


def test_close_ends_child_and_thread() -> None:
    """After close there is no child, no zombie, no thread; pages are refused; closing again is harmless."""
    extractor = Extractor()
    extractor.extract(ARTICLE)
    pid, thread = extractor.child_pid, extractor._thread
    assert pid is not None
    assert thread is not None
    extractor.close()
    assert not psutil.pid_exists(pid)
    assert not thread.is_alive()
    with pytest.raises(Unavailable):
        extractor.extract(ARTICLE)
    extractor.close()


def test_close_answers_what_still_waits() -> None:
    """Pages under way when the extractor is closed raise Unavailable instead of hanging."""
    extractor = Extractor()
    futures = [extractor.submit(SLOW), extractor.submit(ARTICLE)]
    extractor.close()
    for future in futures:
        with pytest.raises(Unavailable):
            future.result(timeout=10)


PARENT = """
import sys, time
from flask_spiderpool.crawl.extract import Extractor
extractor = Extractor(timeout_s=600)
extractor.extract("<html><p>x</p><p>y</p></html>")
if sys.argv[1] == "busy":
    extractor.submit({slow})
    while not extractor._flight or extractor._child.wants_write:
        time.sleep(0.01)
print(extractor.child_pid, flush=True)
if sys.argv[1] != "exit":
    sys.stdin.read()
"""


@pytest.mark.parametrize("way", ["idle", "busy", "exit"])
def test_the_child_dies_with_its_parent(way: str) -> None:
    """After kill -9 of the parent, idle or in the middle of a page, or its plain end, the child is gone."""
    program = PARENT.replace(
        "{slow}", "'<p ' + ' '.join(f\"a{n}='>'\" for n in range(300000)) + '>hello</p>'"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", program, way], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert parent.stdout is not None
    assert parent.stdin is not None
    try:
        child = int(parent.stdout.readline())
        if way != "exit":
            parent.kill()
        parent.wait(30)
        assert gone(child)
    finally:
        with contextlib.suppress(OSError):
            parent.kill()
        parent.wait()
        parent.stdin.close()
        parent.stdout.close()


def test_a_fork_has_a_child_of_its_own(extractor: Extractor) -> None:
    """A forked process extracts by itself and leaves its parent's child alone."""
    extractor.extract(ARTICLE)
    parents_child = extractor.child_pid
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        with contextlib.suppress(BaseException):
            title = extractor.extract(ARTICLE).title
            own = extractor.child_pid
            extractor.close()
            os.write(write, f"{title}|{own != parents_child}".encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        assert pipe.read() == b"A title|True"
    os.waitpid(pid, 0)
    assert extractor.extract(ARTICLE).title == "A title"
    assert extractor.child_pid == parents_child


@pytest.mark.parametrize(
    ("html", "text", "way"),
    [
        ("<div>" * 20_000 + "deep text", "deep text", "fallback:nothing"),
        ("<dl><dd>" * 5_000 + "deep text", "deep text", "fallback:nothing"),
        ("<p " + " ".join(f"a{n}=1" for n in range(100_000)) + ">many", "many", "fallback:attributes"),
        ("", None, "fallback:nothing"),
        ("<script>var a = 1</script>", None, "fallback:nothing"),
    ],
)
def test_hostile_and_empty_pages(extractor: Extractor, html: str, text: str | None, way: str) -> None:
    """Deep nesting, a tag of 100,000 attributes and empty pages keep what text there is, flagged."""
    found = extractor.extract(f"<html><body>{html}</body></html>")
    assert (found.text, found.meta["extraction"]) == (text, way)
    assert set(found.meta) == set(META_KEYS)


def test_nul_and_surrogates_never_break_the_pipe(extractor: Extractor) -> None:
    """Characters that cannot be stored are replaced on the way in, also in the URL."""
    found = extractor.extract(
        f"<html><article><p>{BODY} a\x00b\ud800c</p></article></html>", "http://a.example/\ud800"
    )
    assert found.text is not None
    assert found.text.endswith("a\ufffdb\ufffdc")
    assert storable("plain") == "plain"


def test_too_long_a_page_is_not_given_to_the_child() -> None:
    """A page beyond the limit gets plain text without a child being started."""
    extractor = Extractor(max_html_chars=1000)
    try:
        assert extractor.extract(ARTICLE).meta["extraction"] == "fallback:too_large"
        assert extractor.child_pid is None
    finally:
        extractor.close()


@pytest.mark.parametrize(
    ("body", "published"),
    [
        (f'<article><time datetime="2019-06-07">7 June 2019</time><p>{BODY}</p></article>', "2019-06-07"),
        (f"<article><span class=date>4 March 2021</span><p>{BODY}</p></article>", "2021-03-04"),
        (f"<article><p>{BODY} Call 2021-13-77 or 0123-456-2022.</p></article>", None),
        (f"<article><p>{BODY}</p></article><footer>&copy; 1999-2021 Example</footer>", None),
        (f"<article><p>{BODY} Born on 1999-03-04 in a small town, she {BODY}</p></article>", None),
        (f"<article><p>{BODY} Born on 04.03.1999 in a small town, she {BODY}</p></article>", None),
        (f"<article><p>{BODY}</p></article><script>var c = {{'expires': '2099-01-31'}}</script>", None),
    ],
)
def test_dates_are_not_invented(body: str, published: str | None) -> None:
    """A date that the page states is taken; numbers, copyright lines, prose and the future are no date."""
    document = extract_document(
        f"<html><head><title>T</title></head><body>{body}</body></html>", "https://a.example/x"
    )
    assert document["meta"]["published"] == published


def test_inline_extraction_gives_the_same(extractor: Extractor) -> None:
    """Extraction in this process, for trying spiders out, agrees with the child's."""
    assert extract_inline(ARTICLE, "https://a.example/") == extractor.extract(ARTICLE, "https://a.example/")


def test_plain_text_of_tags() -> None:
    """Blocks become lines, scripts and comments are left out, entities are read."""
    html = (
        "<title>T &amp; U</title><body><p>one <b>two</b>&nbsp;&lt;x&gt;<p>three<!-- no > --><script>no<p>no</script>"
        "<style>no</style><div>four</div>five"
    )
    assert plain_text(html) == "one two <x>\nthree\nfour\nfive"
    assert title_of(html) == "T & U"
    assert plain_text("<p></p>") is None


@pytest.mark.parametrize("piece", ["<", "<!--", "<a", "<script>", "&", '<p a="', "<title"])
def test_plain_text_is_linear(piece: str) -> None:
    """Ten times the page takes about ten times as long, whatever is repeated; a quadratic scan takes a hundred."""
    import time

    def cost_s(n: int) -> float:
        html = piece * (n // len(piece))
        begun = time.thread_time()
        plain_text(html)
        title_of(html)
        wild_markup(html)
        return time.thread_time() - begun

    cost_s(1000)
    assert cost_s(MAX_CHARS // 2) < 50 * max(cost_s(MAX_CHARS // 20), 0.002)
