"""What becomes of messages after their handler: nothing is lost, nothing waits for ever."""

from __future__ import annotations

import asyncio
import threading

import pytest

from kourou import ConsumedFirst, ConsumeResult, DeadLetter, RetryLater
from kourou.client.introspection.running_info import SAMPLE_MS
from kourou.errors import Code
from kourou.model.subscription import ConsumeFromWhere, MessageModel
from kourou.protocol.messages.pulls import UpdateConsumerOffset
from kourou.protocol.messages.sends import ConsumerSendMsgBack, SendMessage
from kourou_rigs.clock import ManualClock
from kourou_rigs.wire_faults import Answer, Silence, always

RETRY, DLQ = "%RETRY%g", "%DLQ%g"


def raises(_item):
    raise ValueError("not now")


def raises_later(_item):
    raise RetryLater("not now", delay_level=4)


def returns(_item):
    return ConsumeResult.RECONSUME_LATER


def asks(item):
    for message in item if isinstance(item, list) else [item]:
        message.retry(delay_level=4)


def buries(item):
    for message in item if isinstance(item, list) else [item]:
        message.dead_letter("no number")


def buries_and_raises(item):
    buries(item)
    raise ValueError("anything")


def raises_dead(_item):
    raise DeadLetter("no number")


@pytest.mark.feature("F213", "F215", "F191")
@pytest.mark.parametrize("batch", [False, 4], ids=["one", "batch"])
@pytest.mark.parametrize("threads", [False, True], ids=["async", "threads"])
@pytest.mark.parametrize(
    ("fail", "level"),
    [(raises, 0), (raises_later, 4), (returns, 0), (asks, 4)],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
async def test_three_ways_to_ask(one_queue, consuming, tools, fail, level, threads, batch):
    await tools.fill(consuming, 4)
    gate, seen = tools.Gate(4), []

    def handle(item):
        messages = item if batch else [item]
        if messages[0].attempt == 1:
            return fail(item)
        for message in messages:
            seen.append((message.topic, message.body, message.attempt, message.reconsume_times))
            gate.count()
        return None

    async def handle_async(item):
        return handle(item)

    async with (
        consuming() as mq,
        mq.listen("T", handle if threads else handle_async, batch=batch) as listener,
    ):
        await gate.wait()
        await tools.until(one_queue, lambda: listener.counts.consumed == 4)
        assert (listener.counts.failed, listener.counts.sent_back) == (4, 4)
    assert sorted(seen) == [("T", body, 2, 1) for body in tools.numbers(4)]
    assert [request.delay_level for request in one_queue.requests(ConsumerSendMsgBack)] == [
        level
    ] * 4
    assert one_queue.committed["g", "T", 0] == one_queue.committed["g", RETRY, 0] == 4


@pytest.mark.feature("F221", "F224")
@pytest.mark.parametrize("fail", [buries, buries_and_raises, raises_dead])
async def test_what_can_never_succeed_is_kept_aside(one_queue, consuming, tools, fail):
    await tools.fill(consuming, 1)
    async with consuming() as mq, mq.listen("T", fail) as listener:
        await tools.until(one_queue, lambda: listener.counts.sent_back == 1)
    [dead] = one_queue.stored(DLQ)
    assert (dead.body, dead.properties["RETRY_TOPIC"], dead.reconsume_times) == (b"0", "T", 1)
    assert dead.properties["DLQ_REASON"] == "no number"
    one_queue.pass_time(1_000)
    assert one_queue.stored(RETRY) == []
    assert one_queue.committed["g", "T", 0] == 1


@pytest.mark.feature("F315", "F221", "F217", "F220")
@pytest.mark.parametrize(("times", "attempts"), [(0, 1), (3, 4), (20, 21), (-1, 17)])
async def test_attempts_are_limited(one_queue, consuming, tools, times, attempts):
    """-1 is the group's own number, 16."""
    await tools.fill(consuming, 1)
    seen, ids, dead = [], set(), asyncio.Event()

    async def handler(message):
        seen.append(message.attempt)
        ids.add((message.message_id, message.origin_message_id))
        raise ValueError("never")

    async with (
        consuming(max_reconsume_times=times) as mq,
        mq.listen("T", handler) as listener,
    ):
        await tools.until(one_queue, lambda: bool(one_queue.stored(DLQ)))
        assert listener.counts.failed == attempts
    dead = one_queue.stored(DLQ)[0]
    assert seen == list(range(1, attempts + 1))
    assert dead.properties["DLQ_REASON"] == "ValueError: never"
    assert ids == {(dead.message_id, dead.properties["ORIGIN_MESSAGE_ID"])}, "both ids stay"


async def test_the_first_word_counts(one_queue, consuming, tools):
    await tools.fill(consuming, 2)

    async def handler(message):
        message.ack()
        message.retry()
        if message.body == b"0":
            raise ValueError("too late")

    async with consuming() as mq, mq.listen("T", handler) as listener:
        await tools.until(one_queue, lambda: listener.counts.consumed == 2)
        assert listener.counts.failed == 0
    assert one_queue.requests(ConsumerSendMsgBack) == []


@pytest.mark.feature("F198", "F313")
@pytest.mark.parametrize("ending", ["returns", "raises", "first"])
async def test_a_batch_may_be_consumed_in_part(one_queue, consuming, tools, ending):
    await tools.fill(consuming, 4)
    again = tools.Inbox(2)

    async def handler(messages):
        if messages[0].attempt > 1:
            return await again.handle(messages)
        if ending == "first":
            return ConsumedFirst(2)
        if ending == "returns":
            for message in messages[2:]:
                message.retry()
            return None
        for message in messages[:2]:
            message.ack()
        raise ValueError("the others")

    async with consuming() as mq, mq.listen("T", handler, batch=4) as listener:
        await again.full.wait()
        await tools.until(one_queue, lambda: listener.counts.consumed == 4)
        assert listener.counts.failed == 2
    assert sorted(again.bodies) == [b"2", b"3"]


@pytest.mark.fault
@pytest.mark.feature("F228", "F197", "F201")
async def test_what_nobody_takes_back_comes_again_here(one_queue, consuming, tools):
    """The offset waits at it; both ways back are tried each time."""
    await tools.fill(consuming, 3)
    refused = always(Answer(Code.SYSTEM_ERROR, remark="not now"))
    one_queue.faults[ConsumerSendMsgBack] = one_queue.faults[SendMessage] = refused
    attempts, enough = [], asyncio.Event()

    async def handler(message):
        if message.body != b"1":
            return
        attempts.append((message.attempt, message.reconsume_times))
        if len(attempts) == 3:
            enough.set()
        else:
            raise ValueError("not now")

    async with (
        consuming(local_redelivery_delay_ms=5) as mq,
        mq.listen("T", handler) as listener,
    ):
        await enough.wait()
        assert listener.counts.failed == 2
    assert attempts == [(1, 0), (2, 1), (3, 2)]
    assert len(one_queue.requests(ConsumerSendMsgBack)) == 2
    assert one_queue.committed["g", "T", 0] == 3


@pytest.mark.fault
async def test_closing_leaves_what_is_not_back_to_others(one_queue, consuming, tools, monkeypatch):
    monkeypatch.setattr("kourou.client.consumer.push_consumer.SEND_BACKS_END_MS", 5)
    await tools.fill(consuming, 2)
    asked = asyncio.Event()
    loop = asyncio.get_running_loop()

    def never(_request):
        loop.call_soon_threadsafe(asked.set)
        raise Silence

    one_queue.faults[ConsumerSendMsgBack] = always(never)
    one_queue.faults[SendMessage] = always(Silence)
    async with consuming(local_redelivery_delay_ms=30_000) as mq, mq.listen("T", raises):
        await asked.wait()
    assert one_queue.committed["g", "T", 0] == 0


async def test_closing_waits_for_what_goes_back(one_queue, consuming, tools):
    """A handler that fails while its consumer closes: its message is with the broker first."""
    await tools.fill(consuming, 1)
    started, gate = asyncio.Event(), asyncio.Event()

    async def handler(_message):
        started.set()
        await gate.wait()
        raise ValueError("no")

    async with consuming() as mq:
        listener = await mq.listen("T", handler).start()
        tools.slowly(listener)
        await started.wait()
        closing = asyncio.ensure_future(listener.close())
        await asyncio.sleep(0)
        gate.set()
        await closing
    one_queue.pass_time(1_000)
    assert len(one_queue.stored(RETRY)) == 1
    order = [type(request) for request in one_queue.seen]
    assert order.index(ConsumerSendMsgBack) < order.index(UpdateConsumerOffset)
    assert one_queue.committed["g", "T", 0] == 1


async def test_what_belongs_to_another_member_is_not_given_back(
    one_queue, consuming, cluster, tools
):
    await tools.fill(consuming, 1)
    started, gate = asyncio.Event(), asyncio.Event()

    async def handler(_message):
        started.set()
        await gate.wait()
        raise ValueError("no")

    async with consuming() as mq, mq.listen("T", handler) as listener:
        await started.wait()
        cluster.topics["T"] = (0, 1)
        await tools.refresh(mq)
        await tools.until(one_queue, lambda: listener.assigned == [])
        gate.set()
        await tools.until(one_queue, lambda: listener.counts.failed == 1)
    assert one_queue.requests(ConsumerSendMsgBack) == []


@pytest.mark.feature("F228")
async def test_what_failed_before_is_repeated_wherever_a_group_begins(one_queue, consuming, tools):
    """The offset of a retry topic that was never committed is its beginning."""
    await tools.fill(consuming, 1)
    async with consuming() as mq:
        consumer = await mq.pull_consumer("g")
        [queue] = await consumer.queues("T")
        await consumer.send_back((await consumer.pull(queue, 0)).messages[0])
    inbox = tools.Inbox(1)
    last = ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
    async with consuming(consume_from_where=last) as mq, mq.listen("T", inbox.handle):
        await inbox.full.wait()
    assert (inbox.messages[0].attempt, inbox.bodies) == (2, [b"0"])


async def test_a_retry_topic_that_appears_with_the_first_failure(
    broker, consuming, cluster, tools, caplog
):
    assert RETRY not in cluster.topics
    await tools.fill(consuming, 1)
    inbox = tools.Inbox(1)

    async def handler(message):
        if message.attempt == 1:
            raise ValueError("no")
        await inbox.handle(message)

    async with consuming() as mq, mq.listen("T", handler):
        await inbox.full.wait()
    assert inbox.messages[0].queue.topic == RETRY
    assert f"waits for the topic {RETRY}" not in caplog.text, "nobody has to make it"
    assert "of T, first stored as" in str(inbox.messages[0])


@pytest.mark.feature("F214", "F192")
@pytest.mark.parametrize("fail", [raises, returns, asks, buries])
async def test_broadcasting_has_no_retry(one_queue, consuming, tools, tmp_path, fail, caplog):
    await tools.fill(consuming, 2)
    settings = {"message_model": MessageModel.BROADCASTING, "offsets_dir": str(tmp_path)}
    async with consuming(**settings) as mq, mq.listen("T", fail) as listener:
        await tools.until(one_queue, lambda: listener.counts.consumed == 2)
        assert listener.counts.failed == 2
    assert one_queue.requests(ConsumerSendMsgBack) == []
    assert "the handler failed at" in caplog.text
    subscribed = {request.topic for request in one_queue.seen if hasattr(request, "sub_version")}
    assert subscribed == {"T"}


# -- iterations -----------------------------------------------------------------------------------


@pytest.mark.feature("F213")
@pytest.mark.parametrize("auto_ack", [True, False])
async def test_a_block_that_raises_asks_for_a_retry(one_queue, consuming, tools, auto_ack):
    await tools.fill(consuming, 2)
    seen = []
    async with (
        consuming() as mq,
        mq.subscribe("T", auto_ack=auto_ack) as messages,
    ):
        async for message in messages:
            async with message:
                seen.append((message.body, message.attempt))
                if message.attempt == 1:
                    raise ValueError("no")
            if len(seen) == 4:
                break
    assert sorted(seen) == [(b"0", 1), (b"0", 2), (b"1", 1), (b"1", 2)]
    assert one_queue.committed["g", RETRY, 0] == 2


async def test_the_first_word_counts_in_iterations_too(one_queue, consuming, tools):
    await tools.fill(consuming, 2)
    async with consuming() as mq, mq.subscribe("T", auto_ack=False) as messages:
        first, second = await anext(aiter(messages)), await anext(aiter(messages))
        first.ack()
        first.retry()
        second.dead_letter("no number")
        second.ack()
        await tools.until(one_queue, lambda: bool(one_queue.stored(DLQ)))
        await messages.commit()
        counts = messages.counts
        assert (counts.consumed, counts.failed) == (1, 1)
    one_queue.pass_time(1_000)
    assert one_queue.stored(RETRY) == []


# -- handlers that take too long -------------------------------------------------------------------


MINUTE_MS = 60_000


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
        await tools.until(one_queue, lambda: listener.counts.consumed == 1)
        await look(mq, listener)
        clock.advance(2 * MINUTE_MS - SAMPLE_MS)
        await look(mq, listener)
        assert one_queue.requests(ConsumerSendMsgBack) == []
        clock.advance(SAMPLE_MS)
        await look(mq, listener)
        await second.full.wait()
        await listener.commit()
        assert one_queue.committed["g", "T", 0] == 2, "its queue goes on while it is still running"
        assert listener.counts.timed_out == 1
        gate.set()
        await tools.until(one_queue, lambda: listener.counts.failed == 1)
    [request] = one_queue.requests(ConsumerSendMsgBack)
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
    assert len(one_queue.requests(ConsumerSendMsgBack)) == 1


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
    assert one_queue.requests(ConsumerSendMsgBack) == []


async def status_of(messages):
    return messages._started.status("T")
