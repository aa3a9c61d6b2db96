"""The number of the next epoch of a static leader.

There is no vote in a static pair. So two brokers that both consider themselves leader must never
open the same epoch, and a promoted broker must always have a higher epoch than the old leader,
however often that one restarts.

    epoch = promotion * 2**32 + start * 64 + brokerId

A leader opens one at each start, with its own brokerId; a promotion starts the next multiple of
2**32 above all known epochs. A log that never had a follower stays at epoch 0.

Two replicas that are promoted without knowledge of each other open epochs of the same promotion.
Its first epoch distinguishes them, however often either restarts: the higher brokerId wins.
"""

from __future__ import annotations

from collections.abc import Iterable

STARTS = 64
"""brokerIds below this are distinguished."""
PROMOTION = 2**32


def next_epoch(newest: int, broker_id: int, *, promoted: bool = False) -> int:
    """The epoch to open if `newest` is the highest known one."""
    assert 0 <= broker_id < STARTS, broker_id
    promotions, rest = divmod(newest, PROMOTION)
    start = rest // STARTS + 1
    if promoted or start * STARTS >= PROMOTION:
        promotions, start = promotions + 1, 1
    return promotions * PROMOTION + start * STARTS + broker_id


def promotion_of(epochs: Iterable[int]) -> int:
    """The epoch with which the newest promotion of a log began, among all its epochs; 0: none."""
    known = list(epochs)
    newest = max(known, default=0) // PROMOTION
    return min(epoch for epoch in known if epoch // PROMOTION == newest) if newest else 0


def are_rivals(one: int, other: int) -> bool:
    """True if two replicas began the same promotion, so that no restart gives either precedence."""
    same = one // PROMOTION == other // PROMOTION > 0
    return same and one % STARTS != other % STARTS


def last_of_promotion(epoch: int) -> int:
    """The highest epoch number of the same promotion."""
    return (epoch // PROMOTION + 1) * PROMOTION - 1
