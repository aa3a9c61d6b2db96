"""What a handler that is given a queue in order says of its messages, and what comes of it."""

from __future__ import annotations

import asyncio
import threading

import pytest

from kourou import ConsumerSettings, MessageQueue
from kourou.client.consumer.outcomes import (
    ConsumedFirst,
    ConsumeOrderlyStatus,
    ConsumeResult,
    DeadLetter,
    Suspend,
)
from kourou.client.ordered.turns import TURN_ITEMS
from kourou.errors import BadRequest
from kourou.model.subscription import ConsumeFromWhere
from kourou.protocol.messages.sends import ConsumerSendMsgBack, SendMessage
from kourou.sync import Client
from kourou_rigs.wire_faults import Answer, always

Q = [MessageQueue("T", "broker-a", number) for number in range(4)]
COMMIT, ROLLBACK = ConsumeOrderlyStatus.COMMIT, ConsumeOrderlyStatus.ROLLBACK
SUSPEND = ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT


async def put(make, count: int, queue: MessageQueue = Q[0]) -> None:
    async with make() as mq:
        for number in range(count):
            await mq.send("T", b"%d" % number, queue=queue)


async def one_queue(tools, make, broker, say, *, count=3, listen=None, **settings) -> list[bytes]:
    """Everything a handler saw of one queue, until all is committed."""
    await put(make, count)
    watch = tools.Watch(say)
    settings.setdefault("redelivery_delay_ms", 10)
    async with (
        make(**settings) as mq,
        mq.listen("T", watch.handle, ordered=True, **(listen or {})) as listener,
    ):
        await tools.until(broker, lambda: listener._started.status("T")[Q[0]] == count)
    return watch.seen


@pytest.mark.feature("F178", "F179")
async def test_each_queue_in_order_and_queues_side_by_side(broker, consuming, tools) -> None:
    async with consuming() as mq:
        await mq.send_many("T", tools.numbers(200))
    beside = asyncio.Barrier(4)

    async def meet(message):
        if message.offset == 0:
            await beside.wait()  # the test ends only if all queues are under way at once

    watch = tools.Watch(meet)
    async with consuming() as mq, mq.listen("T", watch.handle, ordered=True) as listener:
        await tools.until(broker, lambda: len(watch.seen) == 200)
        assert listener.locked == Q
    for number in range(4):
        sent = [stored.body for stored in broker.stored("T", number)]
        assert [body for body in watch.seen if body in set(sent)] == sent
        assert broker.committed["g", "T", number] == 50
    assert broker.locks == {}, "given back at close"


def test_in_threads(cluster, broker) -> None:
    settings = ConsumerSettings(
        consumer_group="g", consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
    )
    seen: list[bytes] = []
    full = threading.Event()

    def handler(message):
        seen.append(message.body)
        if len(seen) == 100:
            full.set()

    with Client("127.0.0.1:9876", consumer=settings, dial=cluster.dial) as mq:
        for number in range(100):
            mq.send("T", b"%d" % number, order_key="A")
        with mq.listen("T", handler, ordered=True) as listener:
            assert full.wait(60)
            assert len(listener.locked) == 4
    assert seen == [b"%d" % number for number in range(100)]


@pytest.mark.feature("F183")
@pytest.mark.parametrize(
    "failure",
    [
        ValueError("no"),
        SUSPEND,
        ROLLBACK,
        ConsumeResult.RECONSUME_LATER,
        Suspend(10),
        SystemExit(1),
    ],
    ids=str,
)
async def test_what_is_not_consumed_comes_again_first(consuming, broker, failure, tools) -> None:
    def say(message):
        if message.body == b"1" and message.attempt < 3:
            if isinstance(failure, BaseException) and not isinstance(failure, Suspend):
                raise failure
            return failure
        return None

    seen = await one_queue(tools, consuming, broker, say)
    assert seen == [b"0", b"1", b"1", b"1", b"2"]


@pytest.mark.feature("F178", "F179")
async def test_a_failure_among_hundreds_holds_up_all_that_follow(consuming, broker, tools) -> None:
    """More messages than one turn takes: those of the turn that failed go before the rest."""

    def say(message):
        return SUSPEND if message.body == b"5" and message.attempt == 1 else None

    seen = await one_queue(tools, consuming, broker, say, count=TURN_ITEMS + 50)
    again = [*range(6), *range(5, TURN_ITEMS + 50)]
    assert seen == [b"%d" % number for number in again]


@pytest.mark.feature("F178", "F179")
async def test_what_is_pulled_while_a_handler_runs_waits_for_its_end(
    consuming, broker, tools
) -> None:
    await put(consuming, 1)
    gate, started = asyncio.Event(), []

    async def handler(message):
        started.append(message.body)
        await gate.wait()

    async with consuming() as mq, mq.listen("T", handler, ordered=True) as listener:
        await tools.until(broker, lambda: started)
        await mq.send("T", b"later", queue=Q[0])
        await tools.until(broker, lambda: listener.counts.pulled == 2)
        for _ in range(20):  # all turns of the loop that a second handler would need
            await tools.core(mq).io.run(asyncio.sleep(0))
        assert started == [b"0"]
        gate.set()
        await tools.until(broker, lambda: len(started) == 2)


async def test_a_blocked_queue_is_listed_and_a_running_one_is_not(consuming, broker, tools) -> None:
    await put(consuming, 2)

    def say(message):
        return Suspend(30_000) if message.body == b"1" else None

    watch = tools.Watch(say)
    async with consuming() as mq, mq.listen("T", watch.handle, ordered=True) as listener:
        delivery = listener._started._delivery
        await tools.until(broker, lambda: delivery.waits())
        ((queue, wait),) = delivery.waits().items()
        assert (queue, wait.offset, wait.attempts) == (Q[0], 1, 1)
        left_ms = wait.until_ms - listener._started._session.clock.now_ms()
        assert 0 < left_ms <= 30_000
        text = listener._started.running_info().properties["PROP_ORDERED_WAITS"]
        assert text == f"T/broker-a/0@1 attempts=1 until={wait.until_ms}"


async def test_a_pause_of_its_own(consuming, broker, tools) -> None:
    """The consumer's pause is half a minute: the test ends only because of the handler's."""

    def say(message):
        if message.body == b"1" and message.attempt < 3:
            raise Suspend(1)
        return None

    assert Suspend(1).pause_ms == 10
    assert Suspend(100_000).pause_ms == 30_000
    seen = await one_queue(tools, consuming, broker, say, redelivery_delay_ms=30_000)
    assert seen == [b"0", b"1", b"1", b"1", b"2"]


@pytest.mark.parametrize("word", ["ack", "retry", "dead_letter"])
async def test_words_of_the_message_itself(consuming, broker, word, tools) -> None:
    def say(message):
        if message.body == b"1" and message.attempt == 1:
            getattr(message, word)()
            if word == "ack":
                raise ValueError("too late: it is acknowledged")

    seen = await one_queue(tools, consuming, broker, say)
    assert seen == ([b"0", b"1", b"1", b"2"] if word == "retry" else [b"0", b"1", b"2"])
    assert len(broker.stored("%DLQ%g")) == (1 if word == "dead_letter" else 0)


@pytest.mark.parametrize("times", [0, 2])
async def test_after_so_many_attempts_it_is_a_dead_letter(consuming, broker, times, tools) -> None:
    def say(message):
        if message.body == b"1":
            raise ValueError("never")

    seen = await one_queue(tools, consuming, broker, say, max_reconsume_times=times)
    assert seen == [b"0", *[b"1"] * (times + 1), b"2"]
    assert [each.body for each in broker.stored("%DLQ%g")] == [b"1"]


async def test_a_dead_letter_that_no_broker_accepts_is_sent_again(consuming, broker, tools) -> None:
    refused = always(Answer(1, remark="no"))
    broker.faults[ConsumerSendMsgBack] = broker.faults[SendMessage] = refused

    def say(message):
        if message.body == b"1":
            if message.attempt == 3:
                broker.faults.clear()
            raise DeadLetter("never")

    seen = await one_queue(tools, consuming, broker, say)
    assert seen == [b"0", b"1", b"1", b"1", b"2"]
    assert len(broker.stored("%DLQ%g")) == 1


async def test_batches(consuming, broker) -> None:
    await put(consuming, 7)
    lists: list[list[bytes]] = []
    full = asyncio.Event()

    async def handler(messages):
        lists.append([message.body for message in messages])
        if messages[-1].body == b"6":
            full.set()
        if len(lists) == 1:
            return ConsumedFirst(2)
        return None

    async with (
        consuming(redelivery_delay_ms=10) as mq,
        mq.listen("T", handler, ordered=True, batch=3),
    ):
        await full.wait()
    assert lists == [[b"0", b"1", b"2"], [b"2"], [b"3", b"4", b"5"], [b"6"]]
    assert broker.committed["g", "T", 0] == 7


@pytest.mark.feature("F213")
@pytest.mark.parametrize("raises", [False, True])
async def test_of_a_batch_only_the_message_that_is_meant_is_a_dead_letter(
    consuming, broker, tools, raises
) -> None:
    await put(consuming, 3)
    lists: list[list[bytes]] = []

    async def handler(messages):
        lists.append([message.body for message in messages])
        for message in messages:
            if message.body == b"1":
                message.dead_letter("never")
                if raises:
                    raise ValueError("never")
            message.ack()

    async with (
        consuming(redelivery_delay_ms=10) as mq,
        mq.listen("T", handler, ordered=True, batch=3) as listener,
    ):
        await tools.until(broker, lambda: listener._started.status("T")[Q[0]] == 3)
    assert lists == [[b"0", b"1", b"2"], [b"2"]]
    assert [dead.body for dead in broker.stored("%DLQ%g")] == [b"1"]


@pytest.mark.feature("F213")
async def test_of_a_batch_those_before_the_one_that_waits_are_consumed(
    consuming, broker, tools
) -> None:
    await put(consuming, 3)
    lists: list[list[tuple[bytes, int]]] = []

    async def handler(messages):
        lists.append([(message.body, message.attempt) for message in messages])
        if len(lists) == 1:
            messages[1].retry()

    async with (
        consuming(redelivery_delay_ms=10) as mq,
        mq.listen("T", handler, ordered=True, batch=3) as listener,
    ):
        await tools.until(broker, lambda: listener._started.status("T")[Q[0]] == 3)
    assert lists == [[(b"0", 1), (b"1", 1), (b"2", 1)], [(b"1", 2), (b"2", 1)]]


# -- commits of the handler's own -----------------------------------------------------------------


async def test_commit_and_rollback(consuming, broker, tools) -> None:
    rolled_back = []

    def say(message):
        if message.body == b"4" and not rolled_back:
            rolled_back.append(1)
            return ROLLBACK
        return COMMIT if message.body in (b"1", b"5") else None

    seen = await one_queue(tools, consuming, broker, say, count=6, listen={"auto_commit": False})
    assert seen == [b"0", b"1", b"2", b"3", b"4", b"2", b"3", b"4", b"5"]


async def test_what_is_not_committed_comes_again_elsewhere(consuming, broker, tools) -> None:
    await put(consuming, 4)
    watch = tools.Watch(lambda message: COMMIT if message.body == b"1" else None)
    full = asyncio.Event()

    async def handler(message):
        said = await watch.handle(message)
        if message.body == b"3":
            full.set()
        return said

    async with (
        consuming() as mq,
        mq.listen("T", handler, ordered=True, auto_commit=False),
    ):
        await full.wait()
    assert broker.committed["g", "T", 0] == 2


async def test_commits_of_ones_own_need_order(consuming, broker) -> None:
    async with consuming() as mq:
        with pytest.raises(BadRequest, match="ordered"):
            mq.listen("T", lambda message: None, auto_commit=False)
