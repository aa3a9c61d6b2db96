"""Sizes as numbers of buckets: counts that add up, of which percentiles are taken.

    bucket 0           0 ms
    bucket n           above BASE ** (n - 2), up to BASE ** (n - 1) ms: 1 is up to 1 ms

A percentile is told as its bucket's upper bound: at most a tenth too high, never too low.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

BASE = 1.1
_ROUNDING = 1e-9
"""A size that is a bound, but for the last bit of a logarithm, belongs below it."""


def bucket_of(ms: int) -> int:
    """The bucket of a duration."""
    if ms <= 0:
        return 0
    return math.ceil(math.log(ms) / math.log(BASE) - _ROUNDING) + 1


def upper_ms(bucket: int) -> float:
    """The greatest duration of a bucket."""
    return 0.0 if bucket <= 0 else BASE ** (bucket - 1)


def percentile_ms(counts: Mapping[int, int], share: float) -> float:
    """The duration below which that share of all samples lies (0 to 1); 0 of none."""
    wanted = share * sum(counts.values())
    below = 0
    for bucket in sorted(counts):
        below += counts[bucket]
        if below >= wanted:
            return upper_ms(bucket)
    return 0.0
