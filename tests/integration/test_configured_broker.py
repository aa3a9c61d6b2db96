"""A broker process does what its settings file says: where it stores, listens, and is found."""

from __future__ import annotations

import itertools
import shutil
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kourou.broker.config import BrokerSettings
from kourou.client.settings.client_settings import ClientSettings
from kourou.engine.admin.access_gate import USERS_UNCOPIED
from kourou.model.message import SendStatus
from kourou.model.ports import ZMQ_PORT_SHIFT
from kourou.service.local_cluster import ClusterSettings, LocalCluster
from kourou.service.processes import Child, free_port
from kourou.sync import Client

Start = Callable[..., Child]
QUICK = ClientSettings(poll_name_server_interval_ms=100)
SMALL = {"mappedFileSizeCommitLog": 1 << 20, "maxHashSlotNum": 1_000, "maxIndexNum": 4_000}
KEYS = {
    "storePathCommitLog": "log-disk/log",
    "storePathConsumeQueue": "queue-disk/queues",
    "storePathIndex": "index-disk/keys",
    "storeCheckpoint": "small-disk/times",
    "abortFile": "small-disk/running",
}
SENDS_MAX = 300
"""So often a master is asked, ten times a second, whether a slave has all of its log."""

_numbers = itertools.count(1)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    """A name server alone."""
    with LocalCluster(tmp_path / "cluster", ClusterSettings(brokers=0)) as running:
        yield running


@pytest.fixture
def start(cluster: LocalCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Start:
    """`start(key=value…)`: a broker with a settings file of these keys, and a home of its own."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))

    def begin(module: str = "kourou_broker", **keys: object) -> Child:
        given = {
            "namesrvAddr": cluster.address,
            "listenPort": 0,
            "adminEnable": "false",
            **SMALL,
            **keys,
        }
        file = tmp_path / f"{module}.conf"
        file.write_text("".join(f"{key}={value}\n" for key, value in given.items()))
        child = cluster.children.start_module(module, module, "-c", str(file))
        child.wait_for_ready()
        return child

    return begin


def read_all(mq: Client, topic: str) -> list[bytes]:
    reader = mq.pull_consumer(f"reader-{next(_numbers)}")
    (queue,) = reader.queues(topic)
    return [message.body for message in reader.pull(queue, 0).messages]


@pytest.mark.feature("F059", "F335", "F336", "F337", "F338", "F339")
def test_each_path_may_be_on_a_disk_of_its_own(
    cluster: LocalCluster, start: Start, tmp_path: Path
) -> None:
    """The broker writes there, recovers from there after a kill, and leaves the root alone."""
    root = tmp_path / "root"
    places = {key: tmp_path / place for key, place in KEYS.items()}
    told = {"brokerIP1": "127.0.0.1", "storePathRootDir": root, **places}
    broker = start(**told)
    with Client(cluster.address, settings=QUICK) as mq:
        mq.admin.topics.create("orders", queues=1)
        mq.send("orders", b"first", keys=["A-1"])
        assert b"first" in (places["storePathCommitLog"] / f"{0:020d}").read_bytes()
        assert read_all(mq, "orders") == [b"first"]
        assert list((places["storePathConsumeQueue"] / "orders" / "0").iterdir())
        assert list(places["storePathIndex"].iterdir())
        assert places["abortFile"].exists()
        broker.kill()
        shutil.rmtree(places["storePathIndex"])
        broker = start(**told)
        mq.send("orders", b"second", keys=["A-2"])
        assert read_all(mq, "orders") == [b"first", b"second"]
        for key in ("A-1", "A-2"):
            assert [key in one.keys for one in mq.admin.messages.by_key("orders", key)] == [True]
    assert broker.stop() == 0
    assert places["storeCheckpoint"].stat().st_size > 0
    assert not places["abortFile"].exists()
    assert sorted(path.name for path in root.iterdir()) == ["config", "kourou", "lock"]


@pytest.mark.feature("F059", "F335", "F336", "F337", "F338", "F339")
def test_a_store_is_below_the_home_directory_by_default(
    cluster: LocalCluster, start: Start, tmp_path: Path
) -> None:
    broker = start(brokerIP1="127.0.0.1")
    store = tmp_path / "home" / "store"
    with Client(cluster.address, settings=QUICK) as mq:
        mq.admin.topics.create("orders", queues=1)
        mq.send("orders", b"first", keys=["A-1"])
    assert b"first" in (store / "commitlog" / f"{0:020d}").read_bytes()
    assert (store / "abort").exists()
    assert broker.stop() == 0
    assert list((store / "consumequeue" / "orders" / "0").iterdir())
    assert list((store / "index").iterdir())
    assert (store / "checkpoint").stat().st_size > 0
    assert not (store / "abort").exists()


@pytest.mark.feature("F325", "F327", "F328", "F329")
def test_clients_find_it_under_the_name_address_and_port_of_its_file(
    cluster: LocalCluster, start: Start
) -> None:
    """127.0.0.7 is this machine, and no address that a broker would find by itself."""
    port = free_port(ZMQ_PORT_SHIFT)
    start(listenPort=port, brokerIP1="127.0.0.7", brokerName="till-7", brokerClusterName="shop")
    with socket.create_connection(("127.0.0.1", port), timeout=30):
        pass
    with Client(cluster.address, settings=QUICK) as mq:
        info = mq.admin.cluster.info()
        assert {name: sorted(brokers) for name, brokers in info.clusters.items()} == {
            "shop": ["till-7"]
        }
        assert info.brokers["till-7"].broker_addrs == {0: f"127.0.0.7:{port + ZMQ_PORT_SHIFT}"}


@pytest.mark.feature("F327", "F328", "F329", "F349")
def test_without_them_it_has_the_hosts_name_and_address(
    cluster: LocalCluster, start: Start
) -> None:
    """And is an ASYNC_MASTER: no copy is waited for."""
    broker = start()
    host = socket.gethostname()
    with Client(cluster.address, settings=QUICK) as mq:
        info = mq.admin.cluster.info()
        assert info.clusters.keys() == {"DefaultCluster"}
        (name,) = info.brokers
        assert name == BrokerSettings().broker_name
        assert name == host or not host.isidentifier()
        port = str(broker.ready["zmq"]).rpartition(":")[2]
        assert info.brokers[name].broker_addrs == {0: f"{BrokerSettings().broker_ip}:{port}"}
        assert [one.view.broker_role for one in mq.admin.replicas.of()] == ["ASYNC_MASTER"]
        assert mq.send("orders", b"x").status is SendStatus.SEND_OK


@pytest.mark.feature("F325")
def test_a_broker_without_the_key_listens_at_10911() -> None:
    """Asked of the settings that a broker binds by: the port itself may be taken here."""
    listeners = BrokerSettings().tcp_listeners
    assert listeners["internal"].rpartition(":")[2] == "10911"


@pytest.mark.feature("F133", "F348", "F349")
def test_a_slave_copies_from_the_master_that_its_file_names(
    cluster: LocalCluster, start: Start, tmp_path: Path
) -> None:
    """No name server has told it of a master: the one that it asks knows of none."""
    pause = threading.Event()
    common = {"brokerIP1": "127.0.0.1", "brokerName": "broker-a"}
    keys = {"brokerRole": "SYNC_MASTER", "slaveTimeout": 60_000, "storePathRootDir": tmp_path / "m"}
    master = start(**common, **keys)
    with LocalCluster(tmp_path / "elsewhere", ClusterSettings(brokers=0)) as elsewhere:
        named = str(master.ready["replication"]).removeprefix("tcp://")
        own = {"brokerRole": "SLAVE", "brokerId": 1, "storePathRootDir": tmp_path / "s"}
        own |= {"namesrvAddr": elsewhere.address}
        slave = start("kourou_ha_replica", **common, **own, haMasterAddress=named)
        with Client(cluster.address, settings=QUICK) as mq:
            mq.admin.topics.create("orders", queues=1)
            statuses = (mq.send("orders", b"copied").status for _ in range(SENDS_MAX))
            assert any(status is SendStatus.SEND_OK or pause.wait(0.1) for status in statuses)
        assert slave.stop() == 0
        another = f"127.0.0.1:{free_port()}"
        start("kourou_ha_replica", **common, **own, haMasterAddress=another)
        with Client(elsewhere.address, settings=QUICK) as mq:
            [copy] = mq.admin.replicas.of("broker-a")
            assert (copy.view.leads, copy.view.leader_address) == (False, another)
    assert b"copied" in (tmp_path / "s" / "commitlog" / f"{0:020d}").read_bytes()


def test_a_slave_that_has_copied_nothing_says_so(cluster: LocalCluster, start: Start) -> None:
    start(
        "kourou_ha_replica",
        brokerIP1="127.0.0.1",
        brokerName="broker-a",
        brokerRole="SLAVE",
        brokerId=1,
        haMasterAddress=f"127.0.0.1:{free_port()}",
    )
    with Client(cluster.address, settings=QUICK) as mq:
        [slave] = mq.admin.replicas.of("broker-a")
        assert slave.view is None
        assert USERS_UNCOPIED in str(slave.error)
