"""Logarithmic histogram buckets: their counts can be added, and percentiles computed from them.

    bucket 0           0 ms
    bucket n           above BASE ** (n - 2), up to BASE ** (n - 1) ms: 1 is up to 1 ms

A percentile is its bucket's upper bound: at most a tenth too high, never too low.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

BASE = 1.1
_ROUNDING = 1e-9
"""Tolerance for the rounding of logarithms, so that a value equal to a bound is in the bucket
below.
"""


def bucket_of(ms: int) -> int:
    """The bucket of a duration."""
    if ms <= 0:
        return 0
    return math.ceil(math.log(ms) / math.log(BASE) - _ROUNDING) + 1


def upper_ms(bucket: int) -> float:
    """The greatest duration of a bucket."""
    return 0.0 if bucket <= 0 else BASE ** (bucket - 1)


def percentile_ms(counts: Mapping[int, int], share: float) -> float:
    """The upper bound of the share (0 to 1) of all samples that are shortest; 0 without samples."""
    wanted = share * sum(counts.values())
    below = 0
    for bucket in sorted(counts):
        below += counts[bucket]
        if below >= wanted:
            return upper_ms(bucket)
    return 0.0
