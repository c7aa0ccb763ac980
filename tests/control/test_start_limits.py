"""What a start may ask for: the pool's limits of safety only tighten."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from flask_spiderpool.config import settings_from
from flask_spiderpool.control.verbs import merged_options
from flask_spiderpool.crawl.options import SpiderOptions
from flask_spiderpool.crawl.spider import ArticleSpider, Spider
from flask_spiderpool.errors import InvalidParameter

Merge = Callable[..., SpiderOptions]


@pytest.fixture
def merge() -> Merge:
    """Merge the options of a start with those of a spider that names ``own``, under a pool's settings."""

    def make(own: dict[str, Any], config: dict[str, Any], **params: Any) -> SpiderOptions:
        spider: Spider = ArticleSpider("probe", start_urls=["http://site.example/"], **own)
        settings = settings_from({f"SPIDERPOOL_{key.upper()}": value for key, value in config.items()})
        return merged_options(spider, params, settings)

    return make


@pytest.mark.parametrize(
    ("field", "pool", "looser", "stricter"),
    [
        ("delay_s", 2.0, 0, 5.0),
        ("concurrency_per_host", 4, 5, 1),
        ("request_timeout_s", 30.0, 31, 5.0),
        ("max_bytes", 100_000, 100_001, 50_000),
        ("max_unpacked_bytes", 200_000, 200_001, 150_000),
    ],
)
def test_a_start_tightens_the_pools_limits_and_never_loosens_them(
    merge: Merge, field: str, pool: float, looser: float, stricter: float
) -> None:
    """The pool's value stands for a spider that names none; less strict is refused by the field's name."""
    config = {"max_bytes": 100_000, "max_unpacked_bytes": 200_000, field: pool}
    assert getattr(merge({}, config), field) == pool
    assert getattr(merge({}, config, **{field: stricter}), field) == stricter
    with pytest.raises(InvalidParameter, match=f"{field}: .*stricter"):
        merge({}, config, **{field: looser})


def test_a_spiders_code_may_name_its_own_pace(merge: Merge) -> None:
    """Code is the developer's word: its delay counts, not the pool's default."""
    assert merge({"delay_s": 0.25}, {"delay_s": 2.0}).delay_s == 0.25


def test_at_an_address_allowed_by_name_a_start_names_any_delay(merge: Merge) -> None:
    """The operator named it, so it is the operator's own; without a word the pool's delay stands there too."""
    config = {"allow_addresses": "127.0.0.1:8000", "delay_s": 2.0}
    own, other = "http://127.0.0.1:8000/", "http://127.0.0.1:8001/"
    assert merge({}, config, start_urls=[own]).delay_s == 2.0
    assert merge({}, config, start_urls=[own], delay_s=0).delay_s == 0
    for urls in ([other], [own, other]):
        with pytest.raises(InvalidParameter, match="delay_s"):
            merge({}, config, start_urls=urls, delay_s=0)


def test_the_pools_page_and_depth_limits_are_defaults(merge: Merge) -> None:
    """They are not limits of safety: a start may ask for more."""
    config = {"max_pages": 50, "max_depth": 2}
    assert (merge({}, config).max_pages, merge({}, config).max_depth) == (50, 2)
    assert merge({}, config, max_pages=500).max_pages == 500
    assert merge({"max_depth": 7}, config).max_depth == 7
