"""A consumer that asks for itself."""

from __future__ import annotations

import asyncio

import pytest

from kourou.client.consumer.pull_consumer import UnreadableMessages
from kourou.errors import BadRequest, Code, NoPermission, Throttled, TopicNotFound
from kourou.model.message import PullStatus
from kourou.model.topic import MessageQueue
from kourou.protocol.messages.pulls import PullMessage, PullResponse
from kourou.protocol.messages.quotas import FlowControlled
from kourou_rigs.wire_faults import Answer

QUEUE = MessageQueue("T", "broker-a", 0)


@pytest.fixture
async def consumer(broker, producing, tools):
    await tools.fill(producing, 20)
    async with producing() as mq:
        yield await mq.pull_consumer("g", body_type=int)


@pytest.mark.feature("F004", "F188", "F320")
async def test_pulling_a_named_queue(broker, consumer):
    assert await consumer.queues("T") == [MessageQueue("T", "broker-a", n) for n in range(4)]
    result = await consumer.pull(QUEUE, 1, count_max=3)
    assert result.status is PullStatus.FOUND
    assert [message.offset for message in result.messages] == [1, 2, 3]
    assert all(isinstance(message.body, int) for message in result.messages)
    assert (result.next_offset, result.min_offset, result.max_offset) == (4, 0, 5)
    assert consumer._session.client_id in broker.members["g"], "its group exists before it pulls"


async def test_an_expression_that_nobody_means_is_refused(consumer):
    with pytest.raises(BadRequest, match="&&, which is not an operator"):
        await consumer.pull(QUEUE, 0, expression="paid &&")
    with pytest.raises(BadRequest, match="other tags"):
        await consumer.assign([QUEUE], expression="* || paid")


async def test_refusals_are_raised(broker, consumer):
    with pytest.raises(BadRequest):
        await consumer.pull(QUEUE, -1)
    with pytest.raises(TopicNotFound):
        await consumer.queues("Nobody")
    broker.faults[PullMessage] = [Answer(Code.NO_PERMISSION, remark="not you")]
    with pytest.raises(NoPermission, match="not you"):
        await consumer.pull(QUEUE, 0)


async def test_a_poll_over_a_quota_has_no_messages_yet(broker, consumer):
    over = Answer(Code.FLOW_CONTROL, FlowControlled(retry_after_ms=5), remark="over")
    broker.faults[PullMessage] = [over] * 3
    await consumer.assign([QUEUE])
    await consumer.seek(QUEUE, 0)
    messages = await consumer.poll(count_max=3, wait_ms=2_000)
    assert [message.offset for message in messages] == [0, 1, 2]
    assert len(broker.requests(PullMessage)) == 4
    broker.faults[PullMessage] = [over]
    with pytest.raises(Throttled, match="over"):
        await consumer.pull(QUEUE, 0)


@pytest.mark.fault
async def test_unreadable_messages_say_where_to_go_on(broker, consumer):
    place = PullResponse(suggest_which_broker_id=0, next_begin_offset=3, min_offset=0, max_offset=5)
    broker.faults[PullMessage] = [
        Answer(Code.MESSAGE_CORRUPT, place, remark="unreadable offsets: 1, 2")
    ]
    with pytest.raises(UnreadableMessages, match="offset 3") as failure:
        await consumer.pull(QUEUE, 1)
    assert failure.value.next_offset == 3


async def test_polling_takes_queues_in_turn_and_commits(broker, consumer):
    queues = await consumer.queues("T")
    await consumer.assign(queues)
    seen = []
    while messages := await consumer.poll(wait_ms=0):
        assert len({message.queue for message in messages}) == 1
        seen += [message.body for message in messages]
    assert sorted(seen) == list(range(20))
    await consumer.commit()
    assert [broker.committed["g", "T", n] for n in range(4)] == [5, 5, 5, 5]
    assert await consumer.position(QUEUE) == 5


async def test_polling_goes_on_from_the_progress_and_from_where_it_seeks(consumer):
    await consumer.commit({QUEUE: 3})
    await consumer.assign([QUEUE])
    assert [message.offset for message in await consumer.poll()] == [3, 4]
    await consumer.seek(QUEUE, 1)
    assert [message.offset for message in await consumer.poll(count_max=2)] == [1, 2]


async def test_polling_waits_for_any_queue(broker, consumer, producing, tools):
    queues = await consumer.queues("T")
    await consumer.assign(queues)
    for queue in queues:
        await consumer.seek(queue, 5)
    polling = asyncio.ensure_future(consumer.poll(wait_ms=20_000))
    await tools.until(broker, lambda: broker.parked == 4)
    async with producing() as mq:
        await mq.send("T", b"9", queue=queues[2])
        await mq.send("T", b"8", queue=queues[1])
    first = await polling
    second = await consumer.poll(wait_ms=20_000)
    assert sorted(message.body for message in first + second) == [8, 9], "neither is lost"


async def test_an_offset_outside_the_queue_is_corrected(consumer, caplog):
    await consumer.assign([QUEUE])
    await consumer.seek(QUEUE, 50)
    assert await consumer.poll(wait_ms=0) == []
    assert await consumer.position(QUEUE) == 5
    assert "; resuming at" in caplog.text


async def test_only_assigned_queues_are_polled(consumer):
    with pytest.raises(BadRequest, match="assign"):
        await consumer.poll()
    await consumer.assign([QUEUE])
    other = MessageQueue("T", "broker-a", 1)
    for work in (consumer.seek(other, 0), consumer.position(other)):
        with pytest.raises(BadRequest):
            await work


async def test_a_reset_moves_assigned_queues(consumer):
    await consumer.assign([QUEUE])
    await consumer._io.run(consumer.reset({QUEUE: 2, MessageQueue("T", "x", 1): 9}))
    assert await consumer.position(QUEUE) == 2


async def test_paused_queues_are_passed_over(broker, consumer):
    queues = await consumer.queues("T")
    await consumer.assign(queues[:2])
    await consumer.pause(queues[:1])
    found = [await consumer.poll(wait_ms=1) for _ in range(3)]
    assert {message.queue for messages in found for message in messages} == {queues[1]}
    assert await consumer.position(queues[0]) == 0
    await consumer.pause(queues[1:2])
    assert await consumer.poll(wait_ms=1) == []
    await consumer.resume(queues[:1])
    assert {message.queue for message in await consumer.poll()} == {queues[0]}
    with pytest.raises(BadRequest, match="not assigned"):
        await consumer.pause([MessageQueue("T", "broker-z", 9)])
    await consumer.assign(queues[:2])
    await consumer.pause(queues[:2])
    await consumer.assign(queues[1:3])
    await consumer.assign(queues[:2])
    assert {message.queue for message in await consumer.poll()} == {queues[0]}, "given up since"


async def test_seeking_by_words(broker, consumer):
    await consumer.assign([QUEUE])
    broker.trim("T", 0, 2)
    await consumer.seek_to_end(QUEUE)
    assert await consumer.position(QUEUE) == 5
    assert consumer.status("T") == {QUEUE: 5}
    assert consumer.status("other") == {}
    await consumer.seek_to_begin(QUEUE)
    assert await consumer.position(QUEUE) == 2
    await consumer.seek_to_time(QUEUE, broker.stored("T")[0].store_timestamp + 3_600_000)
    assert await consumer.position(QUEUE) == 5
    with pytest.raises(BadRequest, match="not assigned"):
        await consumer.seek_to_end(MessageQueue("T", "broker-a", 1))


@pytest.mark.feature("F213", "F215")
async def test_sending_a_message_back(broker, consumer):
    message = (await consumer.pull(QUEUE, 0)).messages[0]
    await consumer.send_back(message)
    await consumer.send_back(message, delay_level=-1, reason="no number")
    broker.pass_time(1_000)
    [again], [dead] = broker.stored("%RETRY%g"), broker.stored("%DLQ%g")
    assert again.body == dead.body == message.raw_body
    assert dead.properties["DLQ_REASON"] == "no number"
