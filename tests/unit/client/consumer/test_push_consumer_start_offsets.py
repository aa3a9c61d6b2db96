"""Where a group begins: asked for many queues at once, where that is borne."""

from __future__ import annotations

import asyncio

import pytest

from kourou.client.consumer.offsets import RemoteOffsets
from kourou.client.consumer.push_consumer import QUEUES_AT_ONCE, StartOffsets
from kourou.client.settings.client_settings import ConsumerSettings
from kourou.errors import Unavailable
from kourou.model.topic import MessageQueue
from kourou_rigs.clock import ManualClock

QUEUES = [MessageQueue("T", "broker-a", number) for number in range(QUEUES_AT_ONCE)]


class Facts:
    """A broker that knows of even queues, fails for the third, and counts who asks together."""

    def __init__(self) -> None:
        self.asking = self.asking_max = 0

    async def committed(self, group: str, queue: MessageQueue) -> int | None:
        return await self.load(queue)

    async def load(self, queue: MessageQueue) -> int | None:
        self.asking += 1
        self.asking_max = max(self.asking_max, self.asking)
        await asyncio.sleep(0)
        self.asking -= 1
        if queue.queue_id == 3:
            raise Unavailable("nobody leads")
        return None if queue.queue_id % 2 else queue.queue_id

    async def max_offset(self, queue: MessageQueue) -> int:
        return 1_000 + queue.queue_id


def starts(facts: Facts, offsets: object) -> StartOffsets:
    return StartOffsets(ConsumerSettings(consumer_group="g"), offsets, facts, ManualClock())  # type: ignore[arg-type]


async def test_brokers_are_asked_for_many_queues_together() -> None:
    facts = Facts()
    asked = starts(facts, RemoteOffsets("g", facts))  # type: ignore[arg-type]
    assert asked.at_once == QUEUES_AT_ONCE
    found = await asked.of(QUEUES)
    assert facts.asking_max == QUEUES_AT_ONCE
    with pytest.raises(Unavailable, match="nobody leads"):
        raise found.pop(3)  # type: ignore[misc]
    assert found == [
        1_000 + one.queue_id if one.queue_id % 2 else one.queue_id
        for one in QUEUES
        if one.queue_id != 3
    ]


async def test_an_applications_store_is_asked_for_one_queue_after_the_other() -> None:
    asked = starts(Facts(), Facts())
    assert asked.at_once == 1
    assert await asked.of(QUEUES[:1]) == [0]


async def test_more_queues_than_are_requested_at_once_are_started_in_order(
    broker, consuming, cluster, tools
):
    count = 2 * QUEUES_AT_ONCE + 1
    cluster.topics["T"] = (count, count)
    async with consuming() as mq, mq.listen("T", tools.Inbox(1).handle) as listener:
        started = [queue.queue_id for queue in listener._started._queues if queue.topic == "T"]
        assert started == list(range(count))
