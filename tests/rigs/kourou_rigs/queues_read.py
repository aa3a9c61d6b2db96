"""Queues in memory with the interface of `client.admin.reading`, for tests of its users.

State: soft.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import cast

from kourou.client.admin.messages import Reading
from kourou.client.consumer.pull_consumer import PullResult
from kourou.client.consumer.received import ReceivedMessage
from kourou.errors import KourouError, TopicNotFound
from kourou.model.message import PullStatus, StoredMessage
from kourou.model.topic import MessageQueue


def message_at(
    queue: MessageQueue,
    offset: int,
    *,
    stored_ms: int = 0,
    position: int | None = None,
    body: bytes = b"",
    properties: Mapping[str, str] | None = None,
) -> ReceivedMessage:
    """A message as returned by a pull."""
    stored = StoredMessage(
        topic=queue.topic,
        body=body,
        properties=dict(properties or {}),
        flag=0,
        queue_id=queue.queue_id,
        offset=offset,
        position=offset * 100 if position is None else position,
        size=100,
        sys_flag=0,
        born_timestamp=stored_ms,
        born_host=("127.0.0.1", 1),
        store_timestamp=stored_ms,
        store_host=("127.0.0.1", 10_911),
        body_crc=0,
        reconsume_times=0,
        prepared_transaction_offset=0,
        broker_name=queue.broker_name,
    )
    return ReceivedMessage(queue, offset, 100, _stored=stored)


class QueuesRead:
    """Each queue is a list of messages with offsets from 0.

    All messages are in one log, in order. A message with the tag `hidden` is skipped by every read,
    like one that a filter rejects. `failing` has errors that the next reads of a queue raise.
    """

    def __init__(self, topic: str, queues: int, *, read_max: int = 1_000) -> None:
        self.messages: dict[MessageQueue, list[ReceivedMessage]] = {
            MessageQueue(topic, "broker-a", number): [] for number in range(queues)
        }
        self.failing: dict[MessageQueue, list[KourouError]] = {}
        self.low: dict[MessageQueue, int] = {}
        self.reads = 0
        self._read_max = read_max
        self._grown = asyncio.Event()

    def face(self) -> Reading:
        """This object as a Reading."""
        return cast("Reading", self)

    def put(
        self, queue: MessageQueue, *, stored_ms: int = 0, tag: str = "", body: bytes = b""
    ) -> None:
        """Add a message."""
        messages = self.messages[queue]
        properties = {"TAGS": tag} if tag else {}
        position = 100 * sum(map(len, self.messages.values()))
        messages.append(
            message_at(
                queue,
                len(messages),
                stored_ms=stored_ms,
                position=position,
                body=body,
                properties=properties,
            )
        )
        self._grown.set()
        self._grown = asyncio.Event()

    async def queues(self, topic: str) -> list[MessageQueue]:
        """See Reading."""
        found = [queue for queue in self.messages if queue.topic == topic]
        if not found:
            raise TopicNotFound(f"topic {topic!r} does not exist")
        return sorted(found)

    async def bounds(self, queue: MessageQueue) -> tuple[int, int]:
        """See Reading."""
        return self.low.get(queue, 0), len(self.messages[queue])

    async def offset_by_time(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """See Reading."""
        messages = self.messages[queue]
        later = (one.offset for one in messages if one.store_timestamp >= timestamp_ms)
        return next(later, len(messages))

    async def read(
        self,
        queue: MessageQueue,
        offset: int,
        *,
        wanted: object = "*",
        count_max: int = 32,
        size_bytes_max: int = 0,
        wait_ms: int = 0,
    ) -> PullResult:
        """See Reading; one read covers at most `read_max` offsets."""
        self.reads += 1
        if self.failing.get(queue):
            raise self.failing[queue].pop(0)
        low, high = await self.bounds(queue)
        if not low <= offset <= high:
            place = low if offset < low else high
            return PullResult(PullStatus.OFFSET_ILLEGAL, place, low, high)
        while wait_ms and offset >= len(self.messages[queue]):
            await self._grown.wait()
        seen: Sequence[ReceivedMessage] = self.messages[queue][offset : offset + self._read_max]
        kept: list[ReceivedMessage] = []
        after = offset
        for one in seen:
            if len(kept) == count_max:
                break
            after = one.offset + 1
            if one.tag != "hidden":
                kept.append(one)
        if not seen:
            return PullResult(PullStatus.NO_NEW_MESSAGE, offset, low, high)
        status = PullStatus.FOUND if kept else PullStatus.NO_MATCHED_MESSAGE
        return PullResult(status, after, low, len(self.messages[queue]), kept)
