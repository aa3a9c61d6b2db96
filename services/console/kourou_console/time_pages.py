"""Messages of all queues of a topic by store time, page by page.

A page contains no message that is newer than an unread one of a slower queue: it ends at the
earliest of the times up to which each queue has been read. So it may be short, or empty if a filter
excludes most messages; only a cursor of None means that there are no more.

Messages are collected in one pool for all queues, which keeps the earliest ones: `count` of them,
and at most MESSAGES_PAGE_BYTES_MAX bytes in addition to a single larger message. If a message is
removed from the pool, its queue is *cut* there: it is not read further, and the next page starts
with that message. Later messages of any queue are not added after that, so the page has no gap.
"""

from __future__ import annotations

import asyncio
from bisect import insort
from collections.abc import Sequence
from dataclasses import dataclass, field

from kourou.client.admin.messages import Reading
from kourou.client.consumer.pull_consumer import UnreadableMessages
from kourou.client.consumer.received import ReceivedMessage
from kourou.client.filters.expressions import Sql
from kourou.errors import KourouError
from kourou.model.limits import MESSAGES_PAGE_BYTES_MAX
from kourou.model.message import PullStatus
from kourou.model.queue import MessageQueue
from kourou_console.lists import Missing, why

READS = 8
"""The maximum number of reads of one queue for one page, as a filter may exclude most messages."""

READ_BYTES = 1 << 20
AT_ONCE = 16

_NEVER_MS = 1 << 62
Key = tuple[int, MessageQueue, int]
"""Time, queue, offset: the order of a page. Within a queue this time never decreases, although a
broker's clock may go backwards.
"""


@dataclass(slots=True)
class _Target:
    """One queue: `offset` is the next one to read, `end` is the end of the time range."""

    queue: MessageQueue
    offset: int
    end: int
    #: The time of the last message that was added.
    came_to_ms: int = -1
    done: bool = False
    cut: bool = False
    damaged: list[Missing] = field(default_factory=list)

    def was_cut(self) -> bool:
        """Whether its message at `offset` was removed from the pool, possibly during a read."""
        return self.cut

    @property
    def known_until_ms(self) -> int:
        """All messages of this queue up to this time are in the pool, or the queue has ended."""
        return _NEVER_MS if self.done or self.cut else self.came_to_ms


class _Pool:
    """The earliest messages of all queues, in their order."""

    def __init__(self, count: int) -> None:
        self.kept: list[tuple[Key, ReceivedMessage, _Target]] = []
        self._count = count
        self._size_bytes = 0
        self._end: Key | None = None

    def take(self, target: _Target, message: ReceivedMessage) -> None:
        """Add a message, or cut its queue; then cut the queues of messages over the limits."""
        target.came_to_ms = max(target.came_to_ms, message.store_timestamp)
        key = (target.came_to_ms, target.queue, message.offset)
        if self._end is not None and key > self._end:
            _cut(target, message)
            return
        # A copy, so that a small message does not keep the whole buffer in memory.
        insort(self.kept, (key, message.alone(), target))
        self._size_bytes += message.size
        while len(self.kept) > self._count or (
            self._size_bytes > MESSAGES_PAGE_BYTES_MAX and len(self.kept) > 1
        ):
            self._end, late, its_target = self.kept.pop()
            self._size_bytes -= late.size
            _cut(its_target, late)


def _cut(target: _Target, message: ReceivedMessage) -> None:
    target.offset, target.cut, target.done = message.offset, True, False


@dataclass(frozen=True, slots=True)
class Page:
    """Some messages, the next offsets (None: there are no more), and what could not be read.

    `missing` are queues to read again; `damaged` are positions that were skipped.
    """

    messages: list[ReceivedMessage]
    offsets: dict[MessageQueue, int] | None
    missing: list[Missing]
    damaged: list[Missing] = field(default_factory=list)


async def starts(
    reading: Reading, queues: Sequence[MessageQueue], from_ms: int
) -> tuple[dict[MessageQueue, int], list[Missing]]:
    """The offset of each queue's first message stored at `from_ms` or later."""
    found: dict[MessageQueue, int] = {}
    missing: list[Missing] = []
    gate = asyncio.Semaphore(AT_ONCE)

    async def one(queue: MessageQueue) -> None:
        async with gate:
            try:
                found[queue] = max(0, await reading.offset_by_time(queue, from_ms))
            except KourouError as error:
                missing.append(Missing(str(queue), why(error)))

    await asyncio.gather(*map(one, queues))
    return found, missing


async def page(
    reading: Reading,
    offsets: dict[MessageQueue, int],
    *,
    until_ms: int,
    count: int,
    wanted: str | Sql,
) -> Page:
    """The next messages from these offsets on that were stored up to `until_ms`.

    At most `count`, and at most MESSAGES_PAGE_BYTES_MAX bytes.
    """
    missing: list[Missing] = []
    targets: list[_Target] = []
    pool = _Pool(count)
    gate = asyncio.Semaphore(AT_ONCE)

    async def filled(queue: MessageQueue, offset: int) -> None:
        async with gate:
            target: _Target | None = None
            begin = offset
            try:
                low, high = await reading.bounds(queue)
                begin = max(offset, low)
                target = _Target(queue, begin, high)
                await _fill(reading, target, pool, until_ms, count, wanted)
            except KourouError as error:
                missing.append(Missing(str(queue), why(error)))
                if target is None or (target.offset == begin and not target.cut):
                    return
            targets.append(target)

    await asyncio.gather(*(filled(queue, offset) for queue, offset in offsets.items()))
    horizon_ms = min((target.known_until_ms for target in targets), default=_NEVER_MS)
    shown: list[ReceivedMessage] = []
    places = dict(offsets)
    places.update((target.queue, target.offset) for target in targets)
    more = not all(target.done for target in targets)
    for (time_ms, queue, offset), message, _ in pool.kept:
        if time_ms <= horizon_ms:
            shown.append(message)
        else:
            more = True
            places[queue] = min(places[queue], offset)
    damaged = [one for target in targets for one in target.damaged]
    return Page(shown, places if more else None, missing, damaged)


async def _fill(
    reading: Reading, target: _Target, pool: _Pool, until_ms: int, count: int, wanted: str | Sql
) -> None:
    """Read until `count`, the end of the range, a cut, or the limit of reads is reached."""
    taken = 0
    for _ in range(READS):
        if target.offset >= target.end and not target.was_cut():
            target.done = True
        if target.done or target.was_cut() or taken >= count:
            return
        asked = target.offset
        try:
            result = await reading.read(
                target.queue,
                asked,
                wanted=wanted,
                count_max=count - taken,
                size_bytes_max=READ_BYTES,
            )
        except UnreadableMessages as error:
            if target.was_cut():
                return
            target.damaged.append(Missing(f"{target.queue!s}@{asked}", str(error)))
            target.offset = max(asked + 1, error.next_offset)
            continue
        if target.was_cut():
            return
        if result.status is PullStatus.NO_NEW_MESSAGE:
            target.done = True
            return
        for message in result.messages:
            if message.store_timestamp > until_ms:
                target.offset, target.done = message.offset, True
                return
            pool.take(target, message)
            if target.was_cut():
                return
            target.offset = message.offset + 1
            taken += 1
        target.offset = max(result.next_offset, asked + 1)
