"""Which number does the next epoch of a static leader have?

Nobody votes in a static pair, so two brokers that both think they lead must never open the same
epoch, and one that was promoted must outdo the old leader however often that one starts again.

    epoch = promotion * 2**32 + start * 64 + brokerId

A leader opens one at each start, with its own brokerId; a promotion begins the next 2**32 behind
all that was heard of. A log that never had a follower stays at epoch 0.

Two members that are promoted without hearing of one another open epochs of one promotion. Its first
epoch tells them apart, however often either starts again: the higher brokerId outdoes the other.
"""

from __future__ import annotations

from collections.abc import Iterable

STARTS = 64
"""brokerIds below this are told apart."""
PROMOTION = 2**32


def next_epoch(newest: int, broker_id: int, *, promoted: bool = False) -> int:
    """The epoch to open where `newest` is the highest that was heard of."""
    assert 0 <= broker_id < STARTS, broker_id
    promotions, rest = divmod(newest, PROMOTION)
    start = rest // STARTS + 1
    if promoted or start * STARTS >= PROMOTION:
        promotions, start = promotions + 1, 1
    return promotions * PROMOTION + start * STARTS + broker_id


def promotion_of(epochs: Iterable[int]) -> int:
    """The epoch with which the newest promotion of a log began, of all its epochs; 0: none did."""
    known = list(epochs)
    newest = max(known, default=0) // PROMOTION
    return min(epoch for epoch in known if epoch // PROMOTION == newest) if newest else 0


def are_rivals(one: int, other: int) -> bool:
    """Did two members begin the same promotion, so that no restart makes either outdo the other?"""
    same = one // PROMOTION == other // PROMOTION > 0
    return same and one % STARTS != other % STARTS


def last_of_promotion(epoch: int) -> int:
    """Above all that can be opened in its promotion."""
    return (epoch // PROMOTION + 1) * PROMOTION - 1
