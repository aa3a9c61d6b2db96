"""Consuming from threads."""

from __future__ import annotations

import threading

import pytest

from kourou import ConsumerSettings
from kourou.client.session.io_thread import ClientClosed
from kourou.errors import BadRequest, TopicNotFound
from kourou.model.message import PullStatus
from kourou.model.subscription import ConsumeFromWhere
from kourou.model.topic import MessageQueue
from kourou.sync import Client


@pytest.fixture
def mq(cluster, broker, tools):
    consumer = ConsumerSettings(
        consumer_group="g", consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
    )
    with Client(tools.NAMESRV, consumer=consumer, dial=cluster.dial) as client:
        client.send_many("T", tools.numbers(12))
        yield client


def test_an_iteration(broker, mq, tools):
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


def test_a_listener(broker, mq):
    seen, full = [], threading.Event()

    def handler(message):
        seen.append(message.body)
        if len(seen) == 12:
            full.set()

    with mq.listen("T", handler) as listener:
        assert full.wait(60)
        assert listener.counts.pulled == 12
    assert len(seen) == 12


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
