"""Handlers that reply by what they return, on a loop and in threads."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from kourou import ClientSettings, ConsumerSettings, ProducerSettings
from kourou.client.consumer.outcomes import ConsumeResult
from kourou.client.requests.replies import ReplyTimedOut
from kourou.client.requests.requester import replying
from kourou.errors import BadRequest, Code
from kourou.model.subscription import ConsumeFromWhere
from kourou.protocol.messages.sends import SendReplyMessage
from kourou.sync import Client
from kourou_rigs.wire_faults import Answer, always


@pytest.fixture
def asked(cluster, broker):
    cluster.topics["c1_REPLY_TOPIC"] = (1, 1)
    return broker


async def test_what_a_handler_returns_is_the_reply(asked, producing, consuming) -> None:
    async def handler(message):
        return {"re": message.body.decode()}

    async with producing() as mq, consuming() as other, other.listen("T", handler, replies=True):
        reply = await mq.request("T", b"ping", body_type=dict)
        assert reply.body == {"re": "ping"}


async def test_without_replies_the_result_means_nothing(asked, producing, consuming, tools) -> None:
    async def handler(message):
        return b"unheard"

    async with producing() as mq, consuming() as other, other.listen("T", handler) as listener:
        tools.no_reply_in_time(mq, asked)
        with pytest.raises(ReplyTimedOut):
            await mq.request("T", b"ping")
        await tools.until(asked, lambda: listener.counts.consumed == 1)
        assert not asked.requests(SendReplyMessage)


async def test_none_and_plain_messages_get_no_reply(asked, producing, consuming, tools) -> None:
    inbox = tools.Inbox(2)

    async def handler(message):
        await inbox.handle(message)
        return None if message.body == b"silent" else b"reply"

    async with producing() as mq, consuming() as other:
        async with other.listen("T", handler, replies=True):
            await mq.send("T", b"plain")
            tools.no_reply_in_time(mq, asked)
            with pytest.raises(ReplyTimedOut):
                await mq.request("T", b"silent")
            await inbox.full.wait()
        assert not asked.requests(SendReplyMessage)


async def test_a_result_that_means_a_failure_is_none_either() -> None:
    def never():
        raise AssertionError("nothing is sent")

    async def handler(_message):
        return ConsumeResult.RECONSUME_LATER

    assert await replying(handler, never)(object()) is ConsumeResult.RECONSUME_LATER
    plain = replying(lambda _message: ConsumeResult.RECONSUME_LATER, never)
    assert plain(object()) is ConsumeResult.RECONSUME_LATER
    with pytest.raises(BadRequest, match="a batch handler"):
        replying(lambda _message: b"reply", never)([object()])


async def test_a_reply_that_nobody_takes_does_not_fail_the_message(
    asked, producing, consuming, tools, caplog
) -> None:
    async def handler(message):
        return b"reply"

    refused = Answer(Code.SYSTEM_ERROR, remark="channel not found")
    asked.faults[SendReplyMessage] = always(refused)
    async with producing() as mq, consuming() as other:
        async with other.listen("T", handler, replies=True) as listener:
            tools.no_reply_in_time(mq, asked)
            with pytest.raises(ReplyTimedOut):
                await mq.request("T", b"ping")
            await tools.until(asked, lambda: listener.counts.consumed == 1)
            assert listener.counts.failed == 0
        assert "was not accepted" in caplog.text


# -- from threads ----------------------------------------------------------------------------------


FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET


@pytest.fixture
def opened(cluster, tools):
    def make() -> Client:
        return Client(
            tools.NAMESRV,
            settings=ClientSettings(log_messages=False),
            producer=ProducerSettings(producer_group="p"),
            consumer=ConsumerSettings(consumer_group="g", consume_from_where=FIRST),
            dial=cluster.dial,
        )

    return make


def test_threads_ask_and_threads_reply(asked, opened) -> None:
    def handler(message):
        return message.body.decode() + "!"

    with opened() as mq, opened() as other, other.listen("T", handler, replies=True):
        with ThreadPoolExecutor(4) as threads:
            replies = list(threads.map(lambda n: mq.request("T", str(n), body_type=str), range(20)))
        assert [reply.body for reply in replies] == [f"{n}!" for n in range(20)]
        assert len(mq._core.requests) == 0


def test_replying_by_hand(asked, opened) -> None:
    with opened() as mq, opened() as other, ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(mq.request, "T", b"ping")
        with other.subscribe("T") as messages:
            for message in messages:
                other.reply(message, b"pong")
                message.ack()
                break
        assert waiting.result().body == b"pong"
        plain = mq.send("T", b"no request")
        assert plain.message_id
