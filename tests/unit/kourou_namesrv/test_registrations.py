"""Promotions are remembered for good, and an old leader that comes back is refused."""

from __future__ import annotations

import pytest

from kourou.replication.epochs import PROMOTION, next_epoch
from kourou_namesrv.key_values import KeyValues
from kourou_namesrv.registrations import (
    NAMESPACE,
    BrokerIdentity,
    Outdone,
    check_promoted,
    news,
    promoted,
    to_outdo,
)

FIRST = PROMOTION + 65
UNHEARD = PROMOTION + 66
"""A promotion of member 2, which did not hear of that of member 1."""


def leader(
    epoch: int | None, broker_id: int = 0, name: str = "broker-a", promotion: int | None = None
) -> BrokerIdentity:
    return BrokerIdentity("C", name, broker_id, f"{name}:1", epoch=epoch, promotion=promotion)


def keeping(value: str) -> KeyValues:
    return KeyValues({NAMESPACE: {"C/broker-a": value}})


@pytest.mark.feature("F137")
def test_a_leader_of_an_older_promotion_is_refused() -> None:
    kept = keeping(f"{FIRST} b:1")
    with pytest.raises(
        Outdone, match=f"epoch {FIRST} of broker broker-a was started by b:1"
    ) as refused:
        check_promoted(kept, leader(128))
    assert refused.value.epoch == FIRST
    check_promoted(kept, leader(FIRST + 64))
    check_promoted(kept, leader(128, broker_id=1))
    check_promoted(kept, leader(None))
    check_promoted(kept, leader(0, name="broker-b"))


def test_only_promotions_are_kept_and_each_once() -> None:
    assert news(KeyValues(), leader(64)) is None
    assert news(KeyValues(), leader(None)) is None
    assert news(KeyValues(), leader(FIRST, broker_id=1)) is None
    assert news(KeyValues(), leader(FIRST)) == f"{FIRST} broker-a:1"
    kept = keeping(f"{FIRST} b:1")
    assert news(kept, leader(FIRST + 64)) is None, "it started again"
    assert news(kept, leader(2 * PROMOTION + 64)) == f"{2 * PROMOTION + 64} broker-a:1"


@pytest.mark.parametrize("value", ["", "soon", "-1 b:1", "\u0664\u0664"])
def test_what_somebody_else_wrote_there_refuses_nobody(value: str) -> None:
    kept = keeping(value)
    assert promoted(kept, leader(64))[0] == 0
    check_promoted(kept, leader(64))


# -- two that were promoted without hearing of one another -----------------------------------------


@pytest.mark.feature("F137")
def test_a_follower_receives_what_its_promotion_must_outdo() -> None:
    kept = keeping(f"{FIRST} b:1")
    follower = leader(64, broker_id=2)
    assert to_outdo(kept, follower, {}) == FIRST
    assert to_outdo(kept, follower, {"C/broker-a": UNHEARD, "C/broker-b": 1 << 60}) == UNHEARD
    assert to_outdo(kept, leader(FIRST), {}) is None, "a leader is told only that it was outdone"
    assert to_outdo(kept, leader(None, broker_id=2), {}) is None, "RocketMQ's"
    assert to_outdo(KeyValues(), follower, {}) is None


@pytest.mark.feature("F137")
def test_no_restart_outdoes_a_rival_promotion() -> None:
    """Whichever comes first: the higher brokerId is kept, at every name server."""
    restarted = leader(next_epoch(FIRST, 1), promotion=FIRST)
    second = leader(UNHEARD, promotion=UNHEARD)
    kept = keeping(f"{FIRST} b:1")
    check_promoted(kept, second)
    assert news(kept, second) == f"{UNHEARD} broker-a:1"
    kept = keeping(f"{UNHEARD} b:1")
    with pytest.raises(Outdone, match="promoted at the same time") as refused:
        check_promoted(kept, restarted)
    assert restarted.epoch < refused.value.epoch < next_epoch(UNHEARD, 2, promoted=True)
    check_promoted(kept, leader(next_epoch(UNHEARD, 2), promotion=UNHEARD))


def test_within_a_promotion_whoever_has_its_log_succeeds() -> None:
    kept = keeping(f"{FIRST} b:1")
    successor = leader(next_epoch(FIRST, 0), promotion=FIRST)
    check_promoted(kept, successor)
    assert news(kept, successor) is None
    assert news(KeyValues(), successor) == f"{FIRST} broker-a:1", "the promotion, not the start"


def test_a_broker_that_tells_no_promotion_is_judged_by_its_epoch() -> None:
    kept = keeping(f"{UNHEARD} b:1")
    check_promoted(kept, leader(next_epoch(FIRST, 1)))
    assert news(kept, leader(next_epoch(FIRST, 1))) is None
    with pytest.raises(Outdone):
        check_promoted(kept, leader(FIRST))
