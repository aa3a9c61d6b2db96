"""A handler that hangs keeps its thread, and not its message."""

from __future__ import annotations

import asyncio
import threading

import pytest

from kourou.client.introspection.consume_statistics import SAMPLE_MS
from kourou.model.subscription import MessageModel
from kourou.protocol.messages.sends import ConsumerSendMsgBack
from kourou_rigs.clock import ManualClock

RETRY = "%RETRY%g"
MINUTE_MS = 60_000


def backs(broker):
    return [request for request in broker.seen if isinstance(request, ConsumerSendMsgBack)]


@pytest.fixture
def slow_client(cluster, consuming):
    """A client whose clock stands until the test moves it, and the clock."""

    def make(**settings):
        mq = consuming(**settings)
        mq._client.clock = clock = ManualClock()
        return mq, clock

    return make


async def look(mq, listener):
    """What happens every ten seconds."""

    async def now():
        listener._started.sample()

    await (mq._client._twin or mq._client).io.run(now())


@pytest.mark.parametrize("threads", [False, True], ids=["async", "threads"])
async def test_what_takes_too_long_is_sent_back_and_leaves_the_window(
    one_queue, slow_client, consuming, tools, threads, caplog
):
    await tools.fill(consuming, 2)
    mq, clock = slow_client(consume_timeout_minutes=2, consume_threads_max=4)
    started, gate = tools.Gate(1), threading.Event()
    second = tools.Inbox(1)

    def handle(message):
        if message.body == b"0" and message.attempt == 1:
            started.count()
            gate.wait(20)
            raise ValueError("after all that time")

    async def handle_async(message):
        if message.body == b"0" and message.attempt == 1:
            await asyncio.to_thread(handle, message)
        elif message.body == b"0":
            await second.handle(message)

    def handle_plain(message):
        if message.attempt == 2:
            loop.call_soon_threadsafe(second.full.set)
        handle(message)

    loop = asyncio.get_running_loop()
    async with mq, mq.listen("T", handle_plain if threads else handle_async) as listener:
        await started.wait()
        await look(mq, listener)
        clock.advance(2 * MINUTE_MS - SAMPLE_MS)
        await look(mq, listener)
        assert backs(one_queue) == []
        clock.advance(SAMPLE_MS)
        await look(mq, listener)
        await second.full.wait()
        await listener.commit()
        assert one_queue.committed["g", "T", 0] == 2, "its queue goes on while it is still running"
        assert listener.counts.timed_out == 1
        gate.set()
        await tools.until(one_queue, lambda: listener.counts.failed == 1)
    [request] = backs(one_queue)
    assert (request.delay_level, request.reason) == (3, "the handler took more than 2 minutes")
    assert "for more than 2 minutes" in caplog.text


async def test_what_is_going_back_does_not_go_twice(one_queue, slow_client, consuming, tools):
    """Its time is over, and while the broker is told its handler fails at last."""
    await tools.fill(consuming, 1)
    mq, clock = slow_client()
    started, fail = asyncio.Event(), asyncio.Event()

    async def handler(message):
        if message.attempt == 1:
            started.set()
            await fail.wait()
            raise ValueError("too late")

    async with mq, mq.listen("T", handler) as listener:
        notified = asyncio.Event()
        tools.slowly(listener, notified)
        await started.wait()
        await look(mq, listener)
        clock.advance(15 * MINUTE_MS)
        await look(mq, listener)
        fail.set()
        await tools.until(one_queue, lambda: listener.counts.failed == 1)
        (mq._client._twin or mq._client).io.loop.call_soon_threadsafe(notified.set)
        await tools.until(one_queue, lambda: listener.counts.sent_back == 1)
    assert len(backs(one_queue)) == 1


async def test_an_iteration_that_takes_too_long(one_queue, slow_client, consuming, tools):
    await tools.fill(consuming, 3)
    mq, clock = slow_client()
    async with mq, mq.subscribe("T", auto_ack=False) as messages:
        first, second = await anext(aiter(messages)), await anext(aiter(messages))
        await look(mq, messages)
        first.ack()
        clock.advance(15 * MINUTE_MS)
        await look(mq, messages)
        await tools.until(one_queue, lambda: len(one_queue.stored(RETRY)) == 1)
        second.ack()
        assert messages.counts.timed_out == 1
    assert one_queue.stored(RETRY)[0].body == second.body


@pytest.mark.feature("F214")
async def test_broadcasting_passes_over_what_takes_too_long(
    one_queue, slow_client, consuming, tools, tmp_path
):
    await tools.fill(consuming, 1)
    mq, clock = slow_client(message_model=MessageModel.BROADCASTING, offsets_dir=str(tmp_path))
    async with mq, mq.subscribe("T") as messages:
        await anext(aiter(messages))
        await look(mq, messages)
        clock.advance(15 * MINUTE_MS)
        await look(mq, messages)
        status = await (mq._client._twin or mq._client).io.run(status_of(messages))
        assert set(status.values()) == {1}
    assert backs(one_queue) == []


async def status_of(messages):
    return messages._started.status("T")
