"""Settings of a push consumer about messages that fail, hang or are too many."""

from __future__ import annotations

import asyncio

import pytest

from kourou import Client, ConsumerSettings
from kourou.errors import Code
from kourou.protocol.messages.sends import ConsumerSendMsgBack, SendMessage
from kourou_rigs.clock import ManualClock
from kourou_rigs.wire_broker import Answer

pytestmark = pytest.mark.both_brokers


@pytest.fixture
def consumer(cluster, tools):
    """Makes clients whose consumers have settings as a file has them."""

    def make(**settings) -> Client:
        made = ConsumerSettings.from_rocketmq(
            consumerGroup="g", consumeFromWhere="CONSUME_FROM_FIRST_OFFSET", **settings
        )
        return Client(tools.NAMESRV, consumer=made, dial=cluster.dial)

    return make


@pytest.fixture
def one_queue(cluster, broker):
    cluster.topics["T"] = (1, 1)
    return broker


@pytest.mark.feature("F315")
@pytest.mark.parametrize(("times", "told"), [(None, None), ("3", 3)])
async def test_how_often_a_message_is_tried_is_told_with_it(
    one_queue, cluster, consumer, tools, times, told
):
    """Without the setting the group's own number at the broker counts, which is 16."""
    cluster.topics["%RETRY%g"] = (1, 1)
    await tools.fill(consumer, 1)

    async def handler(message):
        raise ValueError("never")

    settings = {} if times is None else {"maxReconsumeTimes": times}
    async with consumer(**settings) as mq, mq.listen("T", handler) as listener:
        await tools.until(one_queue, lambda: bool(one_queue.stored("%DLQ%g")))
        assert listener.counts.failed == (told or 16) + 1
    asked = [one for one in one_queue.seen if isinstance(one, ConsumerSendMsgBack)]
    assert {request.max_reconsume_times for request in asked} == {told}


async def test_how_long_a_handler_may_take(one_queue, cluster, consumer, tools):
    cluster.topics["%RETRY%g"] = (1, 1)
    await tools.fill(consumer, 1)
    mq = consumer(consumeTimeout="2")
    mq._client.clock = clock = ManualClock()

    async def look():
        messages._started.sample()

    async with mq, mq.subscribe("T") as messages:
        await anext(aiter(messages))
        for passed_ms, given_back in ((0, 0), (119_999, 0), (1, 1)):
            clock.advance(passed_ms)
            await (mq._client._twin or mq._client).io.run(look())
            assert messages.counts.timed_out == given_back
        await tools.until(one_queue, lambda: bool(one_queue.stored("%RETRY%g")))


@pytest.mark.fault
@pytest.mark.parametrize("delay", ["1", "3600000"])
async def test_when_a_message_that_nobody_takes_back_comes_again(one_queue, consumer, tools, delay):
    await tools.fill(consumer, 1)
    one_queue.intercept = lambda request: (
        Answer(Code.SYSTEM_ERROR)
        if isinstance(request, ConsumerSendMsgBack | SendMessage)
        else None
    )
    inbox, failed = tools.Inbox(1), asyncio.Event()

    async def handler(message):
        if message.attempt == 1:
            failed.set()
            raise ValueError("not now")
        await inbox.handle(message)

    async with consumer(localRedeliveryDelayMs=delay) as mq, mq.listen("T", handler) as listener:
        await failed.wait()
        if delay == "1":
            await inbox.full.wait()
        else:
            await tools.until(one_queue, lambda: listener.counts.failed == 1)
    assert inbox.bodies == ([b"0"] if delay == "1" else [])


@pytest.mark.feature("F278")
@pytest.mark.parametrize(("over", "kept"), [("-1", 40), ("0", 0), ("7", 7), ("40", 40)])
async def test_a_backlog_is_passed_over(one_queue, consumer, tools, over, kept, caplog):
    await tools.fill(consumer, 40)
    inbox = tools.Inbox(kept + 1)
    settings = {"skipBacklogOver": over, "pullBatchSize": "4", "pullSizeBytes": "0"}
    async with consumer(**settings) as mq, mq.listen("T", inbox.handle) as listener:
        await tools.until(
            one_queue, lambda: listener.counts.skipped + listener.counts.consumed == 40
        )
        # Offset 40 lies one before the end, which is not beyond a limit of 1 or more.
        await mq.send("T", b"new")
        if over != "0":
            await inbox.full.wait()
            assert inbox.bodies[-1] == b"new"
            assert listener.counts.skipped == 40 - kept
    assert ("messages; skipped offsets" in caplog.text) is (kept < 40)
    assert inbox.bodies[:kept] == tools.numbers(40)[40 - kept :]
