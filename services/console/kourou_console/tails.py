"""Follows a topic: one reader of all its queues for one viewer.

The log is the buffer: apart from READ_AHEAD messages of READ_AHEAD_BYTES, and one more of each
queue, nothing is read before the viewer has taken it. A viewer that stops reading is disconnected
by the connection's limits, and may resume at its position.

State: soft.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from dataclasses import dataclass

from kourou.client.admin.messages import Reading
from kourou.client.consumer.pull_consumer import UnreadableMessages
from kourou.client.consumer.received import ReceivedMessage
from kourou.client.filters.expressions import Sql
from kourou.client.session.background import background
from kourou.errors import Code, KourouError, Rejected, TopicNotFound
from kourou.model.limits import TAIL_QUEUES_MAX
from kourou.model.message import PullStatus
from kourou.model.queue import MessageQueue
from kourou_console import places

READ_AHEAD = 64
READ_AHEAD_BYTES = 1 << 20
"""The total size of messages read ahead; beyond it, readers wait until some are taken."""

READ_COUNT = 32
READ_BYTES = 64 * 1024
HOLD_MS = 10_000
AGAIN_S = 1.0
SWIFT_S = 0.05
"""The pause after a read that returned immediately without messages."""

QUEUES_LOOK_S = 30.0

_log = logging.getLogger("kourou.console")


@dataclass(frozen=True, slots=True)
class Gap:
    """Messages that cannot be shown, or a queue that cannot be read now."""

    queue: MessageQueue
    from_offset: int
    to_offset: int | None
    why: str


@dataclass(frozen=True, slots=True)
class _Moved:
    """A reader advanced past messages that the filter excludes."""


@dataclass(frozen=True, slots=True)
class _Item:
    queue: MessageQueue
    next_offset: int
    what: ReceivedMessage | Gap | _Moved | KourouError


def _size(item: _Item) -> int:
    return item.what.size if isinstance(item.what, ReceivedMessage) else 0


class Tail:
    """One reader. `offsets` is its position: after the last item that was taken."""

    def __init__(
        self,
        reading: Reading,
        topic: str,
        offsets: dict[MessageQueue, int],
        wanted: str | Sql,
        now_ms: int,
    ) -> None:
        self._reading = reading
        self._topic = topic
        self._wanted = wanted
        self.offsets = dict(offsets)
        self._time_ms = now_ms
        self._items: asyncio.Queue[_Item] = asyncio.Queue(READ_AHEAD)
        self._held_bytes = 0
        self._room = asyncio.Event()
        self._room.set()
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def place(self) -> str:
        """Its position as a text from which a later tail can start."""
        return places.written(self.offsets, self._time_ms)

    def start(self) -> None:
        """Start reading."""
        for queue in self.offsets:
            self._follow(queue)
        self._tasks.append(background(self._watch(), f"queues of {self._topic}"))

    def close(self) -> None:
        """Stop reading."""
        for task in self._tasks:
            task.cancel()

    async def next(self, within_s: float) -> ReceivedMessage | Gap | None:
        """The next item, None if there is none in time. Raises errors that end the tail."""
        try:
            async with asyncio.timeout(within_s):
                while True:
                    item = await self._items.get()
                    self._hold(-_size(item))
                    if isinstance(item.what, KourouError):
                        raise item.what
                    self.offsets[item.queue] = item.next_offset
                    if isinstance(item.what, ReceivedMessage):
                        self._time_ms = max(self._time_ms, item.what.store_timestamp)
                        return item.what
                    if isinstance(item.what, Gap):
                        return item.what
        except TimeoutError:
            return None

    def _hold(self, size_bytes: int) -> None:
        self._held_bytes += size_bytes
        if self._held_bytes < READ_AHEAD_BYTES:
            self._room.set()
        else:
            self._room.clear()

    def _follow(self, queue: MessageQueue) -> None:
        self._tasks.append(background(self._read(queue), f"following {queue!s}"))

    async def _watch(self) -> None:
        """Follow new queues from their beginning."""
        while True:
            await asyncio.sleep(QUEUES_LOOK_S)
            try:
                queues = await self._reading.queues(self._topic)
            except TopicNotFound as error:
                await self._items.put(_Item(next(iter(self.offsets)), 0, error))
                return
            except KourouError as error:
                _log.info("the queues of topic %s cannot be read: %s", self._topic, error)
                continue
            for queue in queues:
                if queue not in self.offsets and len(self.offsets) < TAIL_QUEUES_MAX:
                    self.offsets[queue] = 0
                    self._follow(queue)

    async def _read(self, queue: MessageQueue) -> None:
        offset = self.offsets[queue]
        away = False
        while True:
            try:
                async for item in self._some(queue, offset):
                    offset = item.next_offset
                    await self._room.wait()
                    self._hold(_size(item))
                    await self._items.put(item)
                away = False
            except KourouError as error:
                if isinstance(error, Rejected) and error.wire_code != Code.POLLING_FULL:
                    await self._items.put(_Item(queue, offset, error))
                    return
                if not away:  # reported once, then retried
                    await self._items.put(
                        _Item(queue, offset, Gap(queue, offset, None, str(error)))
                    )
                away = True
                await asyncio.sleep(AGAIN_S)

    async def _some(self, queue: MessageQueue, offset: int) -> AsyncIterator[_Item]:
        """The items of one read."""
        began_s = asyncio.get_running_loop().time()
        try:
            result = await self._reading.read(
                queue,
                offset,
                wanted=self._wanted,
                count_max=READ_COUNT,
                size_bytes_max=READ_BYTES,
                wait_ms=HOLD_MS,
            )
        except UnreadableMessages as error:
            after = max(offset + 1, error.next_offset)
            yield _Item(queue, after, Gap(queue, offset, after, str(error)))
            return
        if result.status is PullStatus.OFFSET_ILLEGAL:
            why = "these messages are no longer in the queue"
            if result.next_offset < offset:
                why = "the queue ends earlier: it was created again"
            yield _Item(queue, result.next_offset, Gap(queue, offset, result.next_offset, why))
            return
        for message in result.messages:
            yield _Item(queue, message.offset + 1, message)
        if result.next_offset > offset:
            yield _Item(queue, result.next_offset, _Moved())
        elif asyncio.get_running_loop().time() - began_s < SWIFT_S:
            await asyncio.sleep(SWIFT_S)
