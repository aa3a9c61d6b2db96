"""Messages of all queues of a topic by their store time, page by page.

Lives here: merging queues, and where the next page begins. May not live here: the call
(kourou_console.api.messages).

A page never passes over what a slower queue may still have: it ends at the earliest of the times up
to which each queue has been read. So it may be short, even empty where a filter lets little
through; only a cursor of None says that there is no more.

State: none.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

from kourou.client.admin_reading import Reading
from kourou.client.filters import Sql
from kourou.client.pull_consumer import UnreadableMessages
from kourou.client.received import ReceivedMessage
from kourou.errors import KourouError
from kourou.model.message import PullStatus
from kourou.model.queue import MessageQueue
from kourou_console.lists import Missing, why

READS = 8
"""Reads of one queue for one page: a filter may let nothing of many through."""

READ_BYTES = 1 << 20
AT_ONCE = 16

_NEVER_MS = 1 << 62


@dataclass(slots=True)
class _Lane:
    """One queue: what was read and is not shown yet; `end` is where the time range ends."""

    queue: MessageQueue
    offset: int
    end: int
    messages: list[ReceivedMessage] = field(default_factory=list)
    done: bool = False
    damaged: list[Missing] = field(default_factory=list)

    @property
    def known_until_ms(self) -> int:
        """Up to when all messages of this queue are among those read."""
        if self.done:
            return _NEVER_MS
        return self.messages[-1].store_timestamp if self.messages else -1


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
    """The next `count` messages from these places on that were stored up to `until_ms`."""
    missing: list[Missing] = []
    lanes: list[_Lane] = []
    gate = asyncio.Semaphore(AT_ONCE)

    async def filled(queue: MessageQueue, offset: int) -> None:
        async with gate:
            try:
                low, high = await reading.bounds(queue)
                lane = _Lane(queue, max(offset, low), high)
                await _fill(reading, lane, until_ms, count, wanted)
            except KourouError as error:
                missing.append(Missing(str(queue), why(error)))
                return
            lanes.append(lane)

    await asyncio.gather(*(filled(queue, offset) for queue, offset in offsets.items()))
    horizon_ms = min((lane.known_until_ms for lane in lanes), default=_NEVER_MS)
    every = sorted(
        (message for lane in lanes for message in lane.messages),
        key=lambda one: (one.store_timestamp, one.queue, one.offset),
    )
    shown = [one for one in every if one.store_timestamp <= horizon_ms][:count]
    places = dict(offsets)
    more = False
    chosen = set(map(id, shown))
    for lane in lanes:
        rest = [one for one in lane.messages if id(one) not in chosen]
        places[lane.queue] = rest[0].offset if rest else lane.offset
        more = more or bool(rest) or not lane.done
    damaged = [one for lane in lanes for one in lane.damaged]
    return Page(shown, places if more else None, missing, damaged)


async def _fill(
    reading: Reading, lane: _Lane, until_ms: int, count: int, wanted: str | Sql
) -> None:
    """Read until there are enough, the range ends, or it was enough work."""
    for _ in range(READS):
        if lane.offset >= lane.end:
            lane.done = True
        if lane.done or len(lane.messages) >= count:
            return
        try:
            result = await reading.read(
                lane.queue,
                lane.offset,
                wanted=wanted,
                count_max=count - len(lane.messages),
                size_bytes_max=READ_BYTES,
            )
        except UnreadableMessages as error:
            lane.damaged.append(Missing(f"{lane.queue!s}@{lane.offset}", str(error)))
            lane.offset = max(lane.offset + 1, error.next_offset)
            continue
        if result.status is PullStatus.NO_NEW_MESSAGE:
            lane.done = True
            return
        for message in result.messages:
            if message.store_timestamp > until_ms:
                lane.done = True
                return
            lane.messages.append(message)
        lane.offset = max(result.next_offset, lane.offset + 1)
