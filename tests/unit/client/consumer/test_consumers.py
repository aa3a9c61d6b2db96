"""A listener is called with every message, on a loop or in threads."""

from __future__ import annotations

import asyncio
import logging

import pytest

from kourou import ConsumerSettings
from kourou.client.consumer.consumers import BlockingStreamRunner, StreamRunner
from kourou.client.consumer.received import ReceivedMessage
from kourou.client.introspection.running_info import ConsumeLog
from kourou.client.session.io_thread import ClientClosed
from kourou.errors import BadRequest, TopicNotFound
from kourou.model.message import PullStatus
from kourou.model.subscription import ConsumeFromWhere
from kourou.model.topic import MessageQueue
from kourou.sync import Client
from kourou_rigs.clock import ManualClock

CLOCK = ManualClock()
LOG = ConsumeLog(CLOCK, logging.INFO)


class Reports:
    def __init__(self) -> None:
        self.done: list[int] = []
        self.errors: list[tuple[int, str]] = []
        self.unwanted: set[int] = set()

    def finished(self, message):
        self.done.append(message.offset)

    def failed(self, message, error):
        self.errors.append((message.offset, str(error)))

    def wanted(self, message):
        return message.offset not in self.unwanted


def messages(count):
    queue = MessageQueue("T", "b", 0)
    return [
        ReceivedMessage(queue, offset, 10, _properties={"UNIQ_KEY": f"K{offset}"})
        for offset in range(count)
    ]


@pytest.fixture
def reports():
    return Reports()


@pytest.fixture
async def stream(reports):
    def make(*, auto_ack=True):
        return StreamRunner(asyncio.get_running_loop(), reports, LOG, auto_ack=auto_ack)

    return make


async def test_asking_for_the_next_acknowledges_this_one(reports, stream):
    runner = stream()
    runner.submit(messages(3))
    seen = []
    async for message in runner:
        assert reports.done == seen
        seen.append(message.offset)
        if len(seen) == 3:
            break
    assert reports.done == [0, 1], "the loop was left in the middle of the third"


@pytest.mark.parametrize("error", [asyncio.CancelledError, SystemExit, KeyboardInterrupt])
@pytest.mark.parametrize("auto_ack", [True, False])
async def test_a_block_that_is_broken_off_asks_for_a_retry(reports, stream, error, auto_ack):
    runner = stream(auto_ack=auto_ack)
    runner.submit(messages(2))
    message = await anext(runner)
    with pytest.raises(error):
        async with message:
            raise error("stop")
    assert reports.errors == [(0, "stop")]
    await anext(runner)
    assert reports.done == [], "moving on does not acknowledge what was not consumed"


@pytest.mark.feature("F375")
async def test_what_was_consumed_is_logged_with_its_time(reports, stream, caplog):
    caplog.set_level(logging.INFO, "kourou.client.consume")
    runner = stream()
    runner.submit(messages(3))
    first = await anext(runner)
    CLOCK.advance(5)
    second = await anext(runner)
    second.retry()
    await anext(runner)
    assert caplog.messages == [f"message-consumed: consumed {first} in 5 ms"]


async def test_messages_of_lost_queues_are_passed_over(reports, stream):
    runner = stream()
    reports.unwanted = {0, 1}
    runner.submit(messages(3))
    assert (await anext(runner)).offset == 2


async def test_closing_ends_the_iteration(reports, stream):
    runner = stream()
    waiting = asyncio.ensure_future(anext(runner, None))
    await asyncio.sleep(0)
    assert await runner.close(0)
    assert await waiting is None
    runner.submit(messages(1))
    assert [message.offset async for message in runner] in ([], [0])


async def test_an_end_for_a_loop_that_is_gone(reports):
    loop = asyncio.new_event_loop()
    runner = StreamRunner(loop, reports, LOG, auto_ack=True)
    loop.close()
    runner.submit(messages(1))
    assert await runner.close(0)


async def test_blocking(reports):
    runner = BlockingStreamRunner(reports, LOG, auto_ack=True)
    runner.submit(messages(3))
    reports.unwanted = {1}
    seen = []
    for message in runner:
        seen.append(message.offset)
        if len(seen) == 2:
            break
    assert (seen, reports.done) == ([0, 2], [0])
    with message:
        pass
    assert reports.done == [0, 2]


async def test_blocking_ends(reports):
    runner = BlockingStreamRunner(reports, LOG, auto_ack=True)
    waiting = asyncio.get_running_loop().run_in_executor(None, lambda: list(runner))
    assert await runner.close(0)
    assert await waiting == []
    assert list(runner) == [], "whoever asks again is told again"


@pytest.mark.feature("F003", "F186", "F306", "F191")
async def test_a_backlog_is_consumed_and_committed(broker, consuming, tools):
    await tools.fill(consuming, 300)
    inbox = tools.Inbox(300)
    async with consuming() as mq, mq.listen("T", inbox.handle) as listener:
        await inbox.full.wait()
        assert listener.assigned == [MessageQueue("T", "broker-a", n) for n in range(4)]
        assert listener.counts.pulled == 300
    assert sorted(inbox.bodies) == sorted(tools.numbers(300))
    assert sum(broker.committed["g", "T", n] for n in range(4)) == 300


@pytest.mark.feature("F198", "F313")
async def test_batches_are_of_one_queue_and_bounded(broker, consuming, tools):
    await tools.fill(consuming, 100)
    inbox, batches = tools.Inbox(100), []

    async def handler(messages):
        batches.append(messages)
        await inbox.handle(messages)

    async with consuming() as mq, mq.listen("T", handler, batch=10):
        await inbox.full.wait()
    assert max(map(len, batches)) <= 10
    assert all(len({message.queue for message in batch}) == 1 for batch in batches)
    assert sorted(inbox.bodies) == sorted(tools.numbers(100))


@pytest.mark.feature("F012", "F262")
async def test_tags_are_tested_exactly(broker, consuming, tools):
    async with consuming() as mq:
        for number, tag in enumerate(["Aa", "BB", "Aa", "C"]):
            await mq.send("T", b"%d" % number, tag=tag)
    inbox = tools.Inbox(2)
    async with consuming() as mq, mq.listen("T", inbox.handle, "Aa || X") as listener:
        await inbox.full.wait()
        assert listener.counts.pulled == 2
    assert sorted(inbox.bodies) == [b"0", b"2"]
    assert sum(broker.committed["g", "T", n] for n in range(4)) == 4, "filtered ones are done with"


@pytest.mark.feature("F375")
async def test_a_setting_raises_these_lines_to_info(broker, consuming, caplog, tools):
    caplog.set_level(logging.INFO, "kourou.client.consume")
    await tools.fill(consuming, 2)
    quiet, loud = tools.Inbox(2), tools.Inbox(2)
    async with consuming() as mq, mq.listen("T", quiet.handle):
        await quiet.full.wait()
    assert "consumed" not in caplog.text
    async with consuming(log_messages=True) as mq, mq.listen("T", loud.handle, group="loud"):
        await loud.full.wait()
    for message in loud.messages:
        assert f"consumed {message}" in caplog.text


class Odd(BaseException):
    """What an application's library may raise."""


@pytest.mark.feature("F228", "F196")
@pytest.mark.parametrize("error", [asyncio.CancelledError, SystemExit, Odd])
@pytest.mark.parametrize("batch", [False, 8], ids=["one", "batch"])
@pytest.mark.parametrize("threads", [False, True], ids=["async", "threads"])
async def test_however_a_handler_leaves_its_messages_come_again(
    broker, consuming, caplog, tools, error, batch, threads
):
    await tools.fill(consuming, 12)
    consumed, gate = set(), tools.Gate(12)

    def handle(item):
        items = item if isinstance(item, list) else [item]
        if any(one.attempt == 1 for one in items):
            raise error
        for one in items:
            consumed.add(one.body)
            gate.count()

    async def handle_async(item):
        handle(item)

    handler = handle if threads else handle_async
    async with (
        consuming(local_redelivery_delay_ms=10, consume_threads_min=1, consume_threads_max=2) as mq,
        mq.listen("T", handler, batch=batch) as listener,
    ):
        await gate.wait()
        assert listener.counts.failed == 12
    assert consumed == set(tools.numbers(12))
    assert sum(broker.committed["g", "T", n] for n in range(4)) == 12
    assert f"the handler failed at {MessageQueue('T', 'broker-a', 0)}" in caplog.text


# -- from threads ----------------------------------------------------------------------------------


@pytest.fixture
def mq(cluster, broker, tools):
    consumer = ConsumerSettings(
        consumer_group="g", consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
    )
    with Client(tools.NAMESRV, consumer=consumer, dial=cluster.dial) as client:
        client.send_many("T", tools.numbers(12))
        yield client


def test_an_iteration(broker, mq):
    seen = []
    with mq.subscribe("T", body_type=int) as messages:
        for message in messages:
            with message:
                seen.append(message.body)
            if len(seen) == 12:
                break
        assert len(messages.assigned) == 4
        messages.commit()
    assert sorted(seen) == list(range(12))
    assert sum(broker.committed["g", "T", n] for n in range(4)) == 12


def test_coroutines_have_no_loop_here(mq):
    async def handler(_message):
        pass

    with pytest.raises(BadRequest, match="loop"):
        mq.listen("T", handler)


def test_before_and_after(mq):
    messages = mq.subscribe("T")
    with pytest.raises(ClientClosed):
        iter(messages)
    with pytest.raises(ClientClosed):
        _ = messages.assigned


def test_administration_blocks(mq):
    assert mq.admin.topics.list() == ["T", "TBW102"]
    assert mq.admin.cluster.info().clusters == {"c1": ("broker-a",)}
    with pytest.raises(TopicNotFound):
        mq.admin.topics.route("Nobody")


def test_a_pull_consumer(mq):
    consumer = mq.pull_consumer("pull", body_type=int)
    queue = MessageQueue("T", "broker-a", 0)
    assert queue in consumer.queues("T")
    result = consumer.pull(queue, 0, count_max=2)
    assert (result.status, len(result.messages)) == (PullStatus.FOUND, 2)
    assert consumer.group == "pull"
    consumer.assign([queue])
    assert len(consumer.poll()) == 3
    consumer.commit()
    assert consumer.committed(queue) == 3
    consumer.close()
