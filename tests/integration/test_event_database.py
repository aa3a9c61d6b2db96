"""A real PostgreSQL as event store, and what happens while it is not there.

Messages and topics need the log alone, so they go on; the projection waits and then has everything
once. What lives in the database alone (a name server's key/value settings) says
METADATA_UNAVAILABLE until it is back.
"""

from __future__ import annotations

import asyncio
import json
import urllib.request
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from kourou import Client
from kourou.errors import Code
from kourou.eventstore.event_store import EventStore
from kourou.model.subscription import GroupConfig
from kourou.protocol.messages import namesrv as ask
from kourou.protocol.messages.broker_admin import GetControlEvents
from kourou.service.local_cluster import ClusterSettings, LocalCluster, zmq_address
from kourou.service.processes import Child, Children
from kourou.transport.zmq_client import WireReply, ZmqConnection
from kourou_rigs.postgres import PostgresServer
from kourou_rigs.reading import read_topic
from kourou_rigs.waiting import until

TIMEOUT_MS = 30_000


@pytest.fixture
def url(postgres: PostgresServer) -> str:
    return postgres.new_database()


def settings(url: str, brokers: int = 1, flush_interval_ms: int = 100) -> ClusterSettings:
    """What is flushed is projected, so it is flushed often."""
    broker = {
        "eventStoreUrl": url,
        "adminPort": "0",
        "flushCommitLogLeastPages": "1000",
        "flushCommitLogThoroughInterval": str(flush_interval_ms),
    }
    return ClusterSettings(brokers=brokers, broker=broker)


def database(broker: Child) -> dict[str, Any]:
    """What a broker says about its event store."""
    with urllib.request.urlopen(f"{broker.ready['admin']}/statistics") as page:
        found: dict[str, Any] = json.load(page)["event_store"]
    return found


async def caught_up(broker: Child) -> None:
    await until(lambda: database(broker) == {"behind": 0, "trouble": ""})


async def logged(broker: Child) -> list[tuple[int, int, str, str, Any]]:
    """Every control event, as the log has it."""
    connection = ZmqConnection(zmq_address(broker).removeprefix("tcp://"))
    found: list[Any] = []
    while True:
        request = GetControlEvents(from_offset=len(found), max_count=1_000)
        reply = await connection.request(request, timeout_ms=TIMEOUT_MS)
        some = json.loads(bytes(reply.body[0]))
        if not some:
            connection.close()
            return [
                (one["offset"], one["atMs"], one["actor"], one["aggregate"], one["event"]["type"])
                for one in found
            ]
        found += some


def projected(url: str, name: str = "broker-a") -> list[tuple[int, int, str, str, Any]]:
    """The same, as the database has it."""
    events = EventStore.open(url, f"DefaultCluster/{name}/0")
    try:
        return [
            (one.offset, one.at_ms, one.actor, one.event.aggregate, one.event.type)
            for one in events.events(limit=10_000)
        ]
    finally:
        events.close()


async def nothing_lost_nothing_twice(url: str, broker: Child) -> None:
    expected = await logged(broker)
    assert len(expected) > 5
    await caught_up(broker)
    # Progress may have been recorded since.
    assert projected(url)[: len(expected)] == expected
    assert [one[0] for one in expected] == list(range(len(expected)))


async def work(mq: Client, topic: str, count: int = 50) -> None:
    """A topic is made and changed, messages go there and back, progress is committed."""
    await mq.admin.topics.create(topic, queues=2)
    await mq.admin.topics.create(topic, queues=3)
    await mq.admin.groups.create(GroupConfig(f"group-{topic}"))
    for number in range(count):
        await mq.send(topic, b"%d" % number)
    read = await read_topic(mq, topic, f"group-{topic}")
    assert sorted(int(one.body) for one in read.values()) == list(range(count))
    puller = await mq.pull_consumer(f"group-{topic}")
    queues = await puller.queues(topic)
    await puller.commit({queue: 7 + queue.queue_id for queue in queues})
    assert {await puller.committed(queue) for queue in queues} == {7, 8, 9}
    await puller.close()


Away = Callable[[PostgresServer], AbstractContextManager[None]]
AWAY: list[Away] = [PostgresServer.frozen, PostgresServer.gone]


@pytest.mark.fault
@pytest.mark.parametrize("away", AWAY)
async def test_without_the_database_the_data_path_goes_on_and_it_catches_up(
    postgres: PostgresServer, url: str, tmp_path: Path, away: Away
) -> None:
    """Frozen it hangs, as behind a cut network; gone it refuses."""
    with LocalCluster(tmp_path, settings(url)) as cluster:
        broker = cluster.brokers[0]
        async with Client(cluster.address, group="till") as mq:
            await work(mq, "before")
            await caught_up(broker)
            with away(postgres):
                await work(mq, "during")
                assert "during" in await mq.admin.topics.list()
                assert database(broker)["behind"] >= 3
                if away is PostgresServer.gone:
                    await until(lambda: bool(database(broker)["trouble"]))
                    assert "cannot be used" in database(broker)["trouble"]
            await work(mq, "after")
        await nothing_lost_nothing_twice(url, broker)
        assert broker.stop() == 0


@pytest.mark.fault
async def test_a_broker_starts_without_its_database_and_catches_up(
    postgres: PostgresServer, url: str, tmp_path: Path
) -> None:
    with LocalCluster(tmp_path, settings(url)) as cluster:
        async with Client(cluster.address, group="till") as mq:
            await work(mq, "before")
        assert cluster.brokers[0].stop() == 0
        kept = projected(url)
        with postgres.gone():
            broker = cluster.start_broker(0)
            async with Client(cluster.address, group="till") as mq:
                assert {"before"} <= set(await mq.admin.topics.list())
                await work(mq, "during")
            assert broker.stop() == 0
            broker = cluster.start_broker(0)
            await until(lambda: bool(database(broker)["trouble"]))
        await nothing_lost_nothing_twice(url, broker)
        assert projected(url)[: len(kept)] == kept
        assert broker.stop() == 0


async def test_a_stop_projects_what_was_not_flushed_yet(url: str, tmp_path: Path) -> None:
    """The log is flushed once a minute here; the stop comes before that."""
    with LocalCluster(tmp_path, settings(url, flush_interval_ms=60_000)) as cluster:
        async with Client(cluster.address, group="till") as mq:
            await work(mq, "before")
        assert cluster.brokers[0].stop() == 0
        kept = projected(url)
        assert kept == (await logged(cluster.start_broker(0)))[: len(kept)]
        assert {"topic/before", "group/group-before"} <= {one[3] for one in kept}


@pytest.mark.fault
async def test_a_database_that_hangs_holds_up_no_stop(
    postgres: PostgresServer, url: str, tmp_path: Path
) -> None:
    with LocalCluster(tmp_path, settings(url)) as cluster:
        async with Client(cluster.address, group="till") as mq:
            await work(mq, "before")
            await caught_up(cluster.brokers[0])
            with postgres.frozen():
                await work(mq, "during")
                assert cluster.brokers[0].stop() == 0
        assert "the event store does not respond" in cluster.brokers[0].log_tail(20)
        await nothing_lost_nothing_twice(url, cluster.start_broker(0))


async def test_two_brokers_in_one_database_do_not_mix(url: str, tmp_path: Path) -> None:
    with LocalCluster(tmp_path, settings(url, brokers=2)) as cluster:
        one, other = cluster.brokers
        async with Client(cluster.address, group="till") as mq:
            for topic in ("orders", "bills"):
                await mq.admin.topics.create(topic, queues=2)
            for broker in (one, other):
                told = await logged(broker)
                await caught_up(broker)
                assert {"topic/orders", "topic/bills"} <= {each[3] for each in told}
                assert projected(url, broker.name)[: len(told)] == told
        assert other.stop() == 0
        before = projected(url, other.name)
        async with Client(cluster.address, group="till") as mq:
            await mq.admin.topics.create("alone", queues=1)
        await caught_up(one)
        assert "topic/alone" in {each[3] for each in projected(url, one.name)}
        assert projected(url, other.name) == before
        # Each starts from its own.
        assert one.stop() == 0
        async with Client(cluster.address, group="till") as mq:
            for number in (0, 1):
                again = cluster.start_broker(number)
                await caught_up(again)
                assert again.stop() == 0
        assert projected(url, other.name)[: len(before)] == before


class NameServer:
    """One whose key/value settings live in the database."""

    def __init__(self, folder: Path, url: str) -> None:
        self.folder = folder
        self.url = url
        self.children = Children(folder)

    def start(self) -> ZmqConnection:
        file = self.folder / "namesrv.conf"
        file.write_text(
            f"listenPort=0\nkvConfigPath={self.folder}/kvConfig.json\neventStoreUrl={self.url}\n"
        )
        child = self.children.start_module("namesrv", "kourou_namesrv", "-c", str(file))
        child.wait_for_ready()
        self.connection = ZmqConnection(zmq_address(child).removeprefix("tcp://"))
        return self.connection

    def stop(self) -> None:
        self.connection.close()
        assert set(self.children.stop_all().values()) == {0}


async def put(connection: ZmqConnection, value: str) -> WireReply:
    request = ask.PutKvConfig(namespace="N", key="k", value=value)
    return await connection.request(request, timeout_ms=TIMEOUT_MS)


async def get(connection: ZmqConnection) -> str | None:
    request = ask.GetKvConfig(namespace="N", key="k")
    reply = await connection.request(request, timeout_ms=TIMEOUT_MS)
    assert isinstance(reply.header, ask.GetKvConfigResponse), reply.remark
    return reply.header.value


@pytest.mark.fault
async def test_what_only_the_database_has_is_unavailable_until_it_is_back(
    postgres: PostgresServer, url: str, tmp_path: Path
) -> None:
    server = NameServer(tmp_path, url)
    try:
        connection = server.start()
        assert (await put(connection, "1")).code == Code.SUCCESS
        with postgres.gone():
            refused = await put(connection, "2")
            assert refused.code == Code.METADATA_UNAVAILABLE
            assert "the event store" in refused.remark
            assert "cannot be used" in refused.remark
            assert await get(connection) == "1"
        assert (await put(connection, "3")).code == Code.SUCCESS
        assert await get(connection) == "3"
    finally:
        server.stop()


@pytest.mark.fault
async def test_while_the_database_hangs_a_name_server_answers_everything_else(
    postgres: PostgresServer, url: str, tmp_path: Path
) -> None:
    server = NameServer(tmp_path, url)
    try:
        connection = server.start()
        assert (await put(connection, "1")).code == Code.SUCCESS
        with postgres.frozen():
            putting = asyncio.create_task(put(connection, "2"))
            for _ in range(20):
                assert await get(connection) == "1"
            assert not putting.done()
        reply = await putting
        # Whether it was in time or not, nobody is locked out afterwards.
        assert reply.code in (Code.SUCCESS, Code.METADATA_UNAVAILABLE)
        assert (await put(connection, "3")).code == Code.SUCCESS
        assert await get(connection) == "3"
    finally:
        server.stop()


@pytest.mark.fault
async def test_a_name_server_stops_while_its_database_hangs(
    postgres: PostgresServer, url: str, tmp_path: Path
) -> None:
    server = NameServer(tmp_path, url)
    connection = server.start()
    assert (await put(connection, "1")).code == Code.SUCCESS
    with postgres.frozen():
        putting = asyncio.create_task(put(connection, "2"))
        for _ in range(3):
            assert await get(connection) == "1"  # the other was read before
        server.stop()
    await asyncio.gather(putting, return_exceptions=True)
    connection = server.start()
    assert await get(connection) == "1"
    server.stop()
