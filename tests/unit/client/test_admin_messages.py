"""Looking messages up."""

from __future__ import annotations

import pytest

from kourou.client.admin_messages import MessageNotFound
from kourou.errors import BadRequest, TopicNotFound
from kourou.protocol.message_id import encode_offset_id


@pytest.fixture
async def mq(broker, producing):
    async with producing() as mq:
        yield mq


@pytest.mark.feature("F260")
async def test_by_offset_id(cluster, broker, mq):
    cluster.broker("broker-b")
    for number in range(6):
        await mq.send("T", b"%d" % number)
    for one in cluster.brokers.values():
        for stored in one.stored("T"):
            name = encode_offset_id(stored.store_host, stored.position)
            message = await mq.admin.messages.by_offset_id(name)
            assert (message.body, message.queue.broker_name) == (stored.body, one.name)
            assert message.offset_message_id == name


async def test_an_offset_id_of_nobody(broker, mq):
    await mq.send("T", b"x")
    with pytest.raises(MessageNotFound):
        await mq.admin.messages.by_offset_id(encode_offset_id(broker.host, 999))
    elsewhere = encode_offset_id(("9.9.9.9", 1), broker.stored("T")[0].position)
    with pytest.raises(MessageNotFound):
        await mq.admin.messages.by_offset_id(elsewhere)
    with pytest.raises(BadRequest):
        await mq.admin.messages.by_offset_id("no id")


async def test_by_unique_key_and_by_either_id(broker, mq):
    result = await mq.send("T", b"x")
    assert (await mq.admin.messages.by_unique_key("T", result.message_id)).body == b"x"
    assert (await mq.admin.messages.by_id("T", result.message_id)).body == b"x"
    stored = broker.stored("T")[0]
    name = encode_offset_id(stored.store_host, stored.position)
    assert (await mq.admin.messages.by_id("T", name)).body == b"x"
    with pytest.raises(MessageNotFound):
        await mq.admin.messages.by_id("T", "0" * 32)


@pytest.mark.feature("F261", "F262", "F013")
async def test_by_key_exactly(cluster, mq):
    cluster.broker("broker-b")
    for number in range(4):
        await mq.send("T", b"%d" % number, keys=["order-1", f"line-{number}"])
    await mq.send("T", b"same hash", keys="other", properties={"collides": "order-1"})
    found = await mq.admin.messages.by_key("T", "order-1")
    assert sorted(message.body for message in found) == [b"0", b"1", b"2", b"3"]
    assert [m.body for m in await mq.admin.messages.by_key("T", "line-2")] == [b"2"]
    assert await mq.admin.messages.by_key("T", "nobody") == []


@pytest.mark.feature("F263")
async def test_by_key_and_time_newest_first(mq, broker):
    from kourou.model.queue import MessageQueue

    queue = MessageQueue("T", "broker-a", 0)
    for number in range(5):
        await mq.send("T", b"%d" % number, keys="k", queue=queue)
    found = await mq.admin.messages.by_key("T", "k", begin_ms=1_000_001, end_ms=1_000_003)
    assert [message.body for message in found] == [b"3", b"2", b"1"]


async def test_what_cannot_be_asked(mq):
    for bad in ({"key": ""}, {"key": "k", "count_max": 0}, {"key": "k", "count_max": 65}):
        with pytest.raises(BadRequest):
            await mq.admin.messages.by_key("T", **bad)
    with pytest.raises(TopicNotFound):
        await mq.admin.messages.by_key("Nobody", "k")
