"""What a page shows of leaders and followers."""

from __future__ import annotations

import re

import pytest
from msgspec.structs import replace

from kourou.broker.telemetry.metrics import replication_families
from kourou.engine.inputs import Fenced
from kourou.engine.roles.leader import SYNC_MASTER
from kourou.protocol.messages.groups import UpdateAndCreateSubscriptionGroup
from kourou.telemetry.metric_table import METRICS
from kourou.telemetry.metrics import expose
from kourou_rigs.engine import Engine
from kourou_rigs.pair import Pair

BASE = {"cluster": "C", "node_type": "broker", "node_id": "broker-a"}


def shown(engine: Engine) -> dict[str, float]:
    """Samples by name and brokerId."""
    view = engine.core.parts.replica_handler.status(engine.now_ms)
    found = {}
    for line in expose(list(replication_families(BASE, view))).decode().splitlines():
        if not line.startswith("#"):
            sample, amount = line.rsplit(" ", 1)
            name, labels = sample.split("{")
            number = re.search(r'broker_id="(\d+)"', labels)
            assert number is None or METRICS[name].labels == ("broker_id",)
            found[name.removeprefix("kourou_replication_") + (number[1] if number else "")] = float(
                amount
            )
    return found


@pytest.mark.feature("F140")
def test_leader_and_follower_show_the_same_lag() -> None:
    pair = Pair(sync=True)
    pair.connect()
    pair.settle()
    expected = {"leads": 1, "epoch": 64, "followers": 1, "in_sync": 1,
                "lag_bytes1": 0, "lag_seconds1": 0}  # fmt: skip
    assert shown(pair.leader) == expected
    assert shown(pair.follower) == {**expected, "leads": 0, "followers": 0}
    end = pair.leader.store.end
    pair.leader.send(UpdateAndCreateSubscriptionGroup(), b'{"groupName":"g"}')
    pair.advance(2_000)
    assert shown(pair.leader)["lag_seconds1"] >= 2
    pair.disconnect()
    found = shown(pair.follower)
    assert found["lag_seconds1"] >= 2
    pair.connect()
    found = shown(pair.leader)
    assert "lag_seconds1" not in found, "it has not told yet what it has"
    pair.settle()
    assert shown(pair.leader)["lag_bytes1"] == 0
    assert pair.follower.store.end == pair.leader.store.end > end


def test_no_in_sync_set_is_reported_where_senders_wait_for_no_replica() -> None:
    """A figure of 0 would look as if one of the followers were too far behind."""
    pair = Pair(sync=False)
    pair.connect()
    pair.settle()
    for engine, followers in ((pair.leader, 1), (pair.follower, 0)):
        found = shown(engine)
        assert found["followers"] == followers
        assert "in_sync" not in found


def test_a_raft_group_counts_by_majority_and_keeps_no_such_set() -> None:
    view = Engine().core.parts.replica_handler.status(0)
    member = replace(view, broker_role=SYNC_MASTER, member="n0")
    names = [family.name for family in replication_families(BASE, member)]
    assert "kourou_replication_followers" in names
    assert "kourou_replication_in_sync" not in names


def test_a_broker_alone_leads_epoch_0_and_a_fenced_one_leads_nothing() -> None:
    expected = {"leads": 1, "epoch": 0, "followers": 0}
    assert shown(Engine()) == expected
    leader = Engine(leads=True)
    leader.handle(Fenced(2**32))
    assert shown(leader) == {**expected, "leads": 0}
