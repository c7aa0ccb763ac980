"""What is known of the site beforehand."""

from __future__ import annotations

import subprocess
import sys

from example_app.news import ALL_PAGES, ARTICLES, BROKEN_LINKS, DUPLICATE_SPELLINGS, REDIRECTS, ROBOTS_REFUSED
from example_app.news.edition import SECTIONS, TAGS


def test_every_page_is_named_once() -> None:
    """The list that a crawl is checked against names about 300 pages, each once, and no obstacle."""
    assert 280 <= len(ALL_PAGES) <= 330
    assert len(ALL_PAGES) == len(set(ALL_PAGES))
    assert not {*BROKEN_LINKS, *REDIRECTS, *DUPLICATE_SPELLINGS, ROBOTS_REFUSED} & set(ALL_PAGES)
    assert {*REDIRECTS.values(), *DUPLICATE_SPELLINGS.values()} <= set(ALL_PAGES)


def test_titles_and_addresses_are_unique() -> None:
    """No two articles of a section share a headline or an address."""
    assert len({(a.section, a.title) for a in ARTICLES}) == len(ARTICLES) == 240
    assert len({a.path for a in ARTICLES}) == len(ARTICLES)


def test_sections_are_paged_without_gap_or_overlap() -> None:
    """The pages of a section's list hold each of its articles once, newest first."""
    for section in SECTIONS.values():
        listed = [a for n in range(1, section.page_count + 1) for a in section.on_page(n)]
        assert listed == sorted(section.articles, key=lambda a: a.published, reverse=True)
        assert section.on_page(section.page_count + 1) == ()


def test_tags_hold_all_listed_articles_that_wear_them() -> None:
    """A tag's page has every article with the tag but the unlisted one."""
    for tag, articles in TAGS.items():
        assert {a.path for a in articles} == {a.path for a in ARTICLES if tag in a.tags and a.listed}


def test_another_process_writes_the_same_edition() -> None:
    """The edition does not depend on the process, its hash seed or its clock."""
    code = (
        "import hashlib; from example_app.news import ARTICLES;"
        "print(hashlib.sha256(repr(ARTICLES).encode()).hexdigest())"
    )
    digests = {
        subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            check=True,
            env={"PYTHONHASHSEED": seed},
        ).stdout
        for seed in ("1", "2")
    }
    assert len(digests) == 1
