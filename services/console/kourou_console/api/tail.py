"""Follows a topic with server-sent events.

    event: message    id: the reader's position         data: a message
    event: gap        messages that cannot be shown, or a queue that cannot be read now
    event: error      data: problem details; the stream ends
    : alive           every ten seconds without an event

A browser's EventSource resumes by itself: it sends the last ID that it received. Each viewer has
one reader of all queues. The log is the buffer: apart from READ_AHEAD messages of READ_AHEAD_BYTES,
and one more of each queue, nothing is read before the viewer has taken it. A viewer that stops
reading is disconnected by the connection's limits, and may resume at its position.

State: soft, the open streams.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Annotated

import msgspec
from aiohttp import web

from kourou.client.admin.messages import Reading
from kourou.client.consumer.pull_consumer import UnreadableMessages
from kourou.client.consumer.received import ReceivedMessage
from kourou.client.filters.expressions import Sql
from kourou.client.session.io_thread import background
from kourou.errors import BadRequest, Code, KourouError, Rejected, TopicNotFound, Unavailable
from kourou.model.limits import PLACES_LENGTH_MAX, TAIL_QUEUES_MAX, TAILS_MAX
from kourou.model.message import PullStatus
from kourou.model.names import check_topic
from kourou.model.topic import MessageQueue
from kourou_console.gateway import Gateway
from kourou_console.http.connections import HttpConnection
from kourou_console.http.responses import ALWAYS, Busy, problem_of
from kourou_console.leases.leases import wanted_of
from kourou_console.lists import Name
from kourou_console.messages.pages import decode_cursor, encode_cursor, offsets_at
from kourou_console.messages.views import PREVIEW_BYTES, BodyMax, Budget, view_of
from kourou_console.operation import Chapter

OPERATIONS = Chapter("Messages")

ALIVE_S = 10.0
RECONNECT_MS = 2_000
_encode = msgspec.json.Encoder().encode

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
        return encode_cursor(self.offsets, self._time_ms)

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
                _log.info(
                    "tail-queues-unread: the queues of topic %(topic)s cannot be read: %(error)s",
                    {"topic": self._topic, "error": error},
                )
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


class TailParams(msgspec.Struct, frozen=True, kw_only=True):
    """What to follow. `from` is now, begin, or a time in epoch milliseconds."""

    topic: Name
    tag: tuple[str, ...] = ()
    sql: str | None = None
    begin: Annotated[str, msgspec.Meta(max_length=16)] = msgspec.field(name="from", default="now")
    body_max: BodyMax = PREVIEW_BYTES
    #: The last received ID, for clients that cannot send the header Last-Event-ID.
    last_event_id: Annotated[str, msgspec.Meta(max_length=PLACES_LENGTH_MAX)] | None = None


class GapView(msgspec.Struct, frozen=True, kw_only=True):
    """The data of the event `gap`; `to_offset` null: the read is retried."""

    queue: str
    from_offset: int
    to_offset: int | None
    why: str


class Tails:
    """The open streams; a component of the gateway."""

    def __init__(self, gateway: Gateway) -> None:
        self.count = 0


@OPERATIONS.get(
    "/v1/topics/{topic}/tail",
    "tail_topic",
    needs=(),
    headers=(("Last-Event-ID", "the ID of the last received event"),),
    media_type="text/event-stream",
)
async def tail_topic(
    gateway: Gateway, parameters: TailParams, request: web.BaseRequest
) -> web.StreamResponse:
    """Follow a topic by server-sent events: `message`, and `gap` where something cannot be shown.
    Filter by tags or by sql. The header Last-Event-ID resumes an earlier stream; after queues were
    added it resumes by time and may repeat messages. A client that reads too slowly is disconnected
    and may resume.
    """
    tails = gateway.part(Tails)
    if tails.count >= TAILS_MAX:
        raise Busy(f"{TAILS_MAX} live tails are open already, the maximum")
    last = request.headers.get("Last-Event-ID") or parameters.last_event_id
    tails.count += 1
    try:
        tail = await _started(gateway, parameters, last)
        try:
            return await _stream(request, tail, parameters.body_max)
        finally:
            tail.close()
    finally:
        tails.count -= 1


async def _started(gateway: Gateway, parameters: TailParams, last: str | None) -> Tail:
    reading = gateway.admin.reading
    wanted = wanted_of(parameters.tag, parameters.sql)
    queues = await reading.queues(check_topic(parameters.topic))
    if len(queues) > TAIL_QUEUES_MAX:
        raise BadRequest(
            f"{parameters.topic} has {len(queues)} queues; {TAIL_QUEUES_MAX} can be followed"
        )
    offsets: dict[MessageQueue, int] | None = None
    from_ms = None if parameters.begin in ("now", "begin") else _time(parameters.begin)
    if last is not None:
        position = decode_cursor(last, queues)
        offsets, from_ms = None if position.silent else position.offsets, position.time_ms
    if offsets is None and from_ms is not None:
        offsets, missing = await offsets_at(reading, queues, from_ms)
        if missing:
            raise Unavailable(f"the start position is unknown: {missing[0].what}: {missing[0].why}")
    if offsets is None:
        ahead = parameters.begin != "begin"
        bounds = await asyncio.gather(*map(reading.bounds, queues))
        offsets = {queue: found[ahead] for queue, found in zip(queues, bounds, strict=True)}
    return Tail(reading, parameters.topic, offsets, wanted, gateway.clock.now_ms())


def _time(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise BadRequest(f"from is {text!r}", hint="now, begin, or a time in epoch milliseconds")
    return min(int(text), 2**47)


async def _stream(request: web.BaseRequest, tail: Tail, body_max: int) -> web.StreamResponse:
    connection = request.protocol
    assert isinstance(connection, HttpConnection)
    headers = {**ALWAYS, "Content-Type": "text/event-stream", "X-Accel-Buffering": "no"}
    response = web.StreamResponse(headers=headers)
    await response.prepare(request)
    await response.write(f"retry: {RECONNECT_MS}\n: {tail.place}\n\n".encode())
    tail.start()
    try:
        with connection.busy_at_shutdown():
            while True:
                found = await tail.next(ALIVE_S)
                if found is None:
                    await response.write(f"id: {tail.place}\n: alive\n\n".encode())
                elif isinstance(found, Gap):
                    gap = GapView(
                        queue=str(found.queue),
                        from_offset=found.from_offset,
                        to_offset=found.to_offset,
                        why=found.why,
                    )
                    await response.write(_event("gap", _encode(gap), tail.place))
                else:
                    view = await view_of(found, Budget(), body_max)
                    await response.write(_event("message", _encode(view), tail.place))
    except KourouError as error:
        await response.write(_event("error", _encode(problem_of(error)), ""))
    await response.write_eof()
    return response


def _event(name: str, data: bytes, place: str) -> bytes:
    """One event; JSON contains no line breaks."""
    head = f"event: {name}\n" + (f"id: {place}\n" if place else "")
    return head.encode() + b"data: " + data + b"\n\n"
