"""A folder has one cluster at a time; addresses are written as people write them.

What clusters do is proved by the integration tests; make-believe children play the services here.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from kourou.errors import ConfigError, TimedOut, Unavailable
from kourou.service import local_cluster
from kourou.service.local_cluster import ClusterSettings, LocalCluster, plain_address


class Pretender:
    """Plays a child that is ready at once."""

    running = True

    def __init__(self, name: str) -> None:
        self.name = name
        self.ready = {"zmq": "tcp://127.0.0.1:19876"}

    def check_ready(self, timeout_ms: int = 0) -> bool:
        return True

    def wait_for_ready(self, timeout_ms: int = 0) -> None: ...


class Pretenders:
    """Plays the set of children."""

    def __init__(self, folder: Path) -> None:
        self.names: list[str] = []
        self.modules: list[str] = []

    def start_module(self, name: str, module: str, *arguments: str) -> Pretender:
        if name == "broker-b":
            raise Unavailable("broker-b ended with 1")
        self.names.append(name)
        self.modules.append(module)
        return Pretender(name)

    def stop_all(self, grace_ms: int = 0) -> dict[str, int]:
        return dict.fromkeys(reversed(self.names), 0)


@pytest.fixture(autouse=True)
def no_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_cluster, "Children", Pretenders)


def test_a_second_one_is_refused_and_touches_nothing(tmp_path: Path) -> None:
    with LocalCluster(tmp_path, ClusterSettings()):
        before = {path: path.read_bytes() for path in tmp_path.iterdir()}
        times = {path: path.stat().st_mtime_ns for path in before}
        with pytest.raises(ConfigError, match=f"is in use: process {os.getpid()} runs"):
            LocalCluster(tmp_path, ClusterSettings(brokers=3))
        assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before
        assert {path: path.stat().st_mtime_ns for path in before} == times


def test_after_a_start_that_failed_the_folder_is_free(tmp_path: Path) -> None:
    for _ in range(2):
        with pytest.raises(Unavailable):
            LocalCluster(tmp_path, ClusterSettings(brokers=2))


@pytest.mark.feature("F239")
@pytest.mark.parametrize(
    ("free_ports", "ports", "pages"),
    [(True, ["0", "0"], []), (False, ["10911"] * 2, ["18181", "18182"])],
)
def test_each_filter_server_has_its_broker_and_index(
    free_ports: bool, ports: list[str], pages: list[str], tmp_path: Path
) -> None:
    settings = ClusterSettings(
        free_ports=free_ports, filter_servers=2, filter_server={"logLevel": "DEBUG"}
    )
    with LocalCluster(tmp_path, settings) as cluster:
        assert [child.name for child in cluster.filter_servers] == [
            "filter-server-a0",
            "filter-server-a1",
        ]
        overrides = [
            settings_of(tmp_path / f"{child.name}.conf") for child in cluster.filter_servers
        ]
        broker = zmq_port(settings_of(tmp_path / "broker-a.conf"))
        first = cluster.filter_servers[0]
        assert cluster.start_filter_server(0, 1) is cluster.filter_servers[1], "started again"
        assert cluster.filter_servers[0] is first
        assert len(cluster.filter_servers) == 2
        assert list(cluster.stop())[-2:] == ["broker-a", "namesrv"], "they go before their broker"
    assert [each["filterServerIndex"] for each in overrides] == ["0", "1"]
    assert [each["connectWhichBroker"] for each in overrides] == [f"tcp://127.0.0.1:{broker}"] * 2
    assert [each["listenPort"] for each in overrides] == ports
    assert [each["adminPort"] for each in overrides] == pages or free_ports
    assert len({each["adminPort"] for each in overrides}) == 2
    assert [each["logLevel"] for each in overrides] == ["DEBUG"] * 2


@pytest.mark.parametrize(
    ("there", "filter_servers", "wanted", "kept"),
    [
        ({0, 1}, 1, {}, "0"),
        ({2, 5, 6}, 2, {}, "2"),
        ({0, 1}, 1, {"processCores": "1"}, "1"),
        ({0, 1}, 0, {}, None),
        ({0, 1, 2, 3}, 1, {}, None),
        ({0}, 1, {}, None),
    ],
)
def test_where_cores_are_few_a_broker_keeps_to_the_one_that_filters_leave(
    there: set[int],
    filter_servers: int,
    wanted: dict[str, str],
    kept: str | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: there)
    settings = ClusterSettings(filter_servers=filter_servers, broker=wanted)
    with LocalCluster(tmp_path, settings):
        assert settings_of(tmp_path / "broker-a.conf").get("processCores") == kept


def zmq_port(overrides: dict[str, str]) -> int:
    """Where a service with these settings listens for Kourou's clients."""
    return int(overrides.get("zmqPort", 0)) or int(overrides["listenPort"]) + 10_000


@pytest.mark.parametrize("free_ports", [True, False])
def test_ports_are_known_before_anything_starts_and_stay(free_ports: bool, tmp_path: Path) -> None:
    settings = ClusterSettings(free_ports=free_ports)
    files = [tmp_path / f"{name}.conf" for name in ("namesrv", "broker-a")]
    with LocalCluster(tmp_path, settings) as cluster:
        before = [settings_of(file) for file in files]
        ports = {int(one["adminPort"]) for one in before} | {zmq_port(one) for one in before}
        assert len(ports) == 4
        cluster.start_broker(0)
        assert [settings_of(file) for file in files] == before
        if free_ports:
            for port in ports:
                with socket.socket() as other, pytest.raises(OSError, match="in use"):
                    other.bind(("127.0.0.1", port))


def settings_of(file: Path) -> dict[str, str]:
    lines = file.read_text(encoding="utf-8").splitlines()
    return dict(line.split("=", 1) for line in lines)


@pytest.mark.parametrize(
    ("zmq", "plain"),
    [
        ("tcp://127.0.0.1:19876", "127.0.0.1:9876"),
        ("tcp://127.0.0.1:10001", "127.0.0.1:1"),
        ("tcp://127.0.0.1:10000", "127.0.0.1:10000"),
        ("tcp://127.0.0.1:20911", "127.0.0.1:20911"),
        ("tcp://[::1]:41234", "[::1]:41234"),
    ],
)
def test_an_address_as_people_write_it_means_the_same(zmq: str, plain: str) -> None:
    from kourou.client.session.discovery import zmq_endpoint

    assert plain_address(zmq) == plain
    assert zmq_endpoint(plain) == zmq


class Named:
    """Plays a name server that names one member after another."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *addresses: str) -> None:
        self.addresses = list(addresses)
        self.accepted: list[bool] = []
        monkeypatch.setattr(local_cluster, "leader_address", self.look)

    def look(
        self, name_server: str, broker: str, accepted: Callable[[str], bool], timeout_ms: int
    ) -> str:
        assert name_server.startswith("tcp://127.0.0.1:")
        for address in self.addresses:
            self.accepted.append(accepted(address))
            if self.accepted[-1]:
                return address
        raise TimedOut(f"{broker} has no leader after {timeout_ms} ms")


@pytest.mark.parametrize("free_ports", [False, True])
def test_the_members_of_a_group_know_one_another_before_any_of_them_runs(
    free_ports: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    named = Named(monkeypatch, "127.0.0.1:1", "127.0.0.1:19876")
    settings = ClusterSettings(free_ports=free_ports, raft=3, broker={"logLevel": "DEBUG"})
    with LocalCluster(tmp_path, settings) as cluster:
        names = ["broker-a-n0", "broker-a-n1", "broker-a-n2"]
        assert [child.name for child in cluster.members] == names
        assert (cluster.brokers, cluster.dependents) == ([], cluster.members)
        assert named.accepted == [False, True], "it waited until one of them leads"
        overrides = [settings_of(tmp_path / f"{name}.conf") for name in names]
        assert cluster.start_member(0, 1) is cluster.members[1], "started again"
        assert settings_of(tmp_path / "broker-a-n1.conf") == overrides[1], (
            "where the others know it"
        )
        assert len(cluster.members) == 3
        if free_ports:
            for address in overrides[0]["dLegerPeers"].split(";"):
                with socket.socket() as other, pytest.raises(OSError, match="in use"):
                    other.bind(("127.0.0.1", int(address.rpartition(":")[2])))
    assert [one["dLegerSelfId"] for one in overrides] == ["n0", "n1", "n2"]
    assert [one["brokerName"] for one in overrides] == ["broker-a"] * 3
    assert [one["logLevel"] for one in overrides] == ["DEBUG"] * 3
    assert len({one["storePathRootDir"] for one in overrides}) == 3
    assert len({one["dLegerPeers"] for one in overrides}) == 1
    if free_ports:
        assert [one["listenPort"] for one in overrides] == ["0"] * 3
    else:
        assert [one["listenPort"] for one in overrides] == ["10911", "10931", "10951"]
        assert overrides[0]["dLegerPeers"] == (
            "n0-127.0.0.1:20912;n1-127.0.0.1:20932;n2-127.0.0.1:20952"
        )
    for one in overrides:
        settings_class_takes(one)


def settings_class_takes(overrides: dict[str, str]) -> None:
    """What is written is what a member reads."""
    from kourou.settings.sources import load_settings
    from kourou_ha_replica.app import ReplicaSettings

    loaded = load_settings(ReplicaSettings, arguments=overrides, environment={})
    assert loaded.warnings == ()
    assert loaded.settings.raft_enabled


@pytest.mark.parametrize("others", [{"replicas": 1}, {"filter_servers": 1}])
def test_a_group_has_no_other_copies_and_no_filter_servers(others: dict[str, int]) -> None:
    with pytest.raises(ConfigError, match="replicates among its members"):
        ClusterSettings(raft=3, **others)  # type: ignore[arg-type]  # a shorthand
