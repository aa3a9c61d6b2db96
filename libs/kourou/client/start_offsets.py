"""Where a group begins to consume a queue."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from kourou.client.offsets import LocalOffsets, OffsetStore, QueueFacts, RemoteOffsets
from kourou.client.settings import ConsumerSettings, consume_timestamp_ms
from kourou.clock import Clock
from kourou.model.names import RETRY_PREFIX
from kourou.model.queue import MessageQueue
from kourou.model.subscription import ConsumeFromWhere

QUEUES_AT_ONCE = 32
"""A slow broker is waited for once per so many queues; and it is not asked for thousands at once.
"""


class StartOffsets:
    """Those of one group. `at_once`: for how many queues it is good to ask together.

    That is one where an application brought the store: its `load` need not bear to be called again
    before it has answered.
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
        """For each queue, asked for together: its start, or why that is not known."""
        return await asyncio.gather(*map(self._of, queues), return_exceptions=True)

    async def _of(self, queue: MessageQueue) -> int:
        stored = await self._offsets.load(queue)
        if stored is not None and stored >= 0:
            return stored
        facts = self._facts
        if queue.topic.startswith(RETRY_PREFIX):
            return await facts.min_offset(queue)  # whatever failed there is this group's to repeat
        match self._settings.consume_from_where:
            case ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET:
                return await facts.min_offset(queue)
            case ConsumeFromWhere.CONSUME_FROM_TIMESTAMP:
                now_ms = self._clock.now_ms()
                timestamp_ms = consume_timestamp_ms(self._settings.consume_timestamp, now_ms)
                return await facts.offset_by_time(queue, timestamp_ms)
            case _:
                return await facts.max_offset(queue)
