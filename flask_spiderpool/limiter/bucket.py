"""The arithmetic of one token bucket: no IO, no clock. ``token_bucket.lua`` is the same, step for step."""

from __future__ import annotations

import math
from typing import NamedTuple

from flask_spiderpool.limiter.base import Grant

#: For burst 1 the interval is this much longer than ``1/rate``: arrivals jitter (PROTOCOL, Limiter).
GUARD_S = 0.05
#: Rounding of times near 2 x 10^9 s must not turn a whole token into 0.9999999.
TOLERANCE = 1e-6
#: A block remembers its key this long past its end, since it does not know the rate to refill at.
BLOCK_MEMORY_S = 3600.0
#: The longest block, whatever a Retry-After asks for.
MAX_BLOCK_S = 7 * 86_400.0


class Bucket(NamedTuple):
    """What is known of one key. Past ``full`` it need not be known: it is then as good as a missing one."""

    tokens: float  #: at the time ``at``
    at: float  #: seconds; in the future while a block lasts, for nothing refills before its end
    until: float  #: seconds; end of the last block, 0 if there was none
    full: float  #: seconds; when it will have refilled


class Shape(NamedTuple):
    """What a bucket really grants, so that the site sees no more than it was promised."""

    rate: float  #: tokens a second; 0 means unlimited
    capacity: float


def shape(rate: float, burst: int) -> Shape:
    """Hold back one token of burst; for burst 1 lengthen the interval by :data:`GUARD_S` instead."""
    if rate <= 0:
        return Shape(0.0, 0.0)
    if burst <= 1:
        return Shape(1 / (1 / rate + GUARD_S), 1.0)
    return Shape(float(rate), float(burst - 1))


def take(
    bucket: Bucket | None, shape: Shape, n: int, now: float, birth: float
) -> tuple[Grant, Bucket | None]:
    """Take up to ``n`` tokens at ``now`` from a store that was born at ``birth``; return the new bucket too."""
    if bucket is not None and now >= bucket.full:
        bucket = None
    if shape.rate == 0:
        if bucket is not None and bucket.until > now:
            return Grant(0, bucket.until - now), bucket
        return Grant(max(0, n), 0.0), bucket
    tokens, at, until = _refill(bucket, shape, now, birth)
    granted = 0 if until > now else max(0, min(n, math.floor(tokens + TOLERANCE)))
    tokens -= granted
    wait_s = max(0.0, at - now) + max(0.0, (1 - tokens) / shape.rate)
    full = at + (shape.capacity - tokens) / shape.rate
    return Grant(granted, wait_s), Bucket(tokens, at, until, full)


def block(bucket: Bucket | None, for_s: float, now: float) -> Bucket:
    """Empty the bucket and let it refill from ``now + for_s`` on; a longer block that stands is kept."""
    until = now + min(for_s, MAX_BLOCK_S)
    if bucket is None or now >= bucket.full:
        return Bucket(0.0, until, until, until + BLOCK_MEMORY_S)
    if bucket.until >= until:
        return bucket
    return Bucket(0.0, until, until, max(bucket.full, until + BLOCK_MEMORY_S))


def _refill(bucket: Bucket | None, shape: Shape, now: float, birth: float) -> tuple[float, float, float]:
    """Return tokens, the time they are counted at, and the end of the last block."""
    if bucket is None:
        return min(shape.capacity, shape.rate * max(0.0, now - birth)), now, 0.0
    at = bucket.at
    if at > now and at > bucket.until:
        at = now  # the store's clock was set back
    tokens = min(shape.capacity, bucket.tokens + shape.rate * max(0.0, now - at))
    return tokens, max(at, now), bucket.until
