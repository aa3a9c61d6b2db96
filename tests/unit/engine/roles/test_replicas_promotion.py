"""Which member may lead, and which one does after a restart."""

from __future__ import annotations

import pytest

from kourou.engine.roles.replicas import ReplicaAggregate, check_promotion, leads
from kourou.errors import Rejected


def test_whoever_opened_the_newest_epoch_goes_on_leading() -> None:
    replicas = ReplicaAggregate([(64, 0), (2**32 + 65, 900)], leader="broker-a/1")
    assert leads(replicas, "broker-a", 1)
    assert not leads(replicas, "broker-a", 0)
    assert not leads(replicas, "broker-a", 11)
    assert not leads(ReplicaAggregate(), "broker-a", 1), "nobody ever followed"


@pytest.mark.feature("F137")
def test_a_follower_is_not_promoted_while_its_leader_is_heard() -> None:
    with pytest.raises(
        Rejected, match=r"the leader at a:1 is online: its last message arrived 40 ms ago"
    ):
        check_promotion(ReplicaAggregate(), 1, leader="a:1", silent_ms=40)
    check_promotion(ReplicaAggregate(), 1, leader="a:1", silent_ms=None)


def test_a_follower_whose_copy_counts_is_promoted_before_one_whose_does_not() -> None:
    replicas = ReplicaAggregate([(64, 0)], in_sync=(2, 3))
    with pytest.raises(Rejected, match=r"on the in-sync replicas 2, 3; 1 may lack some of them"):
        check_promotion(replicas, 1, leader="", silent_ms=None)
    check_promotion(replicas, 2, leader="", silent_ms=None)
    check_promotion(ReplicaAggregate([(64, 0)]), 1, leader="", silent_ms=None)
