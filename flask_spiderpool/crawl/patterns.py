"""Regular expressions over URLs, matched in linear time whatever pattern and URL are.

``re`` backtracks and holds the GIL meanwhile: ``(a+)+$`` and one long URL stop every thread of a process.
Patterns come from people and URLs from the web, so they are matched by RE2.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Protocol

import re2

_MAX_MEM = 8 * 1024 * 1024  #: bytes of one compiled pattern; RE2 refuses more
#: RE2 refuses a repeat of 1,001 to 10^8, and takes the letters of a larger one for themselves.
_REPEAT = re.compile(r"(?<!\\)\{(\d+)(?:,(\d*))?\}")
_MAX_REPEAT = 1000
_HINT = "lookahead, lookbehind, backreferences and repeats of more than 1,000 are not known here"


class Pattern(Protocol):
    """A compiled pattern."""

    def search(self, text: str) -> object | None:
        """Return something true if the pattern is found anywhere in ``text``."""
        ...


def compile_pattern(pattern: str) -> Pattern:
    """Compile a pattern in RE2's syntax; raises ``ValueError`` with what is wrong in words."""
    # Compared by length first: an int of very many digits is refused by Python.
    for number in (part for pair in _REPEAT.findall(pattern) for part in pair):
        if len(number) > 9 or int(number or 0) > _MAX_REPEAT:
            raise ValueError(f"bad repetition: {number[:20]} times ({_HINT})")
    options = re2.Options()
    options.log_errors = False
    options.max_mem = _MAX_MEM
    try:
        compiled: Pattern = re2.compile(pattern, options)
    except re2.error as fault:
        said = fault.args[0] if fault.args else fault
        text = said.decode("utf-8", "replace") if isinstance(said, bytes) else str(said)
        raise ValueError(f"{text[:200]} ({_HINT})") from None
    return compiled


def compile_any(patterns: Sequence[str]) -> Pattern | None:
    """Return one pattern that finds what any of ``patterns`` finds; None for none. Raises ``ValueError``."""
    if not patterns:
        return None
    if len(patterns) == 1:
        return compile_pattern(patterns[0])
    return compile_pattern("|".join(f"(?:{pattern})" for pattern in patterns))
