"""Which number does the next epoch of a static leader have?

Lives here: that number. May not live here: epochs of Raft groups, which vote about theirs.

State: none.

Nobody votes in a static pair, so two brokers that both think they lead must never open the same
epoch, and one that was promoted must outdo the old leader however often that one starts again.

    epoch = promotion * 2**32 + start * 64 + brokerId

A leader opens one at each start, with its own brokerId; a promotion begins the next 2**32. A log
that never had a follower stays at epoch 0.
"""

from __future__ import annotations

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
