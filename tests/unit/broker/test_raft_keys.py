"""A member of a Raft group: RocketMQ's keys for DLedger, and the times of ours."""

from __future__ import annotations

from pathlib import Path

import pytest

from kourou.broker.config import BrokerSettings
from kourou.broker.part_settings import raft_settings_of, store_settings_of
from kourou.errors import ConfigError
from kourou.replication.raft.node import RaftSettings
from kourou_ha_replica.app import ReplicaSettings

PEERS = "n0-127.0.0.1:40912; n2-127.0.0.1:40932;n1-127.0.0.1:40922;"


def member(**given: object) -> ReplicaSettings:
    found = {
        "store_root": Path("/nowhere"),
        "broker_name": "RaftNode00",
        "listen_port": 30_921,
        "raft_enabled": True,
        "raft_peers_text": PEERS,
        "raft_self": "n1",
        **given,
    }
    return ReplicaSettings(**found)  # type: ignore[arg-type]  # a shorthand


def test_a_member_is_told_its_group_and_where_the_others_are() -> None:
    settings = member()
    assert settings.raft_peers == {
        "n0": "127.0.0.1:40912",
        "n1": "127.0.0.1:40922",
        "n2": "127.0.0.1:40932",
    }
    assert settings.members_bind_address == "127.0.0.1:40922"
    assert raft_settings_of(settings) == RaftSettings("RaftNode00", "n1", ("n0", "n1", "n2"))
    assert member(raft_group_name="g").raft_group == "g"
    slow = member(raft_heartbeat_ms=300, raft_election_ms=3_000, raft_lease_ms=2_700)
    told = raft_settings_of(slow)
    assert (told.heartbeat_ms, told.lease_ms) == (300, 2_700)
    assert (told.election_timeout_ms_min, told.election_timeout_ms_max) == (3_000, 6_000)


def test_the_keys_are_called_as_rocketmq_calls_them(tmp_path: Path) -> None:
    from kourou.settings.sources import load_settings

    file = tmp_path / "broker-n1.conf"
    file.write_text(
        "brokerName=RaftNode00\nlistenPort=30921\nstorePathRootDir=/nowhere\n"
        f"enableDLegerCommitLog=true\ndLegerGroup=RaftNode00\ndLegerPeers={PEERS}\n"
        "dLegerSelfId=n1\npreferredLeaderId=n0\nbrokerRole=ASYNC_MASTER\nbrokerId=0\n"
    )
    loaded = load_settings(ReplicaSettings, arguments={}, environment={}, file=file)
    assert loaded.warnings == ()
    settings = loaded.settings
    assert (settings.raft_self, settings.preferred_leader_id) == ("n1", "n0")
    assert (settings.broker_id, settings.broker_role) == (2, "SLAVE"), (
        "as in RocketMQ, whoever asks"
    )
    assert settings.is_replica
    assert store_settings_of(settings).replicated


def test_its_place_among_all_is_its_broker_id() -> None:
    ports = {"n0": 30_911, "n1": 30_921, "n2": 30_931}
    found = [member(raft_self=name, listen_port=port).broker_id for name, port in ports.items()]
    assert found == [1, 2, 3]


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"raft_peers_text": None}, "dLegerPeers has 0 replicas; 1 to 7"),
        ({"raft_peers_text": "n1"}, "is not of the form name-host:port"),
        ({"raft_peers_text": "n1-127.0.0.1"}, "n1: '127.0.0.1' is not an address"),
        ({"raft_peers_text": "n1-h:1;n1-h:2"}, "has n1 twice"),
        ({"raft_peers_text": "n1-h:1;n2-h:1"}, "two replicas at h:1"),
        ({"raft_peers_text": ";".join(f"m{n}-h:{n + 1}" for n in range(8))}, "dLegerPeers has 8"),
        ({"raft_self": "n7"}, "dLegerSelfId='n7' is not in dLegerPeers"),
        ({"raft_self": None}, "dLegerSelfId='' is not in dLegerPeers"),
        ({"preferred_leader_id": "n9"}, "preferredLeaderId='n9' is not in"),
        ({"replication_enabled": False}, "replicationEnable=false closes the listener"),
        ({"replication_port": 40_923}, "n1 at port 40922, but replicationPort=40923"),
        (
            {"bind_address": "127.0.0.2", "broker_ip1": "127.0.0.1"},
            "n1 at 127.0.0.1, but bindAddress=127.0.0.2",
        ),
        (
            {"raft_peers_text": "n1-127.0.0.1:40921"},
            r"at port 40921, which clients connect to .* use 40922 \(P\+10001\)",
        ),
        ({"raft_heartbeat_ms": 251}, "raftHeartbeatInterval=251 is too long .*at most 250"),
        ({"raft_lease_ms": 713}, "raftLease=713 does not fit .*at most 712"),
        ({"raft_lease_ms": 150}, "raftLease=150 does not fit .*above 150"),
    ],
)
def test_what_could_not_work_is_refused(given: dict[str, object], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        member(**given)


@pytest.mark.parametrize(
    "given",
    [
        {"replication_port": 40_922},
        {"bind_address": "0.0.0.0", "insecure_network": True, "broker_ip1": "10.0.0.1"},
        {"raft_peers_text": "n1-broker-n1.example:40922;n0-[::1]:1"},
        {"raft_heartbeat_ms": 250, "raft_lease_ms": 712},
    ],
)
def test_what_works_is_taken(given: dict[str, object]) -> None:
    assert member(**given).raft_port == 40_922


def test_who_is_no_member_has_no_group() -> None:
    settings = BrokerSettings(raft_peers_text="nonsense")
    assert (settings.raft_peers, settings.raft_port, settings.broker_id) == ({}, None, 0)


def test_a_follower_of_one_leader_that_names_a_group_is_refused() -> None:
    """It would follow whoever a name server names, and its operator believes it elects."""
    with pytest.raises(ConfigError, match="enableDLegerCommitLog is false"):
        ReplicaSettings(
            store_root=Path("/nowhere"), namesrv_addr="127.0.0.1:9876", raft_peers_text="n0-h:1"
        )


def test_a_broker_that_leads_alone_says_who_serves_members() -> None:
    with pytest.raises(ConfigError, match=r"runs single leaders .*with `kourou ha-replica`"):
        BrokerSettings(raft_enabled=True, raft_peers_text=PEERS, raft_self="n0", listen_port=30_911)
