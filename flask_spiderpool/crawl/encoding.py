"""Which encoding a page is in, as browsers decide it (WHATWG Encoding and HTML standards).

The order: byte order mark, the header's charset, the page's own ``meta`` (or XML declaration), then UTF-8 if
the bytes are valid UTF-8, then windows-1252. Labels mean what they mean on the web: ``latin-1`` is
windows-1252, ``gb2312`` is GB18030 (mitmproxy #3150), ``shift_jis`` is CP932. Labels that the web does not
know count as absent, among them Python's own (``utf-7``, ``rot13``, ``idna``).
"""

from __future__ import annotations

import codecs
import re

PRESCAN_BYTES = 4096  # browsers look at 1,024; some pages put comments and scripts first

_BOMS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))

# Python codec <- labels of the WHATWG Encoding Standard (section 4.2).
_LABELS_OF = {
    "utf-8": "unicode-1-1-utf-8 unicode11utf8 unicode20utf8 utf-8 utf8 x-unicode20utf8 utf8mb4",
    "cp866": "866 cp866 csibm866 ibm866",
    "iso8859-2": "csisolatin2 iso-8859-2 iso-ir-101 iso8859-2 iso88592 iso_8859-2 iso_8859-2:1987 l2 latin2",
    "iso8859-3": "csisolatin3 iso-8859-3 iso-ir-109 iso8859-3 iso88593 iso_8859-3 iso_8859-3:1988 l3 latin3",
    "iso8859-4": "csisolatin4 iso-8859-4 iso-ir-110 iso8859-4 iso88594 iso_8859-4 iso_8859-4:1988 l4 latin4",
    "iso8859-5": "csisolatincyrillic cyrillic iso-8859-5 iso-ir-144 iso8859-5 iso88595 iso_8859-5"
    " iso_8859-5:1988",
    "iso8859-6": "arabic asmo-708 csiso88596e csiso88596i csisolatinarabic ecma-114 iso-8859-6 iso-8859-6-e"
    " iso-8859-6-i iso-ir-127 iso8859-6 iso88596 iso_8859-6 iso_8859-6:1987",
    "iso8859-7": "csisolatingreek ecma-118 elot_928 greek greek8 iso-8859-7 iso-ir-126 iso8859-7 iso88597"
    " iso_8859-7 iso_8859-7:1987 sun_eu_greek",
    "iso8859-8": "csiso88598e csisolatinhebrew hebrew iso-8859-8 iso-8859-8-e iso-ir-138 iso8859-8 iso88598"
    " iso_8859-8 iso_8859-8:1988 visual csiso88598i iso-8859-8-i logical",
    "iso8859-10": "csisolatin6 iso-8859-10 iso-ir-157 iso8859-10 iso885910 l6 latin6",
    "iso8859-13": "iso-8859-13 iso8859-13 iso885913",
    "iso8859-14": "iso-8859-14 iso8859-14 iso885914",
    "iso8859-15": "csisolatin9 iso-8859-15 iso8859-15 iso885915 iso_8859-15 l9",
    "iso8859-16": "iso-8859-16",
    "koi8-r": "cskoi8r koi koi8 koi8-r koi8_r",
    "koi8-u": "koi8-ru koi8-u",
    "mac-roman": "csmacintosh mac macintosh x-mac-roman",
    "cp874": "dos-874 iso-8859-11 iso8859-11 iso885911 tis-620 windows-874",
    "cp1250": "cp1250 windows-1250 x-cp1250",
    "cp1251": "cp1251 windows-1251 x-cp1251",
    "cp1252": "ansi_x3.4-1968 ascii cp1252 cp819 csisolatin1 ibm819 iso-8859-1 iso-ir-100 iso8859-1 iso88591"
    " iso_8859-1 iso_8859-1:1987 l1 latin1 us-ascii windows-1252 x-cp1252 latin-1 iso_646.irv:1991",
    "cp1253": "cp1253 windows-1253 x-cp1253",
    "cp1254": "cp1254 csisolatin5 iso-8859-9 iso-ir-148 iso8859-9 iso88599 iso_8859-9 iso_8859-9:1989 l5 latin5"
    " windows-1254 x-cp1254",
    "cp1255": "cp1255 windows-1255 x-cp1255",
    "cp1256": "cp1256 windows-1256 x-cp1256",
    "cp1257": "cp1257 windows-1257 x-cp1257",
    "cp1258": "cp1258 windows-1258 x-cp1258",
    "mac-cyrillic": "x-mac-cyrillic x-mac-ukrainian",
    "gb18030": "chinese csgb2312 csiso58gb231280 gb2312 gb_2312 gb_2312-80 gbk iso-ir-58 x-gbk gb18030 euc-cn",
    "big5hkscs": "big5 big5-hkscs cn-big5 csbig5 x-x-big5",
    "euc_jp": "cseucpkdfmtjapanese euc-jp x-euc-jp",
    "iso2022_jp_ext": "csiso2022jp iso-2022-jp",
    "cp932": "csshiftjis ms932 ms_kanji shift-jis shift_jis sjis windows-31j x-sjis",
    "cp949": "cseuckr csksc56011987 euc-kr iso-ir-149 korean ks_c_5601-1987 ks_c_5601-1989 ksc5601 ksc_5601"
    " windows-949",
    "utf-16-be": "unicodefffe utf-16be",
    "utf-16-le": "csunicode iso-10646-ucs-2 ucs-2 unicode unicodefeff utf-16 utf-16le",
}
_LABELS = {label: codec for codec, labels in _LABELS_OF.items() for label in labels.split()}
_ASCII_BLANKS = "\t\n\f\r "

_HEADER_CHARSET = re.compile(r"charset\s*=\s*(?:\"([^\"]*)\"|'([^']*)'|([^\s;,\"']+))", re.IGNORECASE)
_COMMENT = re.compile(rb"<!--.*?(?:-->|\Z)", re.DOTALL)
_META = re.compile(rb"<meta[\s/]([^>]*)", re.IGNORECASE)
_META_CHARSET = re.compile(rb"charset\s*=\s*[\"']?\s*([^\s\"'/>;]+)", re.IGNORECASE)
_XML = re.compile(rb"\s*<\?xml\s[^>]*?encoding\s*=\s*[\"']([^\"'>]+)", re.IGNORECASE)


def decode(body: bytes, content_type: str = "") -> tuple[str, str]:
    """Return (text, encoding) of a page; what cannot be decoded becomes U+FFFD. Never raises.

    The encoding is a Python codec name. No byte order mark is left in the text.
    """
    for mark, codec in _BOMS:
        if body.startswith(mark):
            return body[len(mark) :].decode(codec, "replace"), codec
    declared = codec_of_header(content_type) or _codec_in_page(body)
    if declared is not None:
        return body.decode(declared, "replace"), declared
    try:
        return body.decode("utf-8"), "utf-8"
    except UnicodeDecodeError as fault:
        # A character cut off at the very end is no reason to doubt the rest.
        if fault.reason == "unexpected end of data" and fault.start > 0:
            return body.decode("utf-8", "replace"), "utf-8"
    return body.decode("cp1252", "replace"), "cp1252"


def codec_of_label(label: str) -> str | None:
    """Return the Python codec that a charset label means on the web, or None for one that means nothing."""
    return _LABELS.get(label.strip(_ASCII_BLANKS).lower())


def codec_of_header(content_type: str) -> str | None:
    """Return the codec that a Content-Type header names, or None; the first label that is known counts."""
    for found in _HEADER_CHARSET.finditer(content_type):
        codec = codec_of_label(found[1] or found[2] or found[3] or "")
        if codec is not None:
            return codec
    return None


def _codec_in_page(body: bytes) -> str | None:
    head = body[:PRESCAN_BYTES]
    declared = _XML.match(head)
    if declared is not None:
        codec = _ascii_compatible(declared[1])
        if codec is not None:
            return codec
    for tag in _META.finditer(_COMMENT.sub(b"", head)):
        found = _META_CHARSET.search(tag[1])
        if found is not None:
            codec = _ascii_compatible(found[1])
            if codec is not None:
                return codec
    return None


def _ascii_compatible(label: bytes) -> str | None:
    codec = codec_of_label(label.decode("latin-1"))
    # A declaration that could be read byte by byte cannot stand in UTF-16 (HTML standard, 13.2.3.2).
    return "utf-8" if codec is not None and codec.startswith("utf-16") else codec
