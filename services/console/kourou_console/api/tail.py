"""Follows a topic with server-sent events.

    event: message    id: the reader's position         data: a message
    event: gap        messages that cannot be shown, or a queue that cannot be read now
    event: error      data: problem details; the stream ends
    : alive           every ten seconds without an event

A browser's EventSource resumes by itself: it sends the last ID that it received.

State: soft, the open streams.
"""

from __future__ import annotations

import asyncio
from typing import Annotated

import msgspec
from aiohttp import web

from kourou.errors import BadRequest, KourouError, Unavailable
from kourou.model.limits import PLACES_LENGTH_MAX, TAIL_QUEUES_MAX, TAILS_MAX
from kourou.model.names import check_topic
from kourou.model.queue import MessageQueue
from kourou_console.gateway import Gateway
from kourou_console.http.connections import HttpConnection
from kourou_console.http.responses import ALWAYS, Busy, problem_of
from kourou_console.leases.leases import wanted_of
from kourou_console.lists import Name
from kourou_console.messages.bodies import Budget
from kourou_console.messages.cursors import decode_cursor
from kourou_console.messages.pages import offsets_at
from kourou_console.messages.tails import Gap, Tail
from kourou_console.messages.views import PREVIEW_BYTES, BodyMax, view_of
from kourou_console.operation import Operation

ALIVE_S = 10.0
RECONNECT_MS = 2_000

_encode = msgspec.json.Encoder().encode


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


async def tail_topic(
    gateway: Gateway, parameters: TailParams, request: web.BaseRequest
) -> web.StreamResponse:
    """Send events until the caller disconnects."""
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


OPERATIONS: tuple[Operation, ...] = (
    Operation(
        "GET",
        "/v1/topics/{topic}/tail",
        "tail_topic",
        "Follow a topic by server-sent events: `message`, and `gap` where something cannot be "
        "shown. Filter by tags or by sql. The header Last-Event-ID resumes an earlier stream; "
        "after queues were added it resumes by time and may repeat messages. A client that reads "
        "too slowly is disconnected and may resume.",
        "Messages",
        tail_topic,
        None,
        parameters=TailParams,
        stream=True,
        headers=(("Last-Event-ID", "the ID of the last received event"),),
        media_type="text/event-stream",
    ),
)
