"""What is said of a name that nobody knows, in a body or in a query."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def unknown_name(kind: str, name: str, known: Iterable[str]) -> str:
    """Return "Unknown field; did you mean ...?", or what is known where nothing is near."""
    known = list(known)
    # Likeness costs the square of the length.
    near = difflib.get_close_matches(name[:200], known, n=1)
    if near:
        return f"Unknown {kind}; did you mean {near[0]}?"
    return f"Unknown {kind}; " + (f"known are {', '.join(known)}" if known else "none is taken here")
