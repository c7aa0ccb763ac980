"""The whole edition of The Paper Lantern: every article and the address of every page.

Nothing here reads the clock or draws by chance: two processes, and two machines, serve the same bytes.
That is what lets a test, or the demo, say exactly what a crawl must come back with.
"""

from __future__ import annotations

import random
import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from example_app.news.prose import Block, Grammar, load_grammar, write

ROOT = "/news"
SECTION_SLUGS = ("city", "harbour", "science", "culture", "sport", "kitchen")
YEARS = (2025, 2026)
ARTICLES_A_SECTION = 40
ARTICLES_A_PAGE = 10

_FIRST_DAY = datetime(2025, 1, 6, 5, 30, tzinfo=UTC)
_EVERY = timedelta(days=16)


@dataclass(frozen=True, slots=True)
class Article:
    """One article. ``listed`` is false for the one that only its section's last page links to."""

    section: str
    number: int  #: 0 is the oldest of its section
    slug: str
    title: str
    summary: str
    tags: tuple[str, ...]
    body: tuple[Block, ...]
    published: datetime
    updated: datetime
    listed: bool = True

    @property
    def path(self) -> str:
        """Where it stands on the site."""
        return f"{ROOT}/{self.section}/{self.slug}"

    @property
    def picture(self) -> int:
        """What its picture is drawn from; neighbours on a page look different."""
        return self.number + 7 * SECTION_SLUGS.index(self.section)


@dataclass(frozen=True, slots=True)
class Section:
    """One section with its articles, newest first."""

    slug: str
    title: str
    about: str
    articles: tuple[Article, ...]

    @property
    def page_count(self) -> int:
        """How many pages its list has."""
        return -(-len(self.articles) // ARTICLES_A_PAGE)

    def page_path(self, n: int) -> str:
        """Where page ``n`` (from 1) of its list stands."""
        return f"{ROOT}/{self.slug}/" if n == 1 else f"{ROOT}/{self.slug}/page/{n}"

    def on_page(self, n: int) -> tuple[Article, ...]:
        """Return the articles of page ``n`` (from 1); empty behind the last."""
        return self.articles[(n - 1) * ARTICLES_A_PAGE : n * ARTICLES_A_PAGE]


def _slug(title: str, limit: int = 60) -> str:
    plain = unicodedata.normalize("NFKD", title.replace("'", "")).encode("ascii", "ignore").decode()
    words = re.findall(r"[a-z0-9]+", plain.lower())
    slug = ""
    for word in words:
        if len(slug) + len(word) + 1 > limit:
            break
        slug = f"{slug}-{word}" if slug else word
    return slug


def _write_section(index: int, slug: str) -> Section:
    grammar: Grammar = load_grammar(slug)
    titles: set[str] = set()
    slugs: set[str] = set()
    articles: list[Article] = []
    for number in range(ARTICLES_A_SECTION):
        story = grammar.stories[number % len(grammar.stories)]
        # A headline that was used already is drawn again, from a seed of its own.
        for draw in range(1000):
            draft = write(grammar, story, random.Random(f"{slug}/{number}/{draw}"))
            address = _slug(draft.headline)
            if draft.headline not in titles and address not in slugs:
                break
        else:
            raise ValueError(f"the grammar of {slug} has too few headlines for {ARTICLES_A_SECTION} articles")
        titles.add(draft.headline)
        slugs.add(address)
        published = _FIRST_DAY + number * _EVERY + timedelta(days=index * 2, minutes=37 * (number % 20))
        articles.append(
            Article(
                section=slug,
                number=number,
                slug=address,
                title=draft.headline,
                summary=draft.summary,
                tags=draft.tags,
                body=draft.body,
                published=published,
                updated=published + timedelta(hours=6) if number % 9 == 4 else published,
                listed=not (slug == "kitchen" and number == 0),
            )
        )
    return Section(slug, grammar.title, grammar.about, tuple(reversed(articles)))


SECTIONS: dict[str, Section] = {slug: _write_section(i, slug) for i, slug in enumerate(SECTION_SLUGS)}

#: Every article, newest first.
ARTICLES: tuple[Article, ...] = tuple(
    sorted((a for s in SECTIONS.values() for a in s.articles), key=lambda a: a.published, reverse=True)
)

#: Every tag with its articles, newest first. The article that is not listed is in none.
TAGS: dict[str, tuple[Article, ...]] = {
    tag: tuple(a for a in ARTICLES if tag in a.tags and a.listed)
    for tag in sorted({tag for a in ARTICLES for tag in a.tags})
}

#: Pages of the house: address and heading.
HOUSE_PAGES: dict[str, str] = {
    "about": "About this paper",
    "corrections": "Corrections",
    "letters": "Letters to the desk",
}

#: The article that no front page, tag, archive or sitemap names: only the last page of its section does.
PAGINATION_ONLY: str = next(a.path for a in ARTICLES if not a.listed)

#: Addresses that pages link to and that answer 404.
BROKEN_LINKS: tuple[str, ...] = (
    f"{ROOT}/city/map-of-the-old-tram-depot",
    f"{ROOT}/harbour/tide-table-for-a-year-long-gone",
    f"{ROOT}/science/letters-of-the-first-observer",
    f"{ROOT}/culture/programme-of-the-lost-season",
)

#: Old addresses that redirect, and where they lead.
REDIRECTS: dict[str, str] = {f"{ROOT}/letterbox": f"{ROOT}/letters"}

#: An address that pages link to and that robots.txt forbids.
ROBOTS_REFUSED: str = f"{ROOT}/desk/tomorrow"

#: What some articles say at their end: a sentence, the words that are linked, the address.
NOTES: dict[str, tuple[str, str, str]] = {
    SECTIONS["city"].articles[12].path: ("From our archive:", "a map of the old tram depot", BROKEN_LINKS[0]),
    SECTIONS["harbour"].articles[21].path: ("From our archive:", "an old tide table", BROKEN_LINKS[1]),
    SECTIONS["science"].articles[30].path: (
        "From our archive:",
        "the first observer's letters",
        BROKEN_LINKS[2],
    ),
    SECTIONS["culture"].articles[8].path: (
        "From our archive:",
        "the lost season's programme",
        BROKEN_LINKS[3],
    ),
    SECTIONS["sport"].articles[17].path: ("Anything to add? Write to", "our letterbox", f"{ROOT}/letterbox"),
    SECTIONS["kitchen"].articles[5].path: ("For the staff:", "tomorrow's page at the desk", ROBOTS_REFUSED),
}


def archive_path(section: str, year: int, *, other_order: bool = False) -> str:
    """Return an archive address; ``other_order`` spells the same query the other way round."""
    query = f"year={year}&section={section}" if other_order else f"section={section}&year={year}"
    return f"{ROOT}/archive?{query}"


#: Second spellings of addresses that :data:`ALL_PAGES` holds in their first; the site redirects them.
DUPLICATE_SPELLINGS: dict[str, str] = {
    archive_path(slug, year, other_order=True): archive_path(slug, year)
    for slug in SECTION_SLUGS
    for year in YEARS
}


def _paths() -> Iterator[str]:
    yield f"{ROOT}/"
    for name in HOUSE_PAGES:
        yield f"{ROOT}/{name}"
    for section in SECTIONS.values():
        for n in range(1, section.page_count + 1):
            yield section.page_path(n)
    yield f"{ROOT}/tags/"
    for tag in TAGS:
        yield tag_path(tag)
    yield f"{ROOT}/archive"
    for slug in SECTION_SLUGS:
        for year in YEARS:
            yield archive_path(slug, year)
    for article in ARTICLES:
        yield article.path


def tag_path(tag: str) -> str:
    """Return where a tag's page stands."""
    return f"{ROOT}/tags/{_slug(tag)}"


#: What a full crawl from ``/news/`` stores: the path (with its query) of every document, each once.
ALL_PAGES: list[str] = list(_paths())
