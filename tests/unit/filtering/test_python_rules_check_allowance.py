from __future__ import annotations

import pytest

from kourou.errors import Throttled
from kourou.filtering.python_rules import CheckAllowance
from kourou.model.limits import (
    FILTER_CHECKED_BYTES_MAX,
    FILTER_CHECKED_BYTES_S,
    FILTER_SOURCE_BYTES_MAX,
)


def test_what_is_spent_comes_back_with_time_and_never_more() -> None:
    allowance = CheckAllowance()
    now_ms = 90_000_000
    for _ in range(FILTER_CHECKED_BYTES_MAX // FILTER_SOURCE_BYTES_MAX):
        allowance.take(now_ms, FILTER_SOURCE_BYTES_MAX)
    with pytest.raises(Throttled, match="at once"):
        allowance.take(now_ms, 1)
    allowance.take(now_ms + 2_000, 2 * FILTER_CHECKED_BYTES_S)
    with pytest.raises(Throttled):
        allowance.take(now_ms + 2_000, 1)
    later_ms = now_ms + 10**9
    allowance.take(later_ms, FILTER_CHECKED_BYTES_MAX)
    with pytest.raises(Throttled):
        allowance.take(later_ms, 1)


def test_a_clock_that_stands_or_goes_back_gives_nothing() -> None:
    allowance = CheckAllowance()
    allowance.take(5_000, FILTER_CHECKED_BYTES_MAX)
    with pytest.raises(Throttled):
        allowance.take(4_000, 1)
