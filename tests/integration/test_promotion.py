"""A follower is promoted by hand, in real processes: its leader dies, it leads, the old one comes
back, is outdone, and follows."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kourou.client.settings.client_settings import ClientSettings, ProducerSettings
from kourou.errors import Rejected, Unavailable
from kourou.protocol.bodies.broker_bodies import ReplicasView, decode_replicas
from kourou.protocol.messages.replication import GetReplicas
from kourou.service.local_cluster import ClusterSettings, LocalCluster, zmq_address
from kourou.sync import Client
from kourou.transport.zmq_client import ZmqConnection

NAME, TOPIC = "broker-a", "orders"
SMALL = {"mappedFileSizeCommitLog": str(1 << 20), "adminEnable": "false"}
QUICK = ClientSettings(poll_name_server_interval_ms=100)
PATIENT = ProducerSettings(send_timeout_ms=30_000, retry_times_when_send_failed=20)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    keys = {**SMALL, "brokerRole": "SYNC_MASTER", "slaveTimeout": "60000"}
    with LocalCluster(tmp_path, ClusterSettings(broker=keys, replicas=1)) as running:
        yield running


@pytest.fixture
def admin(cluster: LocalCluster, kourou_admin: Callable[..., Any]) -> Callable[..., Any]:
    def ask(*arguments: str, code: int = 0) -> list[dict[str, Any]]:
        done = kourou_admin(cluster.address, *arguments, "--json")
        assert done.returncode == code, done.stdout + done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]

    return ask


def client(cluster: LocalCluster) -> Client:
    return Client(cluster.address, settings=QUICK, producer=PATIENT)


def send_until_copied(mq: Client) -> None:
    while mq.send(TOPIC, b"who copies?").status.value != "SEND_OK":
        pass


def send_until_stored(mq: Client) -> None:
    """The same client, which asks for routes ten times a second."""
    while True:
        try:
            mq.send(TOPIC, b"who leads?")
        except Unavailable:
            continue
        return


def start_as_follower(cluster: LocalCluster, *, broker_id: int) -> None:
    """The old leader's store, under other settings."""
    keys = {**SMALL, "brokerName": NAME, "brokerRole": "SLAVE", "brokerId": str(broker_id),
            "brokerIP1": "127.0.0.1", "listenPort": "0",
            "storePathRootDir": str(cluster.store_folder(0))}  # fmt: skip
    conf = cluster.folder / "old.conf"
    conf.write_text("".join(f"{key}={text}\n" for key, text in keys.items()))
    child = cluster.children.start_module(
        "old", "kourou_ha_replica", "-c", str(conf), "-n", cluster.address
    )
    child.wait_for_ready()


def roles(rows: list[dict[str, Any]]) -> dict[int, str]:
    return {row["id"]: row["role"] for row in rows}


@pytest.mark.feature("F137", "F141")
def test_a_follower_is_promoted_and_its_old_leader_is_fenced_and_follows(
    cluster: LocalCluster, admin: Callable[..., Any]
) -> None:
    with client(cluster) as mq:
        send_until_copied(mq)
        before = [mq.send(TOPIC, b"before-%d" % n) for n in range(20)]
        assert {one.status.value for one in before} == {"SEND_OK"}
        rows = admin("replicas")
        assert roles(rows) == {0: "SYNC_MASTER", 1: "SLAVE"}
        assert [row["in sync"] for row in rows] == [None, True]
        with pytest.raises(Rejected, match="is online"):
            mq.admin.replicas.promote(NAME, 1)

        cluster.brokers[0].kill()
        (promoted,) = admin("promote", "-b", NAME, "-i", "1")
        assert promoted["role"] == "SYNC_MASTER"
        assert promoted["epoch"] == 2**32 + 65
        send_until_stored(mq)
        after = [mq.send(TOPIC, b"after-%d" % n) for n in range(20)]
        assert {one.status.value for one in after} == {"SLAVE_NOT_AVAILABLE"}
        assert roles(admin("replicas")) == {1: "SYNC_MASTER"}

        # The old leader comes back as what it was, and is told.
        old = cluster.start_broker(0)
        assert "another broker is the leader of this log" in old.log_tail(200)
        assert roles(admin("replicas")) == {1: "SYNC_MASTER"}, "routes have the promoted one"
        assert old.stop() == 0

        # It follows as soon as somebody says so, on the same store, under a brokerId of its own.
        start_as_follower(cluster, broker_id=2)
        send_until_copied(mq)
        assert roles(admin("replicas")) == {1: "SYNC_MASTER", 2: "SLAVE"}

        # A promoted one that starts again leads, whatever its settings say.
        assert cluster.replicas[0].stop() == 0
        cluster.start_replica_of(0, 0)
        send_until_stored(mq)
        assert roles(admin("replicas"))[1] == "SYNC_MASTER"
        history = mq.admin.name_servers.list("KOUROU_PROMOTED")
        assert history["DefaultCluster/broker-a"].startswith(f"{2**32 + 65} ")


@pytest.mark.feature("F137")
def test_a_living_leader_is_outdone_by_force_and_at_once(
    cluster: LocalCluster, admin: Callable[..., Any]
) -> None:
    """Not only at its next registration: the promoted one tells it."""
    with client(cluster) as mq:
        send_until_copied(mq)
        admin("promote", "-b", NAME, "-i", "1", code=1)
        (promoted,) = admin("promote", "-b", NAME, "-i", "1", "--force")
        view = asyncio.run(asked(zmq_address(cluster.brokers[0])))
        assert view.fenced == promoted["epoch"]
        assert roles(admin("replicas")) == {1: "SYNC_MASTER"}
        send_until_stored(mq)


async def asked(address: str) -> ReplicasView:
    connection = ZmqConnection(address.removeprefix("tcp://"))
    reply = await connection.request(GetReplicas(), timeout_ms=30_000)
    connection.close()
    return decode_replicas(b"".join(map(bytes, reply.body)))
