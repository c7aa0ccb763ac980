"""The grammar writes whole sentences, the same ones for the same seed."""

from __future__ import annotations

import random
import re

import pytest

from example_app.news.edition import ARTICLES, SECTION_SLUGS
from example_app.news.prose import load_grammar, write


@pytest.mark.parametrize("slug", SECTION_SLUGS)
def test_the_same_seed_writes_the_same_article(slug: str) -> None:
    """Two processes serve the same bytes, so one seed gives one text, and another seed another."""
    grammar = load_grammar(slug)
    story = grammar.stories[0]
    first, again, other = (write(grammar, story, random.Random(seed)) for seed in ("a", "a", "b"))
    assert first == again
    assert first != other


def test_every_slot_is_filled_and_every_sentence_ends() -> None:
    """No brace of the grammar is left in a text, and paragraphs begin with a capital and end with a stop."""
    for article in ARTICLES:
        for text in (article.title, *(block.text for block in article.body)):
            assert "{" not in text
            assert "}" not in text
        for block in article.body:
            if block.kind != "h2":
                assert re.match(r"[“A-Z0-9]", block.text), block.text
                assert block.text.endswith("."), block.text


def test_no_article_says_a_sentence_twice() -> None:
    """A reader of one article meets each of its sentences once."""
    for article in ARTICLES:
        sentences = [s for block in article.body for s in re.split(r"(?<=\.) ", block.text)]
        assert len(sentences) == len(set(sentences)), article.path


def test_the_lead_agrees_with_the_headline_in_its_numbers() -> None:
    """A number of the headline that the lead takes up is the same one."""
    for article in ARTICLES:
        in_headline = set(re.findall(r"\d+", article.title))
        in_lead = set(re.findall(r"\d+", article.summary))
        if in_headline and in_lead and not article.title.startswith("New stop"):
            assert in_headline & in_lead, (article.title, article.summary)


def test_articles_are_long_enough_to_be_extracted() -> None:
    """Each has at least 150 words, so that an extractor takes it for an article."""
    assert min(sum(len(b.text.split()) for b in a.body) for a in ARTICLES) >= 150
