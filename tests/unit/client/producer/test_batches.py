"""Several messages at once."""

from __future__ import annotations

import asyncio

import pytest

from kourou import Message
from kourou.client.producer.batches import SomeNotSent, as_messages
from kourou.errors import (
    BadRequest,
    MessageIllegal,
)
from kourou.protocol.messages.sends import SendRecords, SendRecordsResponse
from kourou_rigs.wire_faults import Answer, always


@pytest.mark.feature("F164", "F167")
async def test_many_messages_of_many_topics(cluster, producing):
    broker = cluster.broker()
    messages = [Message("TU"[n % 2], b"%d" % n, keys=(f"k{n}",)) for n in range(30)]
    async with producing() as mq:
        results = await mq.send_many(messages)
        more = await mq.send_many("T", ["a", "b"], tag="x")
        assert await mq.send_many([]) == []
    assert [result.queue.topic for result in results] == [message.topic for message in messages]
    stored = {one.message_id: one for one in broker.stored("T") + broker.stored("U")}
    assert [stored[result.message_id].body for result in results] == [
        message.body for message in messages
    ]
    assert [stored[result.message_id].body for result in more] == [b"a", b"b"]
    for result in results + more:
        one = stored[result.message_id]
        assert (result.queue.queue_id, result.offset) == (one.queue_id, one.offset)
        assert result.offset_message_id.endswith(f"{one.position:016X}")


async def test_some_fail(cluster, producing):
    broker = cluster.broker()
    cluster.topics.update(T=(1, 1), Bad=(1, 1))

    def refuse(request):
        codes = [13 if target.topic == "Bad" else 0 for target in request.targets]
        header = SendRecordsResponse(
            target_codes=codes,
            target_remarks=["no" if code else "" for code in codes],
            target_offsets=[-1 if code else 7 for code in codes],
            runs=[(0, 500)],
        )
        return Answer(header=header)

    broker.faults[SendRecords] = always(refuse)
    async with producing() as mq:
        with pytest.raises(SomeNotSent) as failure:
            await mq.send_many([Message("T", b"1"), Message("Bad", b"2"), Message("T", b"3")])
    first, second, third = failure.value.outcomes
    assert isinstance(second, MessageIllegal)
    assert (first.offset, third.offset) == (7, 8)


@pytest.mark.feature("F175")
async def test_a_batch_is_one_request_to_one_queue(broker, producing):
    async with producing() as mq:
        await mq.send("T", b"")
        before = len(broker.frames)
        results = await mq.send_batch("T", [b"1", Message("T", b"2", tag="x"), "3"], keys="k")
    assert len(broker.frames) == before + 1
    assert len({result.queue for result in results}) == 1
    first = results[0].offset
    assert [result.offset for result in results] == [first, first + 1, first + 2]


async def test_a_batch_does_not_overtake_the_sends_before_it(broker, producing):
    async with producing() as mq:
        await mq.send("T", b"")
        before = [mq.send("T", b"x", order_key="k") for _ in range(3)]
        batch = mq.send_batch("T", [b"y", b"z"], order_key="k")
        *sent, last = await asyncio.gather(*before, batch)
    offsets = [result.offset for result in (*sent, *last)]
    assert offsets == sorted(offsets)


@pytest.mark.feature("F175")
async def test_limits_of_a_batch(cluster, producing):
    cluster.broker()
    async with producing() as mq:
        with pytest.raises(MessageIllegal, match="4097 messages"):
            await mq.send_batch("T", [b""] * 4097)
        incompressible = __import__("random").Random(1).randbytes(1_500_000)
        with pytest.raises(MessageIllegal, match="bytes"):
            await mq.send_batch("T", [incompressible] * 3)
        with pytest.raises(BadRequest, match="topic U"):
            await mq.send_batch("T", [Message("U", b"")])
        assert await mq.send_batch("T", []) == []


@pytest.mark.parametrize("bodies", ["abc", b"abc", bytearray(b"abc")])
def test_one_body_in_place_of_a_list_is_not_taken_apart(bodies) -> None:
    with pytest.raises(BadRequest, match="not a list of bodies"):
        as_messages("T", bodies, None, ())


def test_bodies_without_a_topic_are_refused() -> None:
    with pytest.raises(BadRequest, match=r"str is not a kourou\.Message \(name the topic first"):
        as_messages(["a", "b"], None, None, ())
