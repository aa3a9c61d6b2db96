"""The newest messages of a topic, over all its queues.

Lives here: reading the ends of queues and merging them by store time. May not live here: the call
(kourou_console.api.messages), ranges of time (kourou_console.time_pages).

Of each queue as many are read as are wanted of all, for the newest may all lie in one queue. What
has been read waits in one pool, which keeps the newest: `count` of them, and
MESSAGES_PAGE_BYTES_MAX bytes beside a single larger one.

State: none.
"""

from __future__ import annotations

import asyncio
from bisect import insort
from collections.abc import Sequence
from dataclasses import dataclass, field

from kourou.client.admin_reading import Reading
from kourou.client.pull_consumer import UnreadableMessages
from kourou.client.received import ReceivedMessage
from kourou.errors import KourouError
from kourou.model.limits import MESSAGES_PAGE_BYTES_MAX
from kourou.model.message import PullStatus
from kourou.model.queue import MessageQueue
from kourou_console.lists import Missing, why

READ_BYTES = 1 << 20
AT_ONCE = 8

Key = tuple[int, MessageQueue, int]
"""Time, queue, offset. Within a queue times do not go back in it, though a broker's clock may."""


@dataclass(slots=True)
class Latest:
    """The newest first. `total` counts what the queues keep; None: one of them did not tell."""

    messages: list[ReceivedMessage] = field(default_factory=list)
    total: int | None = 0
    missing: list[Missing] = field(default_factory=list)


class _Pool:
    """The newest messages of all queues, the oldest of them first."""

    def __init__(self, count: int) -> None:
        self.kept: list[tuple[Key, ReceivedMessage]] = []
        self._count = count
        self._size_bytes = 0
        self._end: Key | None = None

    def take(self, key: Key, message: ReceivedMessage) -> None:
        """Take one in; then leave out the oldest, where there are too many."""
        if self._end is not None and key < self._end:
            return  # a newer one was left out already
        # Alone: one small message must not keep all that was read with it.
        insort(self.kept, (key, message.alone()))
        self._size_bytes += message.size
        while len(self.kept) > self._count or (
            self._size_bytes > MESSAGES_PAGE_BYTES_MAX and len(self.kept) > 1
        ):
            self._end, oldest = self.kept.pop(0)
            self._size_bytes -= oldest.size


async def latest(reading: Reading, queues: Sequence[MessageQueue], count: int) -> Latest:
    """The newest `count` messages of these queues."""
    found, pool = Latest(), _Pool(count)
    gate = asyncio.Semaphore(AT_ONCE)

    async def one(queue: MessageQueue) -> None:
        async with gate:
            try:
                low, high = await reading.bounds(queue)
                if found.total is not None:
                    found.total += high - low
                found.missing += await _end_of(reading, queue, max(low, high - count), high, pool)
            except KourouError as error:
                found.total = None
                found.missing.append(Missing(str(queue), why(error)))

    await asyncio.gather(*map(one, queues))
    found.messages = [message for _, message in reversed(pool.kept)]
    return found


async def _end_of(
    reading: Reading, queue: MessageQueue, offset: int, end: int, pool: _Pool
) -> list[Missing]:
    """What lies in [offset, end) of a queue; the places that cannot be read."""
    damaged: list[Missing] = []
    time_ms = 0
    while offset < end:
        try:
            result = await reading.read(
                queue, offset, count_max=end - offset, size_bytes_max=READ_BYTES
            )
        except UnreadableMessages as error:
            damaged.append(Missing(f"{queue!s}@{offset}", str(error)))
            offset = max(offset + 1, error.next_offset)
            continue
        if result.status is PullStatus.NO_NEW_MESSAGE:
            break
        for message in result.messages:
            if message.offset < end:
                time_ms = max(time_ms, message.store_timestamp)
                pool.take((time_ms, queue, message.offset), message)
        offset = max(result.next_offset, offset + 1)
    return damaged
