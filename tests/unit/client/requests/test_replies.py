"""Requests wait for their reply, replies find their way, and nothing is left behind."""

from __future__ import annotations

import asyncio

import pytest

from kourou.client.requests.replies import ReplyNotTaken, ReplyTimedOut
from kourou.errors import BadRequest, Code, DecodeError, KourouError, Throttled, Unavailable
from kourou.model.message import Property
from kourou.protocol.messages.groups import HeartBeat
from kourou.protocol.messages.sends import PushReplyMessageToClient, SendRecords, SendReplyMessage
from kourou.protocol.record.properties import decode_properties, encode_properties
from kourou.protocol.wire.frames import FrameKind
from kourou_rigs.wire_faults import Answer, always

REPLIES = "c1_REPLY_TOPIC"


@pytest.fixture
def asked(cluster, broker):
    """A broker with a topic for replies as well."""
    cluster.topics[REPLIES] = (1, 1)
    return broker


async def request_at(broker, tools, topic="T"):
    """The request that lies at the broker, as a consumer's pull would have it."""
    await tools.until(broker, lambda: broker.stored(topic))
    return broker.stored(topic)[-1]


async def received(mq, broker, tools, count=1):
    """The newest request as a consumer receives it."""
    stored = await request_at(broker, tools)
    consumer = await mq.pull_consumer("answering")
    place = (broker.name, stored.queue_id)
    queues = await consumer.queues("T")
    queue = next(one for one in queues if (one.broker_name, one.queue_id) == place)
    result = await consumer.pull(queue, stored.offset, count_max=count)
    return result.messages[-1]


async def test_a_request_and_its_reply(asked, producing, tools) -> None:
    async with producing() as mq, producing() as other:
        waiting = asyncio.create_task(
            mq.request("T", b"ping", tag="t", properties={"own": "1"}, body_type=dict)
        )
        message = await received(other, asked, tools)
        properties = message.properties
        assert properties["own"] == "1"
        assert properties["REPLY_TO_CLIENT"] == mq.client_id
        assert properties["TTL"] == "10000", "send_timeout_ms"
        assert len(properties["CORRELATION_ID"]) == 36
        await other.reply(message, {"said": "pong"}, tag="r", keys="k", properties={"more": "2"})
        reply = await waiting
        assert reply.body == {"said": "pong"}
        assert (reply.tag, reply.keys, reply.properties["more"]) == ("r", ("k",), "2")
        assert reply.stored().born_host[0] == "127.0.0.1"
        assert reply.raw_body == b'{"said":"pong"}'
        (sent,) = asked.requests(SendReplyMessage)
        assert (sent.topic, sent.queue_id, sent.producer_group) == (REPLIES, 0, "p")
        sent_properties = decode_properties(sent.properties.encode())
        assert sent_properties["MSG_TYPE"] == "reply"
        for name in ("CORRELATION_ID", "REPLY_TO_CLIENT", "TTL"):
            assert sent_properties[name] == properties[name]
        assert reply.message_id == sent_properties["UNIQ_KEY"]
        assert len(mq._core.requests) == 0


async def test_brokers_know_who_waits_before_the_request_leaves(asked, producing, tools) -> None:
    async with producing() as mq:
        tools.no_reply_in_time(mq, asked)
        waiting = asyncio.create_task(mq.request("T", b"1"))
        await tools.until(asked, lambda: asked.stored("T"))
        kinds = [type(one) for one in asked.seen if type(one) in (HeartBeat, SendRecords)]
        assert kinds[:2] == [HeartBeat, SendRecords]
        with pytest.raises(ReplyTimedOut):
            await waiting
        beats = kinds.count(HeartBeat)
        tools.no_reply_in_time(mq, asked)
        with pytest.raises(ReplyTimedOut):
            await mq.request("T", b"2")
        again = [type(one) for one in asked.seen].count(HeartBeat)
        assert again <= beats + 1, "it is not told again before every request"


async def test_no_reply_in_time(asked, producing, tools) -> None:
    async with producing() as mq:
        tools.no_reply_in_time(mq, asked)
        with pytest.raises(ReplyTimedOut, match="no reply within 20000 ms"):
            await mq.request("T", b"ping", timeout_ms=20_000)
        assert len(mq._core.requests) == 0


async def test_a_late_reply_is_counted_and_dropped(asked, producing, tools, caplog) -> None:
    async with producing() as mq, producing() as other:
        tools.no_reply_in_time(mq, asked)
        with pytest.raises(ReplyTimedOut):
            await mq.request("T", b"ping")
        message = await received(other, asked, tools)
        await other.reply(message, b"too late")
        await tools.until(asked, lambda: mq._core.requests.late == 1)
        assert "a reply to an unknown or expired request" in caplog.text
        assert message.properties["CORRELATION_ID"] in caplog.text


async def test_a_send_that_fails_is_raised_at_once(asked, producing) -> None:
    asked.faults[SendRecords] = always(Answer(Code.MESSAGE_ILLEGAL, remark="no"))
    async with producing() as mq:
        with pytest.raises(KourouError, match="no"):
            await mq.request("T", b"ping")
        assert len(mq._core.requests) == 0


async def test_a_cancelled_request_waits_no_more(asked, producing, tools) -> None:
    async with producing() as mq:
        waiting = asyncio.create_task(mq.request("T", b"ping"))
        await tools.until(asked, lambda: asked.stored("T"))
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert len(mq._core.requests) == 0


async def test_closing_ends_what_waits(asked, producing, tools) -> None:
    mq = await producing().open()
    waiting = asyncio.create_task(mq.request("T", b"ping"))
    await tools.until(asked, lambda: asked.stored("T"))
    requests = mq._core.requests
    await mq.close()
    with pytest.raises(Unavailable, match="closed before the reply"):
        await waiting
    with pytest.raises(Unavailable):
        requests.open(10)


async def test_too_many_may_not_wait(asked, producing, monkeypatch) -> None:
    monkeypatch.setattr("kourou.client.requests.replies.REQUESTS_WAITING_MAX", 0)
    async with producing() as mq:
        with pytest.raises(
            Throttled, match="requests of this client are already waiting for a reply"
        ):
            await mq.request("T", b"ping")
        assert asked.stored("T") == [], "nothing was sent"


async def test_a_reply_that_cannot_be_read_is_the_requesters_affair(
    asked, producing, tools
) -> None:
    async with producing() as mq, producing() as other:
        waiting = asyncio.create_task(mq.request("T", b"ping", body_type=dict))
        await other.reply(await received(other, asked, tools), b"no json")
        reply = await waiting
        with pytest.raises(DecodeError):
            _ = reply.body
        assert reply.raw_body == b"no json"


async def test_a_requester_acknowledges_the_reply_to_the_broker(
    asked, producing, cluster, tools
) -> None:
    async with producing() as mq:
        await mq.send("T", b"to connect")
        wire = cluster.wires_to(asked)[0]
        pushed = PushReplyMessageToClient(
            producer_group="p",
            topic=REPLIES,
            queue_id=0,
            sys_flag=0,
            born_timestamp=1,
            flag=0,
            properties=encode_properties({"CORRELATION_ID": "nobody's"}).decode(),
            born_host="rubbish",
            store_host="[::1]:x",
            store_timestamp=1,
        )
        wire.hear(pushed, b"pong", kind=FrameKind.REQUEST)
        await tools.until(asked, lambda: wire.replies)
        assert wire.replies[0].code == Code.SUCCESS


async def test_only_requests_can_be_replied_to(asked, producing, tools) -> None:
    async with producing() as mq:
        await mq.send("T", b"no request")
        message = await received(mq, asked, tools)
        with pytest.raises(BadRequest, match="is not a request, so it cannot be replied to"):
            await mq.reply(message, b"?")


async def test_a_requester_that_is_gone(asked, producing, tools) -> None:
    async with producing() as mq, producing() as other:
        tools.no_reply_in_time(mq, asked)
        waiting = asyncio.create_task(mq.request("T", b"ping"))
        message = await received(other, asked, tools)
        asked.faults[HeartBeat] = always(Answer(Code.SERVICE_NOT_AVAILABLE))  # or it is back
        asked.disconnect()
        with pytest.raises(ReplyNotTaken, match=r"channel of .* not found"):
            await other.reply(message, b"pong")
        with pytest.raises(ReplyTimedOut):
            await waiting


async def test_the_requests_own_broker_is_tried_first_and_then_others(
    cluster, asked, producing, tools
) -> None:
    second = cluster.broker("broker-b")
    async with producing() as mq, producing() as other:
        queue = next(
            one
            for one in await (await mq.pull_consumer("q")).queues("T")
            if one.broker_name == "broker-b"
        )
        waiting = asyncio.create_task(mq.request("T", b"ping", queue=queue))
        message = await received(other, second, tools)
        refused = Answer(Code.SERVICE_NOT_AVAILABLE, remark="it stops")
        second.faults[SendReplyMessage] = [refused]
        await other.reply(message, b"pong")
        assert (await waiting).body == b"pong"
        assert len(second.requests(SendReplyMessage)) == 1, "it was asked first"
        assert len(asked.requests(SendReplyMessage)) == 1
        assert message.properties[Property.CLUSTER] == "c1"
