"""Promotions are remembered for good, and an old leader that comes back is refused."""

from __future__ import annotations

import pytest

from kourou.engine.key_values import KeyValues
from kourou.engine.registrants import (
    NAMESPACE,
    Identity,
    Outdone,
    check_promoted,
    key_of,
    news,
    promoted,
)
from kourou.replication.epoch_numbers import PROMOTION

FIRST = PROMOTION + 65


def leader(epoch: int | None, broker_id: int = 0, name: str = "broker-a") -> Identity:
    return Identity("C", name, broker_id, f"{name}:1", epoch=epoch)


def keeping(value: str) -> KeyValues:
    return KeyValues({NAMESPACE: {"C/broker-a": value}})


@pytest.mark.feature("F137")
def test_a_leader_of_an_older_promotion_is_refused() -> None:
    kept = keeping(f"{FIRST} b:1")
    with pytest.raises(Outdone, match=f"epoch {FIRST} of broker-a was opened by b:1") as refused:
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


def test_the_key_is_that_of_the_log() -> None:
    assert key_of(leader(64)) == "C/broker-a"
