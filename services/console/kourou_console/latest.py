"""The newest messages of a topic, over all its queues.

Queues are read backwards in steps, in turn: the last few messages of each queue, then twice as many
before them, while older ones can still be among the newest `count`. The messages are collected in
one pool, which keeps the newest `count` of them, and at most MESSAGES_PAGE_BYTES_MAX bytes in
addition to a single larger message. So each queue has only a few messages read in vain.

Messages are ordered by store time; those of one broker and the same millisecond by their position
in its log. A broker's clock may go backwards within a queue: a message counts as no newer than
those after it.
"""

from __future__ import annotations

import asyncio
from bisect import insort
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from kourou.client.admin.messages import Reading
from kourou.client.consumer.pull_consumer import UnreadableMessages
from kourou.client.consumer.received import ReceivedMessage
from kourou.errors import KourouError
from kourou.model.limits import MESSAGES_PAGE_BYTES_MAX
from kourou.model.message import PullStatus
from kourou.model.queue import MessageQueue
from kourou_console.lists import Missing, why

READ_BYTES = 1 << 20
AT_ONCE = 8
FIRST_STEP = 2

Key = tuple[int, str, int, MessageQueue, int]
"""Time, broker, log position; then queue and offset, as several messages may share one record."""


@dataclass(slots=True)
class Latest:
    """The newest messages first. `total` is the number in the queues, None if unknown."""

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

    def may_take(self, key: Key) -> bool:
        """Whether a message before this key can be among the newest."""
        if self._end is not None:
            return key > self._end
        return len(self.kept) < self._count or key > self.kept[0][0]

    def take(self, key: Key, message: ReceivedMessage) -> None:
        """Add a message, then remove the oldest ones over the limits."""
        if self._end is not None and key < self._end:
            return  # a newer one was removed already
        insort(self.kept, (key, message))
        self._size_bytes += message.size
        while len(self.kept) > self._count or (
            self._size_bytes > MESSAGES_PAGE_BYTES_MAX and len(self.kept) > 1
        ):
            self._end, oldest = self.kept.pop(0)
            self._size_bytes -= oldest.size


@dataclass(slots=True)
class _Back:
    """A queue that is read backwards: everything from `offset` on has been read."""

    queue: MessageQueue
    low: int
    offset: int
    step: int = FIRST_STEP
    oldest: Key | None = None
    damaged: list[Missing] = field(default_factory=list)

    def goes_on(self, pool: _Pool, count: int) -> bool:
        """Whether older messages may be needed."""
        if self.offset <= self.low or len(self.damaged) >= count:
            return False
        return self.oldest is None or pool.may_take(self.oldest)

    async def back(self, reading: Reading, pool: _Pool, count: int) -> None:
        """Read one step. Raises as Reading does; then no message of the step is in the pool."""
        begin = max(self.low, self.offset - min(self.step, count))
        found = await self._between(reading, begin, self.offset)
        for message in reversed(found):
            self.oldest = self._key(message)
            pool.take(self.oldest, message)
        self.offset = begin
        # Large messages are read a few at a time; otherwise most would be read in vain.
        largest = max((message.size for message in found), default=0)
        self.step = max(1, min(2 * self.step, READ_BYTES // max(largest, 1)))

    def _key(self, message: ReceivedMessage) -> Key:
        time_ms = message.store_timestamp
        if self.oldest is not None:
            time_ms = min(time_ms, self.oldest[0])
        return (time_ms, self.queue.broker_name, message.position, self.queue, message.offset)

    async def _between(self, reading: Reading, offset: int, end: int) -> deque[ReceivedMessage]:
        """Read [offset, end), of many bytes the newest ones. Notes unreadable messages."""
        found: deque[ReceivedMessage] = deque()
        size_bytes = 0
        while offset < end:
            try:
                result = await reading.read(
                    self.queue, offset, count_max=end - offset, size_bytes_max=READ_BYTES
                )
            except UnreadableMessages as error:
                self.damaged.append(Missing(f"{self.queue!s}@{offset}", str(error)))
                offset = max(offset + 1, error.next_offset)
                continue
            if result.status is PullStatus.NO_NEW_MESSAGE:
                break
            for message in result.messages:
                if message.offset < end:
                    # A copy, so that a small message does not keep the whole buffer in memory.
                    found.append(message.alone())
                    size_bytes += message.size
            # One over the limit stays, so that the pool removes it and knows that older ones are
            # unneeded.
            while found and size_bytes - found[0].size > MESSAGES_PAGE_BYTES_MAX:
                size_bytes -= found.popleft().size
            offset = max(result.next_offset, offset + 1)
        return found


async def latest(reading: Reading, queues: Sequence[MessageQueue], count: int) -> Latest:
    """The newest `count` messages of these queues."""
    found, pool = Latest(), _Pool(count)
    gate = asyncio.Semaphore(AT_ONCE)
    missing: dict[MessageQueue, list[Missing]] = {}

    def failed(queue: MessageQueue, error: KourouError) -> None:
        found.total = None
        missing.setdefault(queue, []).append(Missing(str(queue), why(error)))

    async def begun(queue: MessageQueue) -> _Back | None:
        async with gate:
            try:
                low, high = await reading.bounds(queue)
            except KourouError as error:
                failed(queue, error)
                return None
        if found.total is not None:
            found.total += high - low
        return _Back(queue, low, high, damaged=missing.setdefault(queue, []))

    async def further(one: _Back) -> _Back | None:
        async with gate:
            try:
                await one.back(reading, pool, count)
            except KourouError as error:
                failed(one.queue, error)
                return None
        return one

    going = await asyncio.gather(*map(begun, queues))
    while going:
        wanted = [one for one in going if one is not None and one.goes_on(pool, count)]
        going = await asyncio.gather(*map(further, wanted))
    found.messages = [message for _, message in reversed(pool.kept)]
    found.missing = [one for queue in queues for one in missing.get(queue, [])]
    return found
