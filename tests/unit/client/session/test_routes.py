"""Routes become queues."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kourou.client.session.routes import borrowed_queue_map, queue_map
from kourou.errors import DecodeError
from kourou.model.topic import BrokerData, MessageQueue, QueueData, TopicRoute


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
