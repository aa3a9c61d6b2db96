from __future__ import annotations

import pytest

from kourou_filter_server.dry_runs import shared


@pytest.mark.parametrize(
    ("lengths", "count", "shares"),
    [
        ({0: 100, 1: 100}, 10, {0: 5, 1: 5}),
        ({0: 100, 1: 2}, 10, {0: 8, 1: 2}),
        ({0: 1, 1: 2}, 10, {0: 1, 1: 2}),
        ({0: 5, 1: 5, 2: 5}, 1, {0: 1, 1: 0, 2: 0}),
        ({}, 10, {}),
        ({0: 0}, 10, {0: 0}),
    ],
)
def test_queues_share_the_sample(
    lengths: dict[int, int], count: int, shares: dict[int, int]
) -> None:
    assert shared(lengths, count) == shares
