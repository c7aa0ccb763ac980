"""Page encodings, as browsers decide them."""

from __future__ import annotations

import codecs

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flask_spiderpool.crawl import encoding
from flask_spiderpool.crawl.encoding import codec_of_label, decode

RUSSIAN = "<title>Привет, мир</title>"
JAPANESE = "日本語のページ：漢字とカナ"


def _meta(label: str, text: str) -> str:
    return f'<!doctype html><meta charset="{label}">{text}'


@pytest.mark.parametrize(
    ("body", "content_type", "codec", "words"),
    [
        (codecs.BOM_UTF8 + RUSSIAN.encode(), "text/html; charset=iso-8859-1", "utf-8", RUSSIAN),
        (codecs.BOM_UTF16_LE + RUSSIAN.encode("utf-16-le"), "", "utf-16-le", RUSSIAN),
        (codecs.BOM_UTF16_BE + RUSSIAN.encode("utf-16-be"), "text/html; charset=utf-8", "utf-16-be", RUSSIAN),
        (_meta("utf-8", RUSSIAN).encode("cp1251"), "text/html; charset=windows-1251", "cp1251", RUSSIAN),
        (_meta("windows-1251", RUSSIAN).encode("cp1251"), "text/html", "cp1251", RUSSIAN),
        (_meta("gb2312", "镕堃喆 €").encode("gb18030"), "", "gb18030", "镕堃喆 €"),
        (_meta("shift_jis", JAPANESE).encode("cp932"), "", "cp932", JAPANESE),
        (_meta("iso-2022-jp", JAPANESE).encode("iso2022_jp"), "", "iso2022_jp_ext", JAPANESE),
        ("한국어".encode("cp949"), "text/html; charset=EUC-KR", "cp949", "한국어"),
        (_meta("utf-16", RUSSIAN).encode(), "", "utf-8", RUSSIAN),
        ("“quotes” €".encode("cp1252"), "text/html; charset=ISO-8859-1", "cp1252", "“quotes” €"),
        (RUSSIAN.encode(), "", "utf-8", RUSSIAN),
        ("naïve".encode("cp1252"), "", "cp1252", "naïve"),
        (b"<?xml version='1.0' encoding='windows-1251'?>" + RUSSIAN.encode("cp1251"), "", "cp1251", RUSSIAN),
        (
            b'<meta http-equiv="Content-Type" content="text/html; charset=windows-1251">'
            + RUSSIAN.encode("cp1251"),
            "text/html",
            "cp1251",
            RUSSIAN,
        ),
        (b'<!-- <meta charset="koi8-r"> -->' + RUSSIAN.encode(), "", "utf-8", RUSSIAN),
        (b"<!--" + b"x" * 3000 + b'--><meta charset="gbk">' + "中文".encode("gbk"), "", "gb18030", "中文"),
        (b'<meta charset="foo"><meta charset="koi8-r">' + RUSSIAN.encode("koi8-r"), "", "koi8-r", RUSSIAN),
    ],
)
def test_order_of_witnesses(body: bytes, content_type: str, codec: str, words: str) -> None:
    """BOM before header, header before meta, then UTF-8, then windows-1252; labels mean what the web means."""
    text, found = decode(body, content_type)
    assert found == codec
    assert words in text
    assert "\ufeff" not in text


@pytest.mark.parametrize(
    "content_type",
    [
        "text/html; charset=utf-8,gbk", "text/html; charset=utf-8,charset=utf-8", 'text/html; charset="utf-8"',
        "text/html; charset='utf-8'", "text/html; charset=foo-bar", "text/html; charset=none", "text/html; charset=",
        "text/html; charset", "text/html;;; charset = utf-8 ;", "text/html; charset= utf8 ", "text/html; charset=utf8mb4",
        "text/html; charset=\x81\x8d", "text/html; charset=utf-7", "text/html; charset=rot13", "",
    ],
)  # fmt: skip
def test_broken_labels_count_as_absent(content_type: str) -> None:
    """A header label that means nothing does not hide that the page is UTF-8."""
    assert decode(RUSSIAN.encode(), content_type) == (RUSSIAN, "utf-8")


def test_stray_bytes_become_replacement_characters() -> None:
    """In a page that declares itself UTF-8 bad bytes are replaced and the rest survives."""
    text, codec = decode(_meta("utf-8", "").encode() + b"a\xff\xc3b" + RUSSIAN.encode())
    assert codec == "utf-8"
    assert RUSSIAN in text
    assert "\ufffd" in text


def test_a_cut_character_at_the_end_is_no_doubt() -> None:
    """A page cut in the middle of its last character is still UTF-8."""
    text, codec = decode(RUSSIAN.encode() + "я".encode()[:1])
    assert codec == "utf-8"
    assert text.startswith(RUSSIAN)


@pytest.mark.parametrize(
    "label", ["utf-7", "idna", "punycode", "base64", "unicode_escape", "raw-unicode-escape", ""]
)
def test_labels_that_only_python_knows(label: str) -> None:
    """Python's own codecs cannot be chosen by a page."""
    assert codec_of_label(label) is None


def test_every_codec_of_the_table_exists() -> None:
    """No label leads to a codec that this Python lacks."""
    for codec in encoding._LABELS_OF:
        assert codecs.lookup(codec)


@given(st.binary(max_size=200), st.text(max_size=40), st.sampled_from(["", *sorted(encoding._LABELS)]))
def test_never_raises(body: bytes, content_type: str, label: str) -> None:
    """Any bytes under any label give text."""
    for header in (content_type, f"text/html; charset={label}"):
        text, codec = decode(body, header)
        assert isinstance(text, str)
        assert codecs.lookup(codec)
