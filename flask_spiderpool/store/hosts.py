"""A host's number, by which lanes and requests name it: worked out from its key, so that no row has to be written.

Rows that all tasks share are rows that one waits on: a host's open transaction that had started a task on a
new site would hold up every settle of another task that links there. Two of ten million hosts share a number
with a chance of one in 180,000; they would share a lane and its turn, and nothing else would be wrong.
"""

from __future__ import annotations

from functools import lru_cache
from hashlib import blake2b

from flask_spiderpool.crawl.urls import host_key, origin
from flask_spiderpool.errors import FetchError

_REMEMBERED = 16_384  #: hosts a process remembers; about 3 MB


@lru_cache(maxsize=_REMEMBERED)
def host_id(key: str) -> int:
    """Return the number of a host key: 63 bits, never negative. Raises ``UnicodeError`` for a lone surrogate."""
    return int.from_bytes(blake2b(key.encode(), digest_size=8).digest()) >> 1


def key_of(url: str) -> str:
    """Return the host key of a request's URL, which the frontier holds in wire form."""
    return _key_of_origin(origin(url))


@lru_cache(maxsize=_REMEMBERED)
def _key_of_origin(start: str) -> str:
    try:
        return host_key(start)
    except FetchError:  # a runner of another kind recorded it; whoever fetches it will say what is wrong
        return start.partition("://")[2]
