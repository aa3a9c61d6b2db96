"""The shipped settings of whole clusters: each file is read, and each cluster is started."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kourou.broker.config import BrokerSettings
from kourou.client.settings.client_settings import ClientSettings, ProducerSettings
from kourou.service.local_cluster import ClusterSettings, GroupPorts, LocalCluster
from kourou.settings.sources import load_settings
from kourou.sync import Client
from kourou_ha_replica.app import ReplicaSettings

CONF = Path(__file__).parents[2] / "conf"
MODES = {
    "2m-noslave": ("ASYNC_MASTER", ("broker-a", "broker-b")),
    "2m-2s-async": ("ASYNC_MASTER", ("broker-a", "broker-a-s", "broker-b", "broker-b-s")),
    "2m-2s-sync": ("SYNC_MASTER", ("broker-a", "broker-a-s", "broker-b", "broker-b-s")),
}
FILES = [(mode, name) for mode, (_, names) in MODES.items() for name in names]
GROUP = ("broker-n0", "broker-n1", "broker-n2")
"""Files of conf/dledger: a group that elects its leader."""

TRIED = ("listenPort=0", "brokerIP1=127.0.0.1", "mappedFileSizeCommitLog=1048576")
"""What four machines of their own would not need."""


def settings_of(mode: str, name: str) -> BrokerSettings:
    file = CONF / mode / f"{name}.properties"
    if name.endswith("-s"):
        found = load_settings(
            ReplicaSettings,
            arguments={"namesrvAddr": "127.0.0.1:9876"},
            environment={},
            file=file,
        )
    else:
        found = load_settings(BrokerSettings, arguments={}, environment={}, file=file)
    assert found.warnings == (), "every key does something"
    return found.settings


@pytest.mark.feature("F142")
@pytest.mark.parametrize(("mode", "name"), FILES, ids=[f"{mode}/{name}" for mode, name in FILES])
def test_every_file_says_what_its_name_does(mode: str, name: str) -> None:
    settings = settings_of(mode, name)
    leader = name.removesuffix("-s")
    assert (settings.cluster_name, settings.broker_name) == ("DefaultCluster", leader)
    follows = name.endswith("-s")
    assert settings.broker_id == int(follows)
    assert settings.broker_role == ("SLAVE" if follows else MODES[mode][0])
    assert (settings.sync_flush, settings.reserved_hours) == (False, 48)
    text = (CONF / mode / f"{name}.properties").read_text(encoding="utf-8")
    service = "ha-replica" if follows else "broker"
    assert f"kourou {service} -n NAME_SERVERS -c conf/{mode}/{name}.properties" in text


def test_there_are_no_files_but_these() -> None:
    found = {path.relative_to(CONF).as_posix() for path in CONF.rglob("*") if path.is_file()}
    pairs = {f"{mode}/{name}.properties" for mode, name in FILES}
    assert found == {"README.md", *pairs, *(f"dledger/{name}.conf" for name in GROUP)}


def test_the_members_of_the_group_agree_on_who_is_where() -> None:
    """All three fit on one machine, as RocketMQ's files of the same names do."""
    found = {}
    for name in GROUP:
        file = CONF / "dledger" / f"{name}.conf"
        loaded = load_settings(ReplicaSettings, arguments={}, environment={}, file=file)
        assert loaded.warnings == (), "every key does something"
        text = file.read_text(encoding="utf-8")
        assert f"kourou ha-replica -n NAME_SERVERS -c conf/dledger/{name}.conf" in text
        found[name] = loaded.settings
    assert {one.raft_group for one in found.values()} == {"RaftNode00"}
    assert {one.cluster_name for one in found.values()} == {"RaftCluster"}
    assert [f"broker-{one.raft_self}" for one in found.values()] == list(GROUP)
    assert [one.broker_id for one in found.values()] == [1, 2, 3]
    assert len({tuple(one.raft_peers.items()) for one in found.values()}) == 1
    assert len({one.store_root for one in found.values()}) == 3
    bound = [
        address
        for one in found.values()
        for address in (
            *(one.members_bind_address, one.zmq_bind_address),
            *one.tcp_listeners.values(),
        )
    ]
    assert len(set(bound)) == len(bound) == 12
    for one in found.values():
        assert one.members_bind_address == one.raft_peers[one.raft_self or ""]


@pytest.fixture(params=list(MODES))
def started(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, LocalCluster]]:
    """A name server, and a process for each file of a mode, started as its first lines say."""
    mode: str = request.param
    with LocalCluster(tmp_path, ClusterSettings(brokers=0)) as cluster:
        children = []
        for name in MODES[mode][1]:
            module = "kourou_ha_replica" if name.endswith("-s") else "kourou_broker"
            view = [*TRIED, f"storePathRootDir={tmp_path / name}"]
            children.append(
                cluster.children.start_module(
                    name,
                    module,
                    *("-n", cluster.address, "-c", str(CONF / mode / f"{name}.properties")),
                    *(word for setting in view for word in ("--set", setting)),
                )
            )
        for child in children:
            child.wait_for_ready()
        yield mode, cluster


@pytest.mark.feature("F142")
def test_every_cluster_starts_and_keeps_what_it_promises(
    started: tuple[str, LocalCluster],
) -> None:
    mode, cluster = started
    role, names = MODES[mode]
    settings = ClientSettings(poll_name_server_interval_ms=100)
    patient = ProducerSettings(send_timeout_ms=30_000, retry_times_when_send_failed=20)
    with Client(cluster.address, settings=settings, producer=patient) as mq:
        assert sorted(mq.admin.cluster.info().brokers) == ["broker-a", "broker-b"]
        mq.admin.topics.create("orders", queues=2)
        copied = len(names) == 4
        waiting = {"broker-a", "broker-b"} if copied and role == "SYNC_MASTER" else set()
        while waiting:  # the followers join when they have all; until then senders are told
            result = mq.send("orders", b"who copies?")
            if result.status.value == "SEND_OK":
                waiting.discard(result.queue.broker_name)
        found = mq.admin.replicas.of()
        while any(one.view is None for one in found):  # a follower answers when it has a log
            found = mq.admin.replicas.of()
        assert {(one.broker_name, one.registered_id) for one in found} == {
            (name.removesuffix("-s"), int(name.endswith("-s"))) for name in names
        }
        assert {one.view.broker_role for one in found if one.view.leads} == {role}
        if waiting or role == "SYNC_MASTER":
            assert {one.view.in_sync for one in found if one.view.leads} == {(1,)}


@pytest.fixture
def group(tmp_path: Path) -> Iterator[LocalCluster]:
    """A name server, and a process for each file of conf/dledger, with ports of this machine."""
    ports = GroupPorts(len(GROUP))
    peers = ports.settings(0)["dLegerPeers"]
    with LocalCluster(tmp_path, ClusterSettings(brokers=0)) as cluster:
        for name in GROUP:
            view = [*TRIED, f"storePathRootDir={tmp_path / name}", f"dLegerPeers={peers}"]
            cluster.members.append(
                cluster.children.start_module(
                    name,
                    "kourou_ha_replica",
                    *("-n", cluster.address, "-c", str(CONF / "dledger" / f"{name}.conf")),
                    *(word for setting in view for word in ("--set", setting)),
                )
            )
        for child in cluster.members:
            child.wait_for_ready()
        yield cluster
    ports.release()


@pytest.mark.feature("F149", "F150", "F152")
def test_the_group_elects_a_leader_and_serves(group: LocalCluster) -> None:
    patient = ProducerSettings(send_timeout_ms=30_000, retry_times_when_send_failed=20)
    with Client(group.address, producer=patient) as mq:
        sent = mq.send("orders", b"who leads?")
        assert sent.status == "SEND_OK"
        assert sent.queue.broker_name == "RaftNode00"
        found = mq.admin.replicas.of()
        assert sorted(one.view.broker_id for one in found) == [1, 2, 3]
        (leader,) = [one for one in found if one.view.leads]
        assert leader.registered_id == 0
        with mq.subscribe("orders") as messages:
            assert next(iter(messages)).body == b"who leads?"
