"""Writes the articles: a small grammar, filled from a seed, the same text in every process.

The sentences stand in ``grammar/<section>.toml``. In them ``{place}`` is a word from the section's slots,
chosen once an article (``{place2}`` is another one of the same slot, ``{Place}`` the same with a capital).
``{n:20-90}`` is a number: one for headline and lead, which tell of the same thing, another in each later place.
"""

from __future__ import annotations

import random
import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

_SLOT = re.compile(r"\{(\w+?)(\d?)(?::(\d+)-(\d+))?\}")
_GRAMMAR = Path(__file__).parent / "grammar"


class Block(NamedTuple):
    """One piece of an article: ``p``, ``h2`` or ``quote``."""

    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class Draft:
    """What the grammar says about one event; date and address are given by the edition."""

    headline: str
    summary: str
    tags: tuple[str, ...]
    body: tuple[Block, ...]


@dataclass(frozen=True, slots=True)
class Grammar:
    """The sentences of one section."""

    title: str
    about: str
    slots: dict[str, list[str]]
    stories: list[dict[str, list[str]]]
    text: dict[str, list[str]]


def load_grammar(slug: str) -> Grammar:
    """Read the sentences of a section."""
    data: dict[str, Any] = tomllib.loads((_GRAMMAR / f"{slug}.toml").read_text("utf-8"))
    return Grammar(data["title"], data["about"], data["slots"], data["story"], data["text"])


class _Voice:
    """Fills slots; remembers what it chose, so that an article stays with its place and its dish."""

    def __init__(self, grammar: Grammar, rng: random.Random) -> None:
        self.rng = rng
        self.opening = True  #: headline and lead; their numbers agree
        self._slots = grammar.slots
        self._chosen: dict[str, str] = {}
        self._numbers: dict[tuple[int, int], int] = {}

    def say(self, pattern: str) -> str:
        """Fill one sentence."""
        return _SLOT.sub(self._fill, pattern)

    def _fill(self, match: re.Match[str]) -> str:
        name, digit, low, high = match.groups()
        if low is not None:
            bounds = int(low), int(high)
            number = self._numbers.get(bounds) if self.opening else None
            if number is None:
                number = self._numbers[bounds] = self.rng.randint(*bounds)
            return str(number)
        key = name.lower() + digit
        if key not in self._chosen:
            taken = {
                word for other, word in self._chosen.items() if other.rstrip("0123456789") == name.lower()
            }
            free = [word for word in self._slots[name.lower()] if word not in taken]
            self._chosen[key] = self.rng.choice(free)
        word = self._chosen[key]
        return _capital(word) if name[0].isupper() else word


def _capital(word: str) -> str:
    """Give a sentence its capital, behind an opening quotation mark too."""
    at = 1 if word[0] in "“‘" else 0
    return word[:at] + word[at].upper() + word[at + 1 :]


def write(grammar: Grammar, story: dict[str, list[str]], rng: random.Random) -> Draft:
    """Write one article of ``story``: about 300 words, no sentence twice."""
    voice = _Voice(grammar, rng)
    which = rng.randrange(len(story["headline"]))
    headline = voice.say(story["headline"][which])
    lead = voice.say(story["lead"][which])
    voice.opening = False
    detail = [voice.say(line) for line in rng.sample(story["detail"], len(story["detail"]))]
    quotes = rng.sample(grammar.text["quotes"], 2)
    background = [voice.say(line) for line in rng.sample(grammar.text["background"], 4)]
    outlook = [voice.say(line) for line in rng.sample(grammar.text["outlook"], 3)]
    first, second = voice.say("{speaker}"), voice.say("{speaker2}")
    body = (
        Block("p", lead),
        Block("p", " ".join(detail[:3])),
        Block("quote", f"{quotes[0]} said {first}."),
        Block("p", " ".join(background[:2])),
        Block("h2", rng.choice(["How it came about", "What is known", "In figures", "A closer look"])),
        Block("p", " ".join(detail[3:])),
        Block("quote", f"{quotes[1]} said {second}."),
        Block("p", " ".join(background[2:])),
        Block("h2", "What comes next"),
        Block("p", " ".join(outlook)),
    )
    return Draft(headline, lead, tuple(story["tags"]), body)
