"""A folder has one cluster at a time; addresses are written as people write them.

What clusters do is proved by the integration tests; make-believe children play the services here.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kourou.errors import ConfigError, Unavailable
from kourou.service import local_cluster
from kourou.service.local_cluster import LOCK_FILE, ClusterSettings, LocalCluster, plain_address


class Pretender:
    """Plays a child that is ready at once."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.ready = {"zmq": "tcp://127.0.0.1:19876"}

    def wait_for_ready(self) -> None: ...


class Pretenders:
    """Plays the set of children."""

    def __init__(self, folder: Path) -> None:
        self.names: list[str] = []

    def start_module(self, name: str, module: str, *arguments: str) -> Pretender:
        if name == "broker-b":
            raise Unavailable("broker-b ended with 1")
        self.names.append(name)
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


def test_after_a_stop_the_folder_is_free(tmp_path: Path) -> None:
    with LocalCluster(tmp_path, ClusterSettings()) as cluster:
        assert list(cluster.stop()) == ["broker-a", "namesrv"]
        with LocalCluster(tmp_path, ClusterSettings()):
            pass
    assert (tmp_path / LOCK_FILE).read_text() == ""


def test_after_a_start_that_failed_the_folder_is_free(tmp_path: Path) -> None:
    for _ in range(2):
        with pytest.raises(Unavailable):
            LocalCluster(tmp_path, ClusterSettings(brokers=2))


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
    from kourou.client.discovery import zmq_endpoint

    assert plain_address(zmq) == plain
    assert zmq_endpoint(plain) == zmq
