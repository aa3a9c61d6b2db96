"""Our servers are told what a setup says."""

from __future__ import annotations

from kourou_bench.replicated import cluster_settings
from kourou_bench.replication import SETUPS

SETUP = {setup.name: setup for setup in SETUPS}


def test_a_master_has_its_role_and_its_slaves() -> None:
    found = cluster_settings(SETUP["sync-flush"], {"x": "1"})
    assert found.replicas == 1
    assert found.broker == {"brokerRole": "SYNC_MASTER", "flushDiskType": "SYNC_FLUSH", "x": "1"}
    assert cluster_settings(SETUP["alone"]).replicas == 0


def test_a_raft_group_is_not_asked_how_it_flushes() -> None:
    found = cluster_settings(SETUP["raft"], {"x": "1"})
    assert (found.raft, found.replicas, found.broker) == (3, 0, {"x": "1"})
