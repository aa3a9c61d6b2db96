"""An operator's message is handled as any other, and changes nothing else."""

from __future__ import annotations

import asyncio

import pytest

from kourou.client.consumer.outcomes import ConsumeResult, DeadLetter
from kourou.errors import BadRequest


async def direct(listener, broker):
    [record] = broker.queues[("T", 0)]
    return await listener._client.io.run(listener._started.consume_directly(record))


@pytest.fixture
async def one(broker, cluster, consuming):
    """One message, which consumers pass over at their start."""
    cluster.topics["T"] = (1, 1)
    async with consuming() as mq:
        await mq.send("T", b"5", tag="x")
    broker.commit("T", 0, 1)


@pytest.mark.parametrize("batch", [False, 8], ids=["one", "batch"])
@pytest.mark.parametrize("threads", [False, True], ids=["async", "threads"])
@pytest.mark.parametrize(
    ("returned", "result", "remark"),
    [
        (None, "CR_SUCCESS", ""),
        (ConsumeResult.RECONSUME_LATER, "CR_LATER", "the handler returned RECONSUME_LATER"),
        (DeadLetter("no"), "CR_LATER", "no"),
        (ValueError("bad"), "CR_THROW_EXCEPTION", "ValueError: bad"),
    ],
    ids=["success", "later", "dead", "raised"],
)
async def test_results_of_a_direct_call(
    one, broker, consuming, batch, threads, returned, result, remark
):
    seen = []

    def handle(item):
        seen.extend((message.body, message.tag) for message in (item if batch else [item]))
        if isinstance(returned, Exception):
            raise returned
        return returned

    async def handle_async(item):
        return handle(item)

    handler = handle if threads else handle_async
    async with (
        consuming() as mq,
        mq.listen("T", handler, batch=batch, body_type=int) as listener,
    ):
        answer = await direct(listener, broker)
        assert (answer.result, answer.remark, answer.order) == (result, remark, False)
        assert answer.spent_ms >= 0
        assert seen == [(5, "x")]
        assert (listener.counts.consumed, listener.counts.failed) == (0, 0)
    assert broker.committed["g", "T", 0] == 1
    broker.pass_time(1_000)
    assert broker.stored("%RETRY%g") == []


async def test_words_of_the_message_count(one, broker, consuming):
    async def handler(message):
        message.retry(delay_level=2)
        message.ack()

    async with consuming() as mq, mq.listen("T", handler) as listener:
        answer = await direct(listener, broker)
    assert answer.result == "CR_LATER"


async def test_an_iteration_cannot_be_called(one, broker, consuming):
    async with consuming() as mq, mq.subscribe("T") as messages:
        with pytest.raises(BadRequest, match="iteration"):
            await direct(messages, broker)
        await asyncio.sleep(0)
