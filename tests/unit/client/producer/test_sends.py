"""Sending, from `await` to the broker and back."""

from __future__ import annotations

import asyncio

import pytest

from kourou import SendStatus
from kourou.errors import BadRequest
from kourou.model.topic import MessageQueue
from kourou.protocol.wire.frames import FrameKind


@pytest.mark.feature("F164", "F001")
async def test_one_message(broker, producing):
    async with producing() as mq:
        result = await mq.send("T", "hello", tag="A", keys=["k"], properties={"own": "1"}, flag=2)
    [stored] = broker.stored("T")
    assert (stored.body, stored.tag, stored.keys, stored.flag) == (b"hello", "A", ("k",), 2)
    assert (stored.properties["own"], stored.properties["CLUSTER"]) == ("1", "c1")
    assert result.status is SendStatus.SEND_OK
    assert result.queue == MessageQueue("T", "broker-a", stored.queue_id)
    assert (result.offset, result.message_id) == (stored.offset, stored.message_id)
    assert broker.frames[0].producer_group == "p"


async def test_what_is_sent_in_one_turn_travels_in_few_frames(cluster, producing):
    broker = cluster.broker()
    cluster.topics.update(T=(2, 2), U=(2, 2))
    async with producing() as mq:
        await mq.send("T", b"")
        await mq.send("U", b"")
        before = len(broker.frames)
        results = await asyncio.gather(
            *(mq.send("TU"[number % 2], b"%d" % number) for number in range(40))
        )
    # The first one leaves at once since nothing is under way, of the others 32 before the turn is
    # over, but together where the reply to an earlier one took long.
    carried = [len(frame.sizes) // 4 for frame in broker.frames[before:]]
    assert carried in ([1, 32, 7], [1, 39])
    assert len({(one.queue, one.offset) for one in results}) == 40


async def test_a_message_that_its_sender_named_goes_to_its_names_queue(cluster, producing):
    broker = cluster.broker()
    cluster.topics["T"] = (8, 8)
    name = "0123456789ABCDEF" * 2
    async with producing() as mq:
        for _ in range(3):
            assert (await mq.send("T", b"x", message_id=name)).message_id == name
        results = await mq.send_batch("T", [b"a", b"b"], message_ids=[name, name[::-1]])
        await mq.send("T", b"y")
        with pytest.raises(BadRequest, match="use 32 hexadecimal digits in upper case"):
            await mq.send("T", b"x", message_id=name.lower())
        with pytest.raises(BadRequest, match="1 message IDs for 2"):
            await mq.send_batch("T", [b"a", b"b"], message_ids=[name])
    assert [one.message_id for one in results] == [name, name[::-1]]
    named = [one.queue_id for one in broker.stored("T") if one.message_id == name]
    assert len(set(named)) == 1
    assert [frame.attempt for frame in broker.frames] == [0, 0, 0, 0, 1]


@pytest.mark.feature("F178")
@pytest.mark.parametrize("used", [False, True])
async def test_messages_of_one_key_stay_in_order(broker, producing, used):
    async with producing() as mq:
        if used:
            await mq.send("T", b"first", order_key="same")
        await asyncio.gather(*(mq.send("T", b"%d" % n, order_key="same") for n in range(200)))
    bodies = [stored.body for stored in broker.stored("T")]
    assert bodies[used:] == [b"%d" % n for n in range(200)]


@pytest.mark.feature("F166")
async def test_oneway_does_not_wait_for_an_answer(cluster, one_queue, producing):
    async with producing() as mq:
        await mq.send("T", b"first")
        assert await mq.send_oneway("T", b"x") is None
        await mq.send("T", b"last")
    assert [stored.body for stored in one_queue.stored("T")] == [b"first", b"x", b"last"]
    kinds = [kind for wire in cluster.wires for kind in wire.kinds]
    assert kinds.count(FrameKind.ONEWAY) == 1


async def test_a_cancelled_send_does_not_disturb_the_others(cluster, producing):
    broker = cluster.broker()
    async with producing() as mq:
        await mq.send("T", b"")
        tasks = [asyncio.ensure_future(mq.send("T", b"x")) for _ in range(3)]
        await asyncio.sleep(0)
        tasks[1].cancel()
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    assert isinstance(outcomes[1], asyncio.CancelledError)
    assert len(broker.stored("T")) == 4


async def test_waiting_for_room_keeps_the_order(one_queue, producing):
    async with producing(pending_count_max=7) as mq:
        await mq.send("T", b"first")
        await asyncio.gather(*(mq.send("T", b"%d" % n) for n in range(100)))
    assert [one.body for one in one_queue.stored("T")][1:] == [b"%d" % n for n in range(100)]


@pytest.mark.parametrize("way", ["refused", "cancelled"])
async def test_all_waiting_sends_get_the_route_error(cluster, producing, way):
    cluster.broker()
    del cluster.topics["TBW102"]
    async with producing() as mq:
        sends = [asyncio.ensure_future(mq.send("New", b"x")) for _ in range(3)]
        await asyncio.sleep(0)
        if way == "cancelled":
            sends[0].cancel()
        outcomes = await asyncio.gather(*sends, return_exceptions=True)
        kinds = [type(one).__name__ for one in outcomes]
        first = "CancelledError" if way == "cancelled" else "TopicNotFound"
        assert kinds == [first, "TopicNotFound", "TopicNotFound"]
        cluster.topics["New"] = (1, 1)
        assert (await mq.send("New", b"x")).offset == 0, "the next one asks again"
