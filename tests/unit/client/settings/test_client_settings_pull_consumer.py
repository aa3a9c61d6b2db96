"""Every setting of a pull consumer does what it says: F316 to F324, under RocketMQ's names."""

from __future__ import annotations

import asyncio

import pytest

from kourou import Client, PullConsumerSettings
from kourou.errors import BadRequest, UnknownOutcome
from kourou.model.topic import MessageQueue
from kourou.protocol.messages.pulls import PullMessage

PATIENCE_S = 10
QUEUE = MessageQueue("T", "broker-a", 0)


@pytest.fixture
async def mq(cluster, broker, tools):
    async with Client(tools.NAMESRV, dial=cluster.dial) as client:
        yield client


def consumer(mq, **settings):
    settings.setdefault("consumerGroup", "g")
    return mq.pull_consumer(settings=PullConsumerSettings.from_rocketmq(**settings))


def deadlines(cluster) -> list[int]:
    return [left for wire in cluster.wires for code, left in wire.deadlines if code == 11]


@pytest.mark.feature("F316")
async def test_the_group_joins_pulls_and_commits(broker, mq):
    one = await consumer(mq, consumerGroup="billing")
    await one.pull(QUEUE, 0)
    await one.commit({QUEUE: 3})
    assert list(broker.members) == ["billing"]
    assert broker.requests(PullMessage)[0].consumer_group == "billing"
    assert broker.committed == {("billing", "T", 0): 3}


@pytest.mark.feature("F317")
@pytest.mark.parametrize(("suspend_ms", "held_ms"), [("5", 5), ("60000", 20)])
async def test_a_pull_is_held_no_longer_than_this(broker, mq, suspend_ms, held_ms):
    settings = {
        "brokerSuspendMaxTimeMillis": suspend_ms,
        "consumerTimeoutMillisWhenSuspend": "61000",
    }
    one = await consumer(mq, **settings)
    await one.pull(QUEUE, 0, wait_ms=20)
    assert broker.requests(PullMessage)[0].suspend_timeout_millis == held_ms


@pytest.mark.feature("F320", "F324")
@pytest.mark.parametrize(
    ("settings", "share"),
    [
        ({}, [0, 1, 2, 3]),
        ({"messageModel": "BROADCASTING"}, [0, 1, 2, 3]),
        ({"messageModel": "CLUSTERING"}, [0, 1]),
        (
            {
                "messageModel": "CLUSTERING",
                "allocateMessageQueueStrategy": "AllocateMessageQueueAveragelyByCircle",
            },
            [0, 2],
        ),
    ],
)
async def test_a_members_queues_by_model_and_strategy(cluster, broker, tools, settings, share):
    async with (
        Client(tools.NAMESRV, dial=cluster.dial) as a,
        Client(tools.NAMESRV, dial=cluster.dial) as b,
    ):
        first, second = sorted((a, b), key=lambda mq: mq.client_id)
        one, other = await consumer(first, **settings), await consumer(second, **settings)
        await one.balanced_queues("T")
        others = await other.balanced_queues("T")
        ours = await one.balanced_queues("T")
    assert [queue.queue_id for queue in ours] == share
    left = sorted({0, 1, 2, 3} - set(share)) or share
    assert [queue.queue_id for queue in others] == left


async def test_a_strategy_that_would_end_the_thread_fails_alone(mq):
    def leave(*_):
        raise SystemExit

    one = await consumer(mq, messageModel="CLUSTERING", allocateMessageQueueStrategy=leave)
    with pytest.raises(BadRequest, match="SystemExit"):
        await one.balanced_queues("T")
    assert await one.queues("T")


@pytest.mark.feature("F321", "F323")
async def test_the_listener_hears_of_registered_topics_only(cluster, mq, tools, caplog):
    cluster.topics |= {"U": (1, 1), "V": (1, 1)}
    told: asyncio.Queue = asyncio.Queue()
    loop = asyncio.get_running_loop()

    def listener(topic, queues):
        loop.call_soon_threadsafe(told.put_nowait, (topic, len(queues)))
        raise ValueError("its own affair")

    one = await consumer(mq, registerTopics="T; U", messageQueueListener=listener)
    assert {await told.get(), await told.get()} == {("T", 4), ("U", 1)}
    await one.queues("V")
    for topic in ("T", "U", "V"):
        cluster.topics[topic] = (2, 2)
        await tools.refresh(mq, topic)
    assert {await told.get(), await told.get()} == {("T", 2), ("U", 2)}
    await one.close()
    assert told.empty()
    assert "its own affair" in caplog.text


@pytest.mark.feature("F323")
async def test_a_registered_topic_that_comes_later_is_told(cluster, broker, tools):
    told = asyncio.Event()
    loop = asyncio.get_running_loop()
    async with Client(tools.NAMESRV, dial=cluster.dial) as mq:
        await consumer(
            mq,
            registerTopics="Later",
            messageQueueListener=lambda *_: loop.call_soon_threadsafe(told.set),
        )
        cluster.topics["Later"] = (1, 1)
        await tools.refresh(mq, "Later")
        async with asyncio.timeout(PATIENCE_S):
            await told.wait()


@pytest.mark.feature("F322")
async def test_progress_is_kept_in_the_store_of_the_settings(broker, mq, tools):
    await mq.send_batch("T", tools.numbers(5), queue=QUEUE)
    store = tools.Store()
    one = await consumer(mq, offsetStore=store)
    await one.assign([QUEUE])
    await one.poll(count_max=3, wait_ms=0)
    await one.commit()
    assert store == {QUEUE: 3}
    assert await one.committed(QUEUE) == 3
    assert broker.committed == {}
    await one.assign([QUEUE])
    assert [message.body for message in await one.poll(wait_ms=0)] == [b"3", b"4"]


# -- what polls make of these times ---------------------------------------------------------------


async def test_a_poll_waits_longer_than_one_hold(broker, mq, tools):
    one = await consumer(mq, brokerSuspendMaxTimeMillis="1")
    await one.assign([QUEUE])
    polling = asyncio.ensure_future(one.poll(wait_ms=60_000))
    async with asyncio.timeout(PATIENCE_S):
        await tools.until(broker, lambda: len(broker.requests(PullMessage)) >= 4)
    await mq.send("T", b"x", queue=QUEUE)
    assert [message.body for message in await polling] == [b"x"]


async def test_a_poll_that_no_broker_holds_does_not_rush(broker, mq):
    one = await consumer(mq, brokerSuspendMaxTimeMillis="0")
    await one.assign([QUEUE])
    assert await one.poll(wait_ms=120) == []
    assert len(broker.requests(PullMessage)) <= 5, (
        "a pause lies between two pulls that are not held"
    )


@pytest.mark.parametrize("wrong", [{"wait_ms": -1}, {"count_max": 0}])
async def test_a_poll_that_asks_for_nothing(mq, wrong):
    one = await consumer(mq)
    await one.assign([QUEUE])
    with pytest.raises(
        BadRequest,
        match="the wait time must be at least 0 ms, and the number of messages at least 1",
    ):
        await one.poll(**wrong)


async def test_a_pull_consumer_that_cannot_open_leaves_its_group(cluster, broker, mq):
    cluster.down.add("127.0.0.1:19876")
    with pytest.raises(UnknownOutcome, match="is down"):
        await consumer(mq, registerTopics="T")
    cluster.down.clear()
    await (await consumer(mq, registerTopics="T")).close()
