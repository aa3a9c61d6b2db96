"""Messages of all queues of a topic by their store time, page by page.

A page never passes over what a slower queue may still have: it ends at the earliest of the times up
to which each queue has been read. So it may be short, even empty where a filter lets little
through; only a cursor of None says that there is no more.

What has been read waits in one pool for all queues, which keeps the earliest messages: `count` of
them, and MESSAGES_PAGE_BYTES_MAX bytes beside a single larger one. A queue of which one was pushed
out is *cut* there: it is read no further, and the next page begins with that message. A later
message of any queue is not taken in after that, so the page is still without a gap.
"""

from __future__ import annotations

import asyncio
from bisect import insort
from collections.abc import Sequence
from dataclasses import dataclass, field

from kourou.client.admin_reading import Reading
from kourou.client.filters import Sql
from kourou.client.pull_consumer import UnreadableMessages
from kourou.client.received import ReceivedMessage
from kourou.errors import KourouError
from kourou.model.limits import MESSAGES_PAGE_BYTES_MAX
from kourou.model.message import PullStatus
from kourou.model.queue import MessageQueue
from kourou_console.lists import Missing, why

READS = 8
"""Reads of one queue for one page: a filter may let nothing of many through."""

READ_BYTES = 1 << 20
AT_ONCE = 16

_NEVER_MS = 1 << 62
Key = tuple[int, MessageQueue, int]
"""Time, queue, offset: the order of a page. Within a queue times do not go back in it, though the
clock of a broker may have."""


@dataclass(slots=True)
class _Lane:
    """One queue: `offset` is read next, `end` is where the time range ends."""

    queue: MessageQueue
    offset: int
    end: int
    #: The time of the last message that was taken in.
    came_to_ms: int = -1
    done: bool = False
    cut: bool = False
    damaged: list[Missing] = field(default_factory=list)

    def was_cut(self) -> bool:
        """Was a message of it pushed out, the one at `offset`? Perhaps while it was being read."""
        return self.cut

    @property
    def known_until_ms(self) -> int:
        """Up to when all messages of this queue are in the pool, or beyond its end."""
        return _NEVER_MS if self.done or self.cut else self.came_to_ms


class _Pool:
    """The earliest messages of all lanes, in their order."""

    def __init__(self, count: int) -> None:
        self.kept: list[tuple[Key, ReceivedMessage, _Lane]] = []
        self._count = count
        self._size_bytes = 0
        self._end: Key | None = None

    def take(self, lane: _Lane, message: ReceivedMessage) -> None:
        """Take one in, or cut its lane; then lanes of later ones, where there are too many."""
        lane.came_to_ms = max(lane.came_to_ms, message.store_timestamp)
        key = (lane.came_to_ms, lane.queue, message.offset)
        if self._end is not None and key > self._end:
            _cut(lane, message)
            return
        # Alone: one small message must not keep all that was read with it.
        insort(self.kept, (key, message.alone(), lane))
        self._size_bytes += message.size
        while len(self.kept) > self._count or (
            self._size_bytes > MESSAGES_PAGE_BYTES_MAX and len(self.kept) > 1
        ):
            self._end, late, its_lane = self.kept.pop()
            self._size_bytes -= late.size
            _cut(its_lane, late)


def _cut(lane: _Lane, message: ReceivedMessage) -> None:
    lane.offset, lane.cut, lane.done = message.offset, True, False


@dataclass(frozen=True, slots=True)
class Page:
    """Some messages, the next offsets (None: that was all), and what could not be read.

    `missing` are queues, to be asked again; `damaged` are places that were passed over.
    """

    messages: list[ReceivedMessage]
    offsets: dict[MessageQueue, int] | None
    missing: list[Missing]
    damaged: list[Missing] = field(default_factory=list)


async def starts(
    reading: Reading, queues: Sequence[MessageQueue], from_ms: int
) -> tuple[dict[MessageQueue, int], list[Missing]]:
    """Where each queue's messages of `from_ms` and later begin."""
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
    """The next messages from these places on that were stored up to `until_ms`.

    `count` at most, and as many as MESSAGES_PAGE_BYTES_MAX allows.
    """
    missing: list[Missing] = []
    lanes: list[_Lane] = []
    pool = _Pool(count)
    gate = asyncio.Semaphore(AT_ONCE)

    async def filled(queue: MessageQueue, offset: int) -> None:
        async with gate:
            lane: _Lane | None = None
            begin = offset
            try:
                low, high = await reading.bounds(queue)
                begin = max(offset, low)
                lane = _Lane(queue, begin, high)
                await _fill(reading, lane, pool, until_ms, count, wanted)
            except KourouError as error:
                missing.append(Missing(str(queue), why(error)))
                if lane is None or (lane.offset == begin and not lane.cut):
                    return
            lanes.append(lane)

    await asyncio.gather(*(filled(queue, offset) for queue, offset in offsets.items()))
    horizon_ms = min((lane.known_until_ms for lane in lanes), default=_NEVER_MS)
    shown: list[ReceivedMessage] = []
    places = dict(offsets)
    places.update((lane.queue, lane.offset) for lane in lanes)
    more = not all(lane.done for lane in lanes)
    for (time_ms, queue, offset), message, _ in pool.kept:
        if time_ms <= horizon_ms:
            shown.append(message)
        else:
            more = True
            places[queue] = min(places[queue], offset)
    damaged = [one for lane in lanes for one in lane.damaged]
    return Page(shown, places if more else None, missing, damaged)


async def _fill(
    reading: Reading, lane: _Lane, pool: _Pool, until_ms: int, count: int, wanted: str | Sql
) -> None:
    """Read until there are enough, the range ends, others come first, or it was enough work."""
    taken = 0
    for _ in range(READS):
        if lane.offset >= lane.end and not lane.was_cut():
            lane.done = True
        if lane.done or lane.was_cut() or taken >= count:
            return
        asked = lane.offset
        try:
            result = await reading.read(
                lane.queue,
                asked,
                wanted=wanted,
                count_max=count - taken,
                size_bytes_max=READ_BYTES,
            )
        except UnreadableMessages as error:
            if lane.was_cut():
                return
            lane.damaged.append(Missing(f"{lane.queue!s}@{asked}", str(error)))
            lane.offset = max(asked + 1, error.next_offset)
            continue
        if lane.was_cut():
            return
        if result.status is PullStatus.NO_NEW_MESSAGE:
            lane.done = True
            return
        for message in result.messages:
            if message.store_timestamp > until_ms:
                lane.offset, lane.done = message.offset, True
                return
            pool.take(lane, message)
            if lane.was_cut():
                return
            lane.offset = message.offset + 1
            taken += 1
        lane.offset = max(result.next_offset, asked + 1)
