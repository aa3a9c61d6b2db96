"""Messages of all queues of a topic in the order of store time: page by page, or the newest.

Pages by time

A page contains no message that is newer than an unread one of a slower queue: it ends at the
earliest of the times up to which each queue has been read. So it may be short, or empty if a filter
excludes most messages; only a cursor of None means that there are no more.

Messages are collected in one pool for all queues, which keeps the earliest ones: `count` of them,
and at most MESSAGES_PAGE_BYTES_MAX bytes in addition to a single larger message. If a message is
removed from the pool, its queue is *cut* there: it is not read further, and the next page starts
with that message. Later messages of any queue are not added after that, so the page has no gap.

The newest messages
Queues are read backwards in steps, in turn: the last few messages of each queue, then twice as many
before them, while older ones can still be among the newest `count`. The pool keeps the newest
messages, with the same limits. So each queue has only a few messages read in vain. Messages of one
broker and the same millisecond are ordered by their position in its log. A broker's clock may go
backwards within a queue: a message counts as no newer than those after it.

Cursors

The position of a reader of several queues as a short text, for pages and event IDs:

    checksum of the queues' names (4 bytes)  time in ms (6 bytes)  a varint for each queue

A text belongs to one list of queues, in their order. For another list (queues were added, or a
broker is offline) only its time is used: the reader's progress by the clock of the brokers.

A queue whose broker did not report its start is *silent*. The text contains it nevertheless, since
the next text would otherwise belong to another list; its offset is looked up later by the time.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import zlib
from bisect import insort
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from kourou.client.admin.messages import Reading
from kourou.client.consumer.pull_consumer import UnreadableMessages
from kourou.client.consumer.received import ReceivedMessage
from kourou.client.filters.expressions import Sql
from kourou.errors import BadRequest, KourouError
from kourou.model.limits import MESSAGES_PAGE_BYTES_MAX, PLACES_LENGTH_MAX
from kourou.model.message import PullStatus
from kourou.model.topic import MessageQueue
from kourou.model.units import NEVER_MS
from kourou_console.lists import Missing, why

HEAD_BYTES = 10
_OFFSET_MAX = 1 << 63
_SILENT = _OFFSET_MAX - 1


@dataclass(frozen=True, slots=True)
class Cursor:
    """A decoded text: the next offsets, None if it belongs to other queues; and its time."""

    offsets: dict[MessageQueue, int] | None
    time_ms: int
    #: Queues of which only the time is known.
    silent: tuple[MessageQueue, ...] = ()


def encode_cursor(
    offsets: Mapping[MessageQueue, int], time_ms: int, silent: Collection[MessageQueue] = ()
) -> str:
    """Encode these offsets. `time_ms` is the reader's progress, where `silent` queues start."""
    offsets_or_silent = {**offsets, **dict.fromkeys(silent, _SILENT)}
    queues = sorted(offsets_or_silent)
    parts = [_checksum(queues).to_bytes(4, "big"), max(time_ms, 0).to_bytes(6, "big")]
    parts += [_varint(offsets_or_silent[queue]) for queue in queues]
    return base64.urlsafe_b64encode(b"".join(parts)).rstrip(b"=").decode()


def decode_cursor(text: str, queues: Sequence[MessageQueue]) -> Cursor:
    """Decode a text for these queues. Raises BadRequest if it is invalid."""
    raw = _decoded(text)
    time_ms = int.from_bytes(raw[4:HEAD_BYTES], "big")
    ordered = sorted(queues)
    if int.from_bytes(raw[:4], "big") != _checksum(ordered):
        return Cursor(None, time_ms)
    offsets: dict[MessageQueue, int] = {}
    silent: list[MessageQueue] = []
    at = HEAD_BYTES
    for queue in ordered:
        value = shift = 0
        while True:
            if at >= len(raw) or shift > 63:
                raise _invalid(text)
            byte = raw[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        if value >= _OFFSET_MAX:
            raise _invalid(text)
        if value == _SILENT:
            silent.append(queue)
        else:
            offsets[queue] = value
    if at != len(raw):
        raise _invalid(text)
    return Cursor(offsets, time_ms, tuple(silent))


def _decoded(text: str) -> bytes:
    if not text.isascii() or len(text) > PLACES_LENGTH_MAX:
        raise _invalid(text)
    try:
        raw = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except binascii.Error:
        raise _invalid(text) from None
    if len(raw) < HEAD_BYTES:
        raise _invalid(text)
    return raw


def _invalid(text: str) -> BadRequest:
    return BadRequest(f"{text[:40]!r} is not a cursor", hint="pass the returned cursor unchanged")


def _checksum(queues: Sequence[MessageQueue]) -> int:
    return zlib.crc32("\n".join(map(str, queues)).encode())


def _varint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


READS = 8
"""The maximum number of reads of one queue for one page, as a filter may exclude most messages."""

READ_BYTES = 1 << 20
AT_ONCE = 16

PageKey = tuple[int, MessageQueue, int]
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
        return NEVER_MS if self.done or self.cut else self.came_to_ms


class _EarliestPool:
    """The earliest messages of all queues, in their order."""

    def __init__(self, count: int) -> None:
        self.kept: list[tuple[PageKey, ReceivedMessage, _Target]] = []
        self._count = count
        self._size_bytes = 0
        self._end: PageKey | None = None

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
class MessagePage:
    """Some messages, the next offsets (None: there are no more), and what could not be read.

    `missing` are queues to read again; `damaged` are positions that were skipped.
    """

    messages: list[ReceivedMessage]
    offsets: dict[MessageQueue, int] | None
    missing: list[Missing]
    damaged: list[Missing] = field(default_factory=list)


async def offsets_at(
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


async def page_by_time(
    reading: Reading,
    offsets: dict[MessageQueue, int],
    *,
    until_ms: int,
    count: int,
    wanted: str | Sql,
) -> MessagePage:
    """The next messages from these offsets on that were stored up to `until_ms`.

    At most `count`, and at most MESSAGES_PAGE_BYTES_MAX bytes.
    """
    missing: list[Missing] = []
    targets: list[_Target] = []
    pool = _EarliestPool(count)
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
    horizon_ms = min((target.known_until_ms for target in targets), default=NEVER_MS)
    shown: list[ReceivedMessage] = []
    next_offsets = dict(offsets)
    next_offsets.update((target.queue, target.offset) for target in targets)
    more = not all(target.done for target in targets)
    for (time_ms, queue, offset), message, _ in pool.kept:
        if time_ms <= horizon_ms:
            shown.append(message)
        else:
            more = True
            next_offsets[queue] = min(next_offsets[queue], offset)
    damaged = [one for target in targets for one in target.damaged]
    return MessagePage(shown, next_offsets if more else None, missing, damaged)


async def _fill(
    reading: Reading,
    target: _Target,
    pool: _EarliestPool,
    until_ms: int,
    count: int,
    wanted: str | Sql,
) -> None:
    """Read until `count`, the end of the range, a cut, or the limit of reads is reached."""
    read_count = 0
    for _ in range(READS):
        if target.offset >= target.end and not target.was_cut():
            target.done = True
        if target.done or target.was_cut() or read_count >= count:
            return
        asked = target.offset
        try:
            result = await reading.read(
                target.queue,
                asked,
                wanted=wanted,
                count_max=count - read_count,
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
            read_count += 1
        target.offset = max(result.next_offset, asked + 1)


STEP_BYTES = 1 << 20
QUEUES_AT_ONCE = 8
FIRST_STEP = 2

NewestKey = tuple[int, str, int, MessageQueue, int]
"""Time, broker, log position; then queue and offset, as several messages may share one record."""


@dataclass(slots=True)
class NewestMessages:
    """The newest messages first. `total` is the number in the queues, None if unknown."""

    messages: list[ReceivedMessage] = field(default_factory=list)
    total: int | None = 0
    missing: list[Missing] = field(default_factory=list)


class _NewestPool:
    """The newest messages of all queues, the oldest of them first."""

    def __init__(self, count: int) -> None:
        self.kept: list[tuple[NewestKey, ReceivedMessage]] = []
        self._count = count
        self._size_bytes = 0
        self._end: NewestKey | None = None

    def may_take(self, key: NewestKey) -> bool:
        """Whether a message before this key can be among the newest."""
        if self._end is not None:
            return key > self._end
        return len(self.kept) < self._count or key > self.kept[0][0]

    def take(self, key: NewestKey, message: ReceivedMessage) -> None:
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
class _BackwardReader:
    """A queue that is read backwards: everything from `offset` on has been read."""

    queue: MessageQueue
    low: int
    offset: int
    step: int = FIRST_STEP
    oldest: NewestKey | None = None
    damaged: list[Missing] = field(default_factory=list)

    def may_need_older(self, pool: _NewestPool, count: int) -> bool:
        """Whether older messages may be needed."""
        if self.offset <= self.low or len(self.damaged) >= count:
            return False
        return self.oldest is None or pool.may_take(self.oldest)

    async def back(self, reading: Reading, pool: _NewestPool, count: int) -> None:
        """Read one step. Raises as Reading does; then no message of the step is in the pool."""
        begin = max(self.low, self.offset - min(self.step, count))
        found = await self._between(reading, begin, self.offset)
        for message in reversed(found):
            self.oldest = self._key(message)
            pool.take(self.oldest, message)
        self.offset = begin
        # Large messages are read a few at a time; otherwise most would be read in vain.
        largest = max((message.size for message in found), default=0)
        self.step = max(1, min(2 * self.step, STEP_BYTES // max(largest, 1)))

    def _key(self, message: ReceivedMessage) -> NewestKey:
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
                    self.queue, offset, count_max=end - offset, size_bytes_max=STEP_BYTES
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


async def newest_messages(
    reading: Reading, queues: Sequence[MessageQueue], count: int
) -> NewestMessages:
    """The newest `count` messages of these queues."""
    found, pool = NewestMessages(), _NewestPool(count)
    gate = asyncio.Semaphore(QUEUES_AT_ONCE)
    missing: dict[MessageQueue, list[Missing]] = {}

    def failed(queue: MessageQueue, error: KourouError) -> None:
        found.total = None
        missing.setdefault(queue, []).append(Missing(str(queue), why(error)))

    async def started(queue: MessageQueue) -> _BackwardReader | None:
        async with gate:
            try:
                low, high = await reading.bounds(queue)
            except KourouError as error:
                failed(queue, error)
                return None
        if found.total is not None:
            found.total += high - low
        return _BackwardReader(queue, low, high, damaged=missing.setdefault(queue, []))

    async def further(one: _BackwardReader) -> _BackwardReader | None:
        async with gate:
            try:
                await one.back(reading, pool, count)
            except KourouError as error:
                failed(one.queue, error)
                return None
        return one

    going = await asyncio.gather(*map(started, queues))
    while going:
        wanted = [one for one in going if one is not None and one.may_need_older(pool, count)]
        going = await asyncio.gather(*map(further, wanted))
    found.messages = [message for _, message in reversed(pool.kept)]
    found.missing = [one for queue in queues for one in missing.get(queue, [])]
    return found
