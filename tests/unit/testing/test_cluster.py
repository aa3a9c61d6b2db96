"""A cluster in this process is whole, is used from any thread, and leaves nothing behind."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from itertools import pairwise

import pytest

from kourou import Client as AsyncClient
from kourou.client.session import io_thread
from kourou.errors import ConfigError
from kourou.protocol.messages.namesrv import UnregisterBroker
from kourou.sync import Client
from kourou.testing.cluster import Cluster, unique_name
from kourou.testing.cluster_thread import ClusterClock, ClusterThread, run_elsewhere


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


# -- how a broker ends ----------------------------------------------------------------------------


@pytest.mark.parametrize(("end", "dies"), [("stop", False), ("kill", True)])
def test_a_stopped_broker_says_farewell_and_closes_its_store_and_a_dead_one_does_not(
    kourou_cluster, monkeypatch, end, dies
):
    cluster = kourou_cluster(1)
    (broker,) = cluster.members
    port, abort = broker.service.server.port, broker.service.store.paths.abort
    loop, heard = cluster._namesrv._loop, []
    offer_all = loop.offer_all

    def hear(received) -> None:
        heard.extend(type(one.request) for one in received)
        offer_all(received)

    monkeypatch.setattr(loop, "offer_all", hear)
    cluster._thread.run(getattr(broker, end)())
    assert not broker.is_up
    assert (UnregisterBroker in heard) is not dies
    assert broker.disk.exists(abort) is dies, "the next one knows whether it was closed"
    cluster.chaos.restart()
    assert broker.service.server.port == port


def test_a_start_that_fails_leaves_its_port_and_store_free(kourou_cluster, monkeypatch):
    cluster = kourou_cluster(1)
    cluster.chaos.kill()
    monkeypatch.setattr("kourou.testing.cluster_broker.MortalBroker.serve", refuse)
    with pytest.raises(ConfigError, match="not today"):
        cluster.chaos.restart()
    assert not cluster.is_up("broker-a")
    monkeypatch.undo()
    cluster.chaos.restart()


async def refuse(_self) -> None:
    raise ConfigError("not today")


# -- time that is advanced carries everything with it; time that leaps leaves it behind ------------


@pytest.fixture
def settled() -> list[int]:
    """How far the clock was ahead, each time that was waited for what goes on."""
    return []


@pytest.fixture
def due() -> list[int]:
    """When the next delayed message is due."""
    return []


@pytest.fixture
def clock(settled, due):
    thread = ClusterThread()

    async def settle() -> None:
        settled.append(thread.clock.ahead_ms)

    yield ClusterClock(thread, thread.clock, settle, lambda: next(iter(due), None))
    thread.stop()


def test_it_goes_in_steps_with_a_pause_before_and_after_each(clock, settled):
    clock.advance(seconds=10)
    assert settled == list(range(0, 10_001, 200))


def test_a_step_ends_where_something_is_due(clock, settled, due):
    due.append(clock.now_ms + 1_234)
    clock.advance(seconds=10)
    assert 1_100 < settled[7] <= 1_234
    assert settled[6] == 1_200
    assert settled[-1] == 10_000


def test_long_ways_have_steps_that_no_request_times_out_in(clock, settled):
    clock.advance(minutes=30, hours=1, days=1)
    assert settled[-1] == 1_000 * (30 * 60 + 3_600 + 86_400)
    longest = max(later - earlier for earlier, later in pairwise(settled))
    assert longest == 2_000


def test_a_leap_is_one_step_before_which_all_that_is_under_way_arrives(clock, settled):
    clock.leap(hours=72)
    assert settled == [0, 72 * 3_600_000]


def test_it_never_goes_back(clock):
    for go in (clock.advance, clock.leap):
        with pytest.raises(AssertionError, match="does not go back"):
            go(seconds=-1)


def test_heartbeats_go_on_while_time_is_advanced(kourou_cluster):
    cluster = kourou_cluster(1)
    topic = cluster.create_topic()
    with cluster.client("g") as client, client.subscribe(topic):
        members = client.admin.groups.members
        assert len(members("g")) == 1
        cluster.clock.advance(minutes=10)  # a member that is silent for two minutes is given up
        assert [one.client_id for one in members("g")] == [client.client_id]


def test_a_held_pull_ends_in_its_time_and_the_next_message_comes_at_once(kourou_cluster):
    cluster = kourou_cluster(1)
    topic = cluster.create_topic(queues=1)
    seen = []
    with cluster.client("g") as client, client.listen(topic, lambda one: seen.append(one.body)):
        cluster.clock.advance(minutes=2)
        client.send(topic, b"after two minutes")
        cluster.sent().consumed(topic, "g")
    assert seen == [b"after two minutes"]


# -- work on the cluster's thread, from threads and loops of all kinds -----------------------------


ADDRESS = "tcp://127.0.0.1:9"


@pytest.fixture
def thread():
    thread = ClusterThread()
    yield thread
    thread.stop()


async def who() -> str:
    return threading.current_thread().name


async def for_ever() -> None:
    await asyncio.Event().wait()


async def fails() -> None:
    raise TimeoutError("its own")


def test_what_takes_too_long_is_ended_and_said(thread):
    with pytest.raises(TimeoutError, match="not done within"):
        thread.run(for_ever(), within_s=0)
    with pytest.raises(TimeoutError, match="its own"):
        thread.run(fails())


def test_a_client_that_was_left_open_is_reported():
    thread = ClusterThread()
    thread.register_thread(ADDRESS)
    io_thread.acquire(ADDRESS)
    with pytest.warns(ResourceWarning, match="1 clients of the cluster"):
        thread.stop()
    assert io_thread.clock_at(ADDRESS) is not thread.clock


async def test_a_coroutine_runs_elsewhere_even_from_within_a_loop():
    assert run_elsewhere(who()) == "kourou-elsewhere"
    with pytest.raises(TimeoutError, match="its own"):
        run_elsewhere(fails())
