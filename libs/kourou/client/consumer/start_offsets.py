"""The offset at which a group starts to consume a queue."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from kourou.client.consumer.offsets import LocalOffsets, OffsetStore, QueueFacts, RemoteOffsets
from kourou.client.settings.client_settings import ConsumerSettings, consume_timestamp_ms
from kourou.clock import Clock
from kourou.model.names import RETRY_PREFIX
from kourou.model.subscription import ConsumeFromWhere
from kourou.model.topic import MessageQueue

QUEUES_AT_ONCE = 32
"""The number of queues per round of concurrent requests.

A slow broker delays only one round at a time, and does not get thousands of requests at once.
"""


class StartOffsets:
    """The start offsets of one group. `at_once` is the number of queues to request concurrently.

    It is 1 for an application's own offset store, whose `load` may not support concurrent calls.
    """

    def __init__(
        self, settings: ConsumerSettings, offsets: OffsetStore, facts: QueueFacts, clock: Clock
    ) -> None:
        self._settings = settings
        self._offsets = offsets
        self._facts = facts
        self._clock = clock
        ours = isinstance(offsets, RemoteOffsets | LocalOffsets)
        self.at_once = QUEUES_AT_ONCE if ours else 1

    async def of(self, queues: Sequence[MessageQueue]) -> list[int | BaseException]:
        """Return for each queue, requested concurrently, its start offset or the error."""
        return await asyncio.gather(*map(self._of, queues), return_exceptions=True)

    async def _of(self, queue: MessageQueue) -> int:
        stored = await self._offsets.load(queue)
        if stored is not None and stored >= 0:
            return stored
        facts = self._facts
        if queue.topic.startswith(RETRY_PREFIX):
            return await facts.min_offset(queue)  # all failed messages of the group must be retried
        match self._settings.consume_from_where:
            case ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET:
                return await facts.min_offset(queue)
            case ConsumeFromWhere.CONSUME_FROM_TIMESTAMP:
                now_ms = self._clock.now_ms()
                timestamp_ms = consume_timestamp_ms(self._settings.consume_timestamp, now_ms)
                return await facts.offset_by_time(queue, timestamp_ms)
            case _:
                return await facts.max_offset(queue)
