"""The queues in memory answer as a broker does."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from kourou.errors import TopicNotFound
from kourou.model.message import PullStatus
from kourou.model.topic import MessageQueue
from kourou.testing.cluster import Cluster
from kourou_rigs.queues_read import QueuesRead

QUEUE = MessageQueue("orders", "broker-a", 0)


@pytest.fixture(params=["in memory", "at a broker"])
async def reading(request: Any, tmp_path: Path) -> AsyncIterator[Any]:
    if request.param == "in memory":
        queues = QueuesRead("orders", 1)
        for number in range(4):
            queues.put(QUEUE, body=b"%d" % number, tag="hidden" if number == 1 else "seen")
        yield queues
        return
    async with AsyncExitStack() as stack:
        cluster = stack.enter_context(Cluster(tmp_path))
        cluster.create_topic("orders", queues=1)
        client = await stack.enter_async_context(cluster.async_client())
        for number in range(4):
            tag = "hidden" if number == 1 else "seen"
            await client.send("orders", b"%d" % number, tag=tag, queue=QUEUE)
        yield client.admin.reading


async def test_they_read_alike(reading: Any) -> None:
    assert await reading.queues("orders") == [QUEUE]
    with pytest.raises(TopicNotFound):
        await reading.queues("no-such")
    assert await reading.bounds(QUEUE) == (0, 4)
    result = await reading.read(QUEUE, 0, wanted="seen", count_max=2)
    assert [one.raw_body for one in result.messages] == [b"0", b"2"]
    assert (result.status, result.next_offset) == (PullStatus.FOUND, 3)
    end = await reading.read(QUEUE, 4, wanted="seen")
    assert (end.status, end.next_offset, end.messages) == (PullStatus.NO_NEW_MESSAGE, 4, [])
    beyond = await reading.read(QUEUE, 9, wanted="seen")
    assert (beyond.status, beyond.next_offset) == (PullStatus.OFFSET_ILLEGAL, 4)
    assert await reading.offset_by_time(QUEUE, 0) == 0
