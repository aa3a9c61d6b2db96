"""Several messages at once."""

from __future__ import annotations

import asyncio
import logging

import pytest

from kourou import Client, Message, ProducerSettings, SendStatus
from kourou.client.batches import SomeNotSent
from kourou.client.io_thread import ClientClosed
from kourou.errors import (
    BadRequest,
    Code,
    DiskFull,
    MessageIllegal,
    NoPermission,
    Rejected,
    TopicNotFound,
    Unavailable,
)
from kourou.model.queue import MessageQueue
from kourou.protocol.frames import Kind
from kourou.protocol.messages.sending import SendRecords, SendRecordsResponse


async def test_many_messages_of_many_topics(cluster, client):
    broker = cluster.broker()
    messages = [Message("TU"[n % 2], b"%d" % n, keys=(f"k{n}",)) for n in range(30)]
    async with client() as mq:
        results = await mq.send_many(messages)
        more = await mq.send_many("T", ["a", "b"], tag="x")
        assert await mq.send_many([]) == []
    assert [result.queue.topic for result in results] == [message.topic for message in messages]
    stored = {one.message_id: one for one in broker.stored("T") + broker.stored("U")}
    assert [stored[result.message_id].body for result in results] == [
        message.body for message in messages
    ]
    assert [stored[result.message_id].body for result in more] == [b"a", b"b"]


async def test_more_than_one_frame_of_messages(cluster, client):
    broker = cluster.broker()
    async with client() as mq:
        results = await mq.send_many("T", [b"x"] * 5_000)
    assert len(results) == len(broker.stored("T")) == 5_000
    assert max(len(frame.sizes) // 4 for frame in broker.frames) <= 4_096


async def test_some_fail(cluster, client):
    broker = cluster.broker()
    cluster.topics.update(T=(1, 1), Bad=(1, 1))

    def refuse(request):
        answer = broker.on_SendRecords(None, 0, request, _body(broker, request))
        codes = [13 if lane.topic == "Bad" else 0 for lane in request.lanes]
        header = answer.header
        answer.header = type(header)(
            lane_codes=codes,
            lane_remarks=["no" if code else "" for code in codes],
            lane_offsets=header.lane_offsets,
            runs=header.runs,
        )
        return answer

    broker.intercept = on_send(refuse)
    async with client() as mq:
        with pytest.raises(SomeNotSent) as failure:
            await mq.send_many([Message("T", b"1"), Message("Bad", b"2"), Message("T", b"3")])
    first, second, third = failure.value.outcomes
    assert isinstance(second, MessageIllegal)
    assert (first.offset, third.offset) == (0, 1)


def _body(broker, request):
    """The body of the frame being answered; the fake keeps no copy, so drafts are made anew."""
    import struct

    from kourou.protocol.record import encode_draft, encode_host

    sizes = struct.unpack(f"<{len(request.sizes) // 4}I", request.sizes)
    lanes = struct.unpack(f"<{len(sizes)}H", request.lane_of)
    parts = []
    for size, number in zip(sizes, lanes, strict=True):
        lane = request.lanes[number]
        empty = encode_draft(
            topic=lane.topic.encode(),
            queue_id=lane.queue_id,
            body=b"",
            properties=b"",
            born_timestamp=1,
            born_host=encode_host(broker.host),
        )
        parts.append(
            encode_draft(
                topic=lane.topic.encode(),
                queue_id=lane.queue_id,
                body=bytes(size - len(empty)),
                properties=b"",
                born_timestamp=1,
                born_host=encode_host(broker.host),
            )
        )
    return b"".join(parts)


@pytest.mark.feature("F175")
async def test_a_batch_is_one_request_to_one_queue(cluster, client):
    broker = cluster.broker()
    cluster.topics["T"] = (4, 4)
    async with client() as mq:
        await mq.send("T", b"")
        before = len(broker.frames)
        results = await mq.send_batch("T", [b"1", Message("T", b"2", tag="x"), "3"], keys="k")
    assert len(broker.frames) == before + 1
    assert len({result.queue for result in results}) == 1
    first = results[0].offset
    assert [result.offset for result in results] == [first, first + 1, first + 2]


@pytest.mark.feature("F175")
async def test_limits_of_a_batch(cluster, client):
    cluster.broker()
    async with client() as mq:
        with pytest.raises(MessageIllegal, match="4097 messages"):
            await mq.send_batch("T", [b""] * 4097)
        incompressible = __import__("random").Random(1).randbytes(1_500_000)
        with pytest.raises(MessageIllegal, match="bytes"):
            await mq.send_batch("T", [incompressible] * 3)
        with pytest.raises(BadRequest, match="topic U"):
            await mq.send_batch("T", [Message("U", b"")])
        assert await mq.send_batch("T", []) == []
