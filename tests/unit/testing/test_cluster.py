"""A cluster in this process is whole, is used from any thread, and leaves nothing behind."""

from __future__ import annotations

import subprocess
import sys

import pytest

from kourou import Client as AsyncClient
from kourou.errors import ConfigError
from kourou.sync import Client
from kourou.testing.cluster import Cluster, unique_name


def test_brokers_have_names_and_share_every_topic(kourou_cluster):
    cluster = kourou_cluster(2)
    assert cluster.brokers == ["broker-a", "broker-b"]
    topic = cluster.create_topic(queues=3)
    with cluster.client() as client:
        queues = client.pull_consumer("g").queues(topic)
        assert sorted(queues) == sorted({one.queue for one in client.send_many(topic, [b""] * 6)})
        assert {one.broker_name for one in queues} == set(cluster.brokers)


def test_an_applications_own_clients_need_the_address_only(kourou_broker, kourou_topic):
    with Client(kourou_broker.address, group="g") as client:
        assert client.send(kourou_topic, b"x").status == "SEND_OK"


async def test_clients_wait_on_any_loop(kourou_broker, kourou_topic):
    async with AsyncClient(kourou_broker.address, group="g") as client:
        assert (await client.send(kourou_topic, b"x")).status == "SEND_OK"
    async with kourou_broker.async_client() as client:
        assert (await client.send(kourou_topic, b"x")).status == "SEND_OK"


def test_a_new_group_of_its_clients_begins_at_the_first_message(kourou_broker, kourou_topic):
    with kourou_broker.client(unique_name("g")) as client:
        client.send(kourou_topic, b"before anybody listened")
        with client.subscribe(kourou_topic) as messages:
            assert next(iter(messages)).body == b"before anybody listened"


def test_settings_are_a_brokers_and_wrong_ones_are_refused(kourou_cluster):
    cluster = kourou_cluster(1, settings={"autoCreateTopicEnable": False, "maxMessageSize": 4096})
    with cluster.client() as client:
        found = client.admin.brokers.config("broker-a")
        assert (found["autoCreateTopicEnable"], found["maxMessageSize"]) == ("false", "4096")
    with pytest.raises(ConfigError, match="flushDiskTyp"):
        kourou_cluster(1, settings={"flushDiskTyp": "SYNC_FLUSH"})


def test_in_memory_hardly_anything_is_written_and_on_disk_a_whole_store(tmp_path):
    for storage, there in (("memory", False), ("disk", True)):
        with Cluster(tmp_path / storage, storage=storage) as cluster:
            cluster.create_topic("orders")
            with cluster.client() as client:
                client.send("orders", b"x")
        assert (tmp_path / storage / "broker-a" / "commitlog").exists() is there


def test_a_store_on_disk_is_there_for_the_next_cluster(tmp_path):
    for number in range(2):
        with Cluster(tmp_path, storage="disk") as cluster, cluster.client() as client:
            if number == 0:
                cluster.create_topic("orders", queues=1)
            assert client.send("orders", b"x").offset == number


def test_clusters_live_side_by_side_and_each_has_its_time(kourou_cluster):
    one, two = kourou_cluster(1), kourou_cluster(1)
    one.create_topic("orders")
    with two.client() as client:
        assert "orders" not in client.admin.topics.list()
    one.clock.leap(hours=1)
    assert one.clock.now_ms - two.clock.now_ms > 3_500_000


STOPPED = """
import sys, threading
from contextlib import suppress
from pathlib import Path
from kourou.errors import ConfigError
from kourou.testing.cluster import Cluster

folder, *settings = sys.argv[1:]
cluster = Cluster(Path(folder), settings=dict(one.split("=") for one in settings))
with suppress(ConfigError):
    cluster.start()
    cluster.create_topic()
    cluster.stop()
    cluster.stop()
print(sorted(one.name for one in threading.enumerate()))
"""
"""In a process of its own: a cluster that other tests share starts its threads when it likes."""


@pytest.mark.parametrize("settings", [[], ["flushDiskTyp=SYNC_FLUSH"]], ids=["whole", "refused"])
def test_it_ends_with_all_its_threads(tmp_path, settings):
    command = [sys.executable, "-c", STOPPED, str(tmp_path), *settings]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == (
        "['MainThread']\n"
    )
