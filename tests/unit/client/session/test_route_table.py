"""Routes are asked once, kept without limit, and renewed."""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace

import pytest

from kourou.client.session import route_table
from kourou.client.session.route_table import RouteTable, borrowed_queue_map, queue_map
from kourou.errors import DecodeError, TopicNotFound, UnknownOutcome
from kourou.model.topic import BrokerData, MessageQueue, QueueData, TopicRoute
from kourou.protocol.messages.namesrv import GetRouteInfoByTopic


def route(*rows: tuple[str, int, int, int], members: dict[str, dict[int, str]] | None = None):
    addresses = members or {name: {0: f"{name}:1"} for name, *_ in rows}
    return TopicRoute(
        broker_datas=tuple(BrokerData("c", name, table) for name, table in addresses.items()),
        queue_datas=tuple(QueueData(name, read, write, perm) for name, read, write, perm in rows),
    )


@pytest.mark.feature("F162")
def test_read_and_write_queues_are_counted_apart_and_sorted():
    found = queue_map("T", route(("b", 3, 2, 6), ("a", 1, 1, 6)))
    assert found.writable == (
        MessageQueue("T", "a", 0),
        MessageQueue("T", "b", 0),
        MessageQueue("T", "b", 1),
    )
    assert len(found.readable) == 4


@pytest.mark.parametrize(("perm", "writes", "reads"), [(6, 2, 2), (4, 0, 2), (2, 2, 0), (0, 0, 0)])
def test_permissions(perm, writes, reads):
    found = queue_map("T", route(("a", 2, 2, perm)))
    assert (len(found.writable), len(found.readable)) == (writes, reads)


def test_without_a_leader_a_broker_takes_no_writes_but_is_read():
    found = queue_map("T", route(("a", 2, 2, 6), members={"a": {1: "f:1"}}))
    assert found.writable == ()
    assert len(found.readable) == 2
    assert found.leader_address("a") is None
    assert found.member_address("a", 0) == "f:1"


def test_a_broker_that_is_not_listed_has_no_queues():
    assert queue_map("T", route(("a", 2, 2, 6), members={"b": {0: "b:1"}})).writable == ()


def test_member_addresses():
    found = queue_map("T", route(("a", 1, 1, 6), members={"a": {0: "l:1", 2: "f:2"}}))
    assert found.member_address("a", 0) == "l:1"
    assert found.member_address("a", 2) == "f:2"
    assert found.member_address("a", 1) == "f:2"
    assert found.member_address("a", 7) == "l:1"
    assert found.member_address("x", 0) is None
    assert found.addresses() == ["l:1", "f:2"]


@pytest.mark.feature("F182")
def test_strict_order_has_its_queues_whoever_is_there():
    usual = route(("a", 4, 4, 6))
    strict = replace(usual, order_topic_conf="b:1; a:2;")
    assert queue_map("T", strict).writable == (
        MessageQueue("T", "a", 0),
        MessageQueue("T", "a", 1),
        MessageQueue("T", "b", 0),
    )
    assert queue_map("T", strict).readable == queue_map("T", usual).readable
    assert len(borrowed_queue_map("T", strict, 8).writable) == 4, "it is another topic's"


@pytest.mark.parametrize("conf", ["a", "a:", ":4", "a:x", "a:-1", "a:4,b:4", "a:99999", "a:999999"])
def test_an_order_that_is_none(conf):
    with pytest.raises(DecodeError, match="order configuration of topic T"):
        queue_map("T", replace(route(("a", 4, 4, 6)), order_topic_conf=conf))


def test_the_default_route_caps_what_is_asked():
    found = borrowed_queue_map("New", route(("a", 2, 8, 7)), default_topic_queue_nums=4)
    assert len(found.writable) == 2


NAMESRV = "127.0.0.1:19876"


@pytest.fixture
async def table(broker, choose):
    table = RouteTable(choose(), interval_ms=5, chance=random.Random(1))
    yield table
    table.close()


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


async def test_a_producer_does_not_share_a_question_that_is_over(table, monkeypatch):
    """A consumer's answer, "unknown", has come in the very moment in which the producer asks."""
    asking = table._route_of
    producer = []

    def ask():
        table._borrowing["New"] = ("TBW102", 3)
        producer.append(table._ask_task("New"))

    async def answer(topic):
        route = await asking(topic)
        if topic == "New" and not producer:
            # Behind the end of this question, and before those who wait for it are told.
            asyncio.get_running_loop().call_soon(ask)
        return route

    monkeypatch.setattr(table, "_route_of", answer)
    with pytest.raises(TopicNotFound):
        await table.find("New")
    assert (await producer[0]).borrowed


@pytest.mark.feature("F291")
async def test_producers_borrow_the_default_route_and_consumers_do_not(cluster, table):
    borrowed = await table.find("New", default_topic="TBW102", default_queue_nums=3)
    assert borrowed.borrowed
    assert len(borrowed.writable) == 3
    with pytest.raises(TopicNotFound):
        await table.find("New")
    with pytest.raises(
        TopicNotFound,
        match="not found: no registered broker has it or creates topics automatically",
    ):
        await table.find("Newer", default_topic="NOT_SERVED", default_queue_nums=3)
    cluster.topics["New"] = (2, 2)
    own = await table.find("New")
    assert not own.borrowed
    assert len(own.writable) == 2


async def test_a_broker_that_registers_between_the_questions_has_the_topic(
    cluster, table, monkeypatch
):
    """The default topic's route must not stand for that of a topic that has fewer queues."""
    asking = table._route_of

    async def answer(topic):
        route = await asking(topic)
        cluster.topics["New"] = (2, 2)
        return route

    monkeypatch.setattr(table, "_route_of", answer)
    found = await table.find("New", default_topic="TBW102", default_queue_nums=3)
    assert not found.borrowed
    assert len(found.writable) == 2


@pytest.mark.feature("F287", "F026")
async def test_routes_are_refreshed_and_changes_are_reported(cluster, table):
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


async def test_a_stale_route_is_asked_for_until_it_has_changed(
    cluster, table, broker, monkeypatch, tools
):
    monkeypatch.setattr(route_table, "STALE_PAUSE_MS", 2)
    changed = asyncio.Event()
    await table.find("T")
    table.listen(lambda _: changed.set())
    table.stale("T")
    await tools.until(broker, lambda: asked(cluster, "T") >= 3)
    cluster.topics["T"] = (5, 5)
    await changed.wait()


async def test_a_stale_route_that_stays_is_not_asked_for_ever(cluster, table, monkeypatch):
    monkeypatch.setattr(route_table, "STALE_PAUSE_MS", 1)
    monkeypatch.setattr(route_table, "STALE_LONGEST_MS", 1)
    await table.find("T")
    table.stale("T")
    while table._looking:
        table.stale("T")
        await asyncio.sleep(0)
    assert asked(cluster, "T") == 1 + route_table.STALE_LOOKS


async def test_the_next_leader_is_found_and_reported(cluster, table, broker, monkeypatch, tools):
    """One topic is asked meanwhile; then the others."""
    monkeypatch.setattr(route_table, "AWAIT_PAUSE_MS", 2)
    follower = cluster.follower(broker)
    cluster.topics["U"] = (1, 1)
    led = asyncio.Queue()
    table.listen_leaders(lambda *notified: led.put_nowait(notified))
    await table.find("T")
    await table.find("U")
    cluster.nobody_leads(broker)
    await table.refresh("T")
    before = asked(cluster, "T")
    await tools.until(broker, lambda: asked(cluster, "T") >= before + 3)
    assert asked(cluster, "U") == 1
    cluster.lead(follower)
    assert await led.get() == ("broker-a", follower.address)
    await tools.until(
        broker, lambda: table.known("U").leader_address("broker-a") == follower.address
    )
    assert led.empty()
    await asyncio.gather(*table._awaiting.values())


async def test_the_first_leader_that_is_known_is_no_change(table):
    notified = []
    table.listen_leaders(lambda *one: notified.append(one))
    await table.find("T")
    assert not notified
