"""Routes are asked once, kept without limit, and renewed."""

from __future__ import annotations

import asyncio
import random

import pytest

from kourou.client.connections import Connections
from kourou.client.discovery import NameServers
from kourou.client.name_servers import NameServerChoice
from kourou.client.route_table import RouteTable
from kourou.errors import TopicNotFound, UnknownOutcome
from kourou.protocol.messages.namesrv import GetRouteInfoByTopic

NAMESRV = "127.0.0.1:19876"


@pytest.fixture
async def table(cluster, broker):
    connections = Connections(cluster.dial, lambda *_: None)
    choice = NameServerChoice(
        NameServers((NAMESRV,), "test"),
        connections,
        timeout_ms=100,
        list_interval_ms=1_000,
        chance=random.Random(1),
    )
    table = RouteTable(choice, interval_ms=5, chance=random.Random(1))
    yield table
    table.close()
    connections.close()


def asked(cluster, topic):
    return sum(
        isinstance(request, GetRouteInfoByTopic) and request.topic == topic
        for _, request in cluster.asked
    )


async def test_concurrent_callers_share_one_question(cluster, table):
    assert table.known("T") is None
    found = await asyncio.gather(*(table.find("T") for _ in range(5)))
    assert len({id(one) for one in found}) == 1
    assert table.known("T") is found[0]
    await table.find("T")
    assert asked(cluster, "T") == 1


async def test_unknown_topics(cluster, table):
    with pytest.raises(TopicNotFound):
        await table.find("New")
    assert await table.find_existing("New") is None


@pytest.mark.feature("F291")
async def test_producers_borrow_the_default_route_and_consumers_do_not(cluster, table):
    borrowed = await table.find("New", default_topic="TBW102", default_queue_nums=3)
    assert borrowed.borrowed
    assert len(borrowed.writable) == 3
    with pytest.raises(TopicNotFound):
        await table.find("New")
    cluster.topics["New"] = (2, 2)
    own = await table.find("New")
    assert not own.borrowed
    assert len(own.writable) == 2


@pytest.mark.feature("F034", "F287", "F026")
async def test_routes_are_renewed_and_changes_are_told(cluster, table):
    changed = asyncio.Event()
    await table.find("T")
    table.listen(lambda topic: changed.set() if topic == "T" else None)
    table.start()
    cluster.topics["T"] = (6, 6)
    await changed.wait()
    assert len(table.known("T").writable) == 6


async def test_an_equal_route_changes_nothing(cluster, table):
    changes = []
    before = await table.find("T")
    table.listen(changes.append)
    assert await table.refresh("T") is before
    table.unlisten(changes.append)
    assert changes == []


async def test_a_watched_topic_is_looked_for(cluster, table):
    appeared = asyncio.Event()
    table.listen(lambda _: appeared.set())
    table.watch("Later")
    table.start()
    cluster.topics["Later"] = (1, 1)
    await appeared.wait()
    assert table.known("Later") is not None


@pytest.mark.fault
async def test_the_last_route_is_kept_while_name_servers_are_down(cluster, table):
    known = await table.find("T")
    cluster.down.add(NAMESRV)
    with pytest.raises(UnknownOutcome):
        await table.refresh("T")
    assert table.known("T") is known


async def test_a_stale_route_is_asked_for_once(cluster, table):
    changed = asyncio.Event()
    await table.find("T")
    table.listen(lambda _: changed.set())
    cluster.topics["T"] = (5, 5)
    for _ in range(10):
        table.stale("T")
    await changed.wait()
    assert asked(cluster, "T") == 2


async def test_a_deleted_topic_is_forgotten(cluster, table):
    await table.find("T")
    table.forget("T")
    assert table.known("T") is None


async def test_addresses_of_all_routes(cluster, table, broker):
    cluster.broker("broker-b")
    await table.find("T")
    assert table.addresses() == {"broker-a:20911", "broker-b:20911"}
