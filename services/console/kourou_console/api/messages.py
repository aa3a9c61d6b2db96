"""Messages by ID, by key, by time, or the latest; their bodies and traces."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Annotated, Any

import msgspec

from kourou.client.admin.message_tracks import MessageTrack
from kourou.client.admin.messages import MessageNotFound, QueryResults
from kourou.client.consumer.received import ReceivedMessage
from kourou.errors import BadRequest, KourouError, Unavailable, UnknownOutcome
from kourou.model.limits import (
    MESSAGES_PAGE_BYTES_MAX,
    MESSAGES_PER_PAGE_MAX,
    QUERY_MESSAGES_MAX,
    TOPICS_SEARCHED_MAX,
)
from kourou.model.names import check_topic, is_system_topic
from kourou.model.queue import MessageQueue
from kourou_console import latest, places, time_pages
from kourou_console.call import Content
from kourou_console.gateway import Gateway
from kourou_console.leases.leases import wanted_of
from kourou_console.lists import Missing, Name, why
from kourou_console.message_bodies import Budget
from kourou_console.message_spans import SpanView, spans_of
from kourou_console.message_views import (
    PREVIEW_BYTES,
    WHOLE_BYTES,
    BodyMax,
    MessageView,
    view_of,
    views_of,
)
from kourou_console.operation import Operation

CHAPTER = "Messages"

FOR_EVER_MS = 2**53 - 1
SEARCH_S = 30.0
"""The time limit of a search for an ID without a topic."""

Millis = Annotated[int, msgspec.Meta(ge=0, le=FOR_EVER_MS)]
MessageId = Annotated[str, msgspec.Meta(min_length=1, max_length=256)]


class Query(msgspec.Struct, frozen=True, kw_only=True):
    """By key, by time, or the `latest` messages."""

    topic: Name
    key: str | None = None
    latest: bool = False
    from_ms: Millis | None = None
    until_ms: Millis | None = None
    count: Annotated[int, msgspec.Meta(ge=1, le=MESSAGES_PER_PAGE_MAX)] = 50
    cursor: str | None = None
    tag: tuple[str, ...] = ()
    sql: str | None = None
    body_max: BodyMax = PREVIEW_BYTES


class OneMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A message's ID of either kind; the topic makes the search for a producer's ID fast."""

    id: MessageId
    topic: Name | None = None


class OneWithBody(OneMessage, frozen=True, kw_only=True):
    """A message's ID, and how much of the body to show."""

    body_max: BodyMax = WHOLE_BYTES


class Messages(msgspec.Struct, frozen=True, kw_only=True):
    """Some messages; `cursor` fetches more of a time range, null: there are no more."""

    items: list[MessageView]
    total: int | None
    truncated: bool
    cursor: str | None
    as_of_ms: int
    missing: list[Missing] = []


class CopyView(msgspec.Struct, frozen=True, kw_only=True):
    """Another stored copy of the same message."""

    topic: str
    broker: str
    queue: int
    offset: int
    offset_id: str
    stored_ms: int


class TrackView(msgspec.Struct, frozen=True, kw_only=True):
    """The state in a group; `kind` in RocketMQ's words, `consumed` null: unknown."""

    group: str
    kind: str
    consumed: bool | None
    offset: int | None
    reason: str


class Detail(msgspec.Struct, frozen=True, kw_only=True):
    """One message, its other copies, and what groups made of it."""

    message: MessageView
    copies: list[CopyView]
    tracks: list[TrackView]
    as_of_ms: int
    missing: list[Missing] = []


class TraceView(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a message, for a waterfall; spans in the order in which they began."""

    message_id: str
    spans: list[SpanView]
    total: int
    truncated: bool
    as_of_ms: int
    missing: list[Missing] = []


async def find_messages(gateway: Gateway, parameters: Query) -> Messages:
    """Messages by key, by time, or the latest."""
    check_topic(parameters.topic)
    if parameters.latest:
        return await _latest(gateway, parameters)
    timed = parameters.from_ms is not None or parameters.until_ms is not None
    if parameters.key is not None:
        if timed and parameters.cursor is not None:
            raise BadRequest("a search by key has no cursor")
        return await _by_key(gateway, parameters, parameters.key)
    if not timed and parameters.cursor is None:
        raise BadRequest(
            "no selection of messages was given",
            hint=("key=, latest=true, or from_ms= and until_ms="),
        )
    return await _by_time(gateway, parameters)


async def _latest(gateway: Gateway, parameters: Query) -> Messages:
    others = (parameters.key, parameters.from_ms, parameters.until_ms, parameters.cursor)
    if parameters.tag or parameters.sql is not None or any(one is not None for one in others):
        raise BadRequest("latest=true cannot be combined", hint="count= says how many")
    reading = gateway.admin.reading
    queues = await reading.queues(parameters.topic)
    found = await latest.latest(reading, queues, parameters.count)
    return Messages(
        items=await views_of(found.messages, Budget(), parameters.body_max),
        total=found.total,
        truncated=found.total is None or found.total > len(found.messages),
        cursor=None,
        as_of_ms=gateway.clock.now_ms(),
        missing=found.missing,
    )


async def _by_key(gateway: Gateway, parameters: Query, key: str) -> Messages:
    if parameters.tag or parameters.sql is not None or parameters.cursor is not None:
        raise BadRequest("a search by key takes neither filter nor cursor")
    await gateway.admin.topics.route(parameters.topic)
    asked = min(parameters.count, QUERY_MESSAGES_MAX)
    found = await gateway.admin.messages.by_key(
        parameters.topic,
        key,
        begin_ms=parameters.from_ms or 0,
        end_ms=parameters.until_ms or FOR_EVER_MS,
        count_max=asked,
    )
    return Messages(
        items=await views_of(found[:asked], Budget(), parameters.body_max),
        total=None,
        truncated=len(found) >= asked,
        cursor=None,
        as_of_ms=gateway.clock.now_ms(),
        missing=_missing(found),
    )


async def _by_time(gateway: Gateway, parameters: Query) -> Messages:
    reading = gateway.admin.reading
    queues = await reading.queues(parameters.topic)
    from_ms = parameters.from_ms or 0
    offsets: dict[MessageQueue, int] = {}
    unplaced: Sequence[MessageQueue] = queues
    if parameters.cursor is not None:
        told = places.read(parameters.cursor, queues)
        from_ms = told.time_ms
        if told.offsets is not None:
            offsets, unplaced = told.offsets, told.silent
    begins, missing = await time_pages.starts(reading, unplaced, from_ms)
    silent = [queue for queue in unplaced if queue not in begins]
    until_ms = FOR_EVER_MS if parameters.until_ms is None else parameters.until_ms
    page = await time_pages.page(
        reading,
        offsets | begins,
        until_ms=until_ms,
        count=parameters.count,
        wanted=wanted_of(parameters.tag, parameters.sql),
    )
    cursor = None
    if page.offsets is not None:
        # Silent queues start where this query started, so that their messages are shown when their
        # brokers reply.
        came = page.messages and not silent
        came_to_ms = page.messages[-1].store_timestamp if came else from_ms
        cursor = places.written(page.offsets, came_to_ms, silent)
    return Messages(
        items=await views_of(page.messages, Budget(), parameters.body_max),
        total=None,
        truncated=cursor is not None,
        cursor=cursor,
        as_of_ms=gateway.clock.now_ms(),
        missing=missing + page.missing + page.damaged,
    )


async def found(gateway: Gateway, asked: OneMessage) -> ReceivedMessage:
    """The message with this ID. Raises MessageNotFound or TopicNotFound."""
    if asked.topic is not None:
        await gateway.admin.topics.route(check_topic(asked.topic))
        return await gateway.admin.messages.by_id(asked.topic, asked.id)
    try:
        async with asyncio.timeout(SEARCH_S):
            return await _searched(gateway, asked.id)
    except TimeoutError:
        raise Unavailable(
            f"the search took longer than {SEARCH_S:g} s",
            hint=("Is it a key? Search by key. For a producer ID, also give topic=."),
        ) from None


async def _searched(gateway: Gateway, message_id: str) -> ReceivedMessage:
    messages = gateway.admin.messages
    away: KourouError | None = None
    try:
        return await messages.by_offset_id(message_id)
    except (BadRequest, MessageNotFound):
        pass  # it is a producer's ID
    except (Unavailable, UnknownOutcome) as error:
        away = error
    topics = [one for one in await gateway.admin.topics.list() if not is_system_topic(one)]
    topics.sort(key=lambda one: (one.startswith("%"), one))
    copies = await messages.search(topics[:TOPICS_SEARCHED_MAX], message_id)
    if copies:
        return copies[0]
    if away is not None:
        raise away  # the offline broker may have the message
    cut = len(topics) > TOPICS_SEARCHED_MAX
    raise MessageNotFound(
        f"no message with ID {message_id[:64]!r}"
        + (f" in the first {TOPICS_SEARCHED_MAX} topics" if cut else ""),
        hint="Is it a key? Search by key. For a producer ID, also give topic=.",
    )


async def get_message(gateway: Gateway, parameters: OneWithBody) -> Detail:
    """One message."""
    message = await found(gateway, parameters)
    missing: list[Missing] = []
    copies, tracks = await asyncio.gather(
        gateway.admin.messages.copies(message.queue.topic, message.message_id),
        gateway.admin.messages.tracks(message),
        return_exceptions=True,
    )
    if isinstance(copies, BaseException):
        missing.append(Missing("copies", why(copies)))
        copies = QueryResults()
    if isinstance(tracks, BaseException):
        missing.append(Missing("tracks", why(tracks)))
        tracks = []
    missing += _missing(copies, "copies at ")
    others = [one for one in copies if (one.queue, one.offset) != (message.queue, message.offset)]
    return Detail(
        message=await view_of(message, Budget(), parameters.body_max),
        copies=[_copy(one) for one in others],
        tracks=[_track(one) for one in tracks],
        as_of_ms=gateway.clock.now_ms(),
        missing=missing,
    )


def _missing(found: QueryResults[Any], what: str = "") -> list[Missing]:
    return [Missing(f"{what}{broker}", why(error)) for broker, error in found.missing.items()]


def _copy(message: ReceivedMessage) -> CopyView:
    queue = message.queue
    return CopyView(
        topic=queue.topic,
        broker=queue.broker_name,
        queue=queue.queue_id,
        offset=message.offset,
        offset_id=message.offset_message_id,
        stored_ms=message.store_timestamp,
    )


def _track(one: MessageTrack) -> TrackView:
    return TrackView(
        group=one.group,
        kind=one.kind.value,
        consumed=one.consumed,
        offset=one.offset,
        reason=one.reason,
    )


async def get_message_body(gateway: Gateway, parameters: OneMessage) -> Content:
    """The complete body."""
    message = await found(gateway, parameters)
    return Content(await asyncio.to_thread(_raw, message), filename=f"{message.message_id}.bin")


def _raw(message: ReceivedMessage) -> bytes:
    return message.raw_body


async def get_message_trace(gateway: Gateway, parameters: OneMessage) -> TraceView:
    """The trace of a message."""
    message = await found(gateway, parameters)
    missing: list[Missing] = []
    records, tracks = await asyncio.gather(
        gateway.admin.messages.trace(message.message_id),
        gateway.admin.messages.tracks(message),
        return_exceptions=True,
    )
    if isinstance(records, BaseException):
        missing.append(Missing("message traces", why(records)))
        records = QueryResults()
    elif not records:
        missing.append(Missing("message traces", "no traces found (client setting message_trace)"))
    if isinstance(tracks, BaseException):
        missing.append(Missing("groups", why(tracks)))
        tracks = []
    missing += _missing(records, "message traces at ")
    spans = spans_of(message, records, tracks)
    return TraceView(
        message_id=message.message_id,
        spans=spans,
        total=len(spans),
        truncated=len(records) >= QUERY_MESSAGES_MAX,
        as_of_ms=gateway.clock.now_ms(),
        missing=missing,
    )


OPERATIONS: tuple[Operation, ...] = (
    Operation(
        "GET",
        "/v1/messages",
        "find_messages",
        "Messages of a topic with a key, newest first; or those stored in a time range, oldest "
        "first, paged: pass `cursor` until it is null. A page may be short: it "
        f"has at most {MESSAGES_PAGE_BYTES_MAX >> 20} MiB of messages over all queues, or a "
        "single larger one. So have the `latest`, of which the newest are kept. Times are epoch "
        "milliseconds.",
        CHAPTER,
        find_messages,
        Messages,
        parameters=Query,
    ),
    Operation(
        "GET",
        "/v1/messages/{id}",
        "get_message",
        "A message by producer ID or offset ID, its other copies, and the groups that consumed it.",
        CHAPTER,
        get_message,
        Detail,
        parameters=OneWithBody,
    ),
    Operation(
        "GET",
        "/v1/messages/{id}/body",
        "get_message_body",
        "Download the body of a message.",
        CHAPTER,
        get_message_body,
        Content,
        parameters=OneMessage,
        media_type="application/octet-stream",
    ),
    Operation(
        "GET",
        "/v1/messages/{id}/trace",
        "get_message_trace",
        "The trace of a message as spans: sent, stored, delivered to groups. Handler times are "
        "included if clients write message traces.",
        CHAPTER,
        get_message_trace,
        TraceView,
        parameters=OneMessage,
    ),
)
