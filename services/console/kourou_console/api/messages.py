"""Messages by ID, by key, by time, by offset, or the latest; their bodies, traces, explanations.

The trace of a message is a list of spans for a waterfall:

    send                  from the producer's trace; otherwise from birth to store time
     ├─ store             at the broker; its duration is not recorded
     ├─ transaction       its end, if it had one
     └─ consume           each call of a handler, from the consumers' traces; a group without a
                          trace has one span without times, with the group's state
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Annotated, Any

import msgspec

from kourou.client.admin.messages import MessageNotFound, MessageTrack, QueryResults, TrackKind
from kourou.client.consumer.pull_consumer import UnreadableMessages
from kourou.client.consumer.received import ReceivedMessage
from kourou.client.explain.explanation import Explanation
from kourou.errors import BadRequest, KourouError, TopicNotFound, Unavailable, UnknownOutcome
from kourou.model.limits import (
    MESSAGES_PAGE_BYTES_MAX,
    MESSAGES_PER_PAGE_MAX,
    QUERY_MESSAGES_MAX,
    TOPIC_QUEUES_MAX,
    TOPICS_SEARCHED_MAX,
)
from kourou.model.message import PullStatus
from kourou.model.names import check_topic, is_system_topic
from kourou.model.topic import MessageQueue
from kourou.protocol.record.message_trace import (
    Consumed,
    ConsumeStarted,
    Published,
    TraceRecord,
    TransactionEnded,
)
from kourou_console.gateway import Gateway
from kourou_console.http.call import Content
from kourou_console.leases.leases import wanted_of
from kourou_console.lists import Missing, Name, view_from, why
from kourou_console.messages.pages import (
    decode_cursor,
    encode_cursor,
    newest_messages,
    offsets_at,
    page_by_time,
)
from kourou_console.messages.views import (
    PREVIEW_BYTES,
    WHOLE_BYTES,
    BodyMax,
    Budget,
    StoredMessageView,
    host_text,
    view_of,
    views_of,
)
from kourou_console.operation import Chapter

OPERATIONS = Chapter("Messages")
EXPLAIN_OPERATIONS = Chapter("Messages")

FOR_EVER_MS = 2**53 - 1
SEARCH_S = 30.0
"""The time limit of a search for an ID without a topic."""

Millis = Annotated[int, msgspec.Meta(ge=0, le=FOR_EVER_MS)]
MessageId = Annotated[str, msgspec.Meta(min_length=1, max_length=256)]
READ_BYTES = 4 << 20

_NOT_HANDED_OVER = frozenset({TrackKind.CONSUMED_BUT_FILTERED, TrackKind.UNKNOWN})
"""The group may be past the message, but no delivery to a handler is known."""


class SpanView(msgspec.Struct, frozen=True, kw_only=True):
    """One step. `duration_ms` null: not recorded, or not finished."""

    id: str
    parent: str | None
    #: A group, or a broker.
    who: str
    #: send, store, transaction, consume.
    what: str
    start_ms: int | None
    duration_ms: int | None
    ok: bool | None
    note: str


def spans_of(
    message: ReceivedMessage, records: Sequence[TraceRecord], tracks: Sequence[MessageTrack]
) -> list[SpanView]:
    """All spans in the order of their starts; those without a time last."""
    spans = [_sent(message, records), _stored(message)]
    ends = {one.request_id: one for one in records if isinstance(one, Consumed)}
    traced: set[str] = set()
    for one in records:
        if isinstance(one, ConsumeStarted):
            end = ends.pop(one.request_id, None)
            traced.add(one.group)
            spans.append(_consumed(len(spans), one, end))
        elif isinstance(one, TransactionEnded):
            spans.append(_ended(len(spans), one))
    for track in tracks:
        if track.group not in traced:
            spans.append(_tracked(len(spans), track))
    last = max((span.start_ms for span in spans if span.start_ms is not None), default=0)
    return sorted(spans, key=lambda span: last + 1 if span.start_ms is None else span.start_ms)


def _sent(message: ReceivedMessage, records: Sequence[TraceRecord]) -> SpanView:
    stored = message.stored()
    for one in records:
        if isinstance(one, Published):
            return SpanView(
                id="send",
                parent=None,
                who=one.group,
                what="send",
                start_ms=one.timestamp_ms,
                duration_ms=one.cost_ms,
                ok=one.success,
                note=f"to {one.store_host}",
            )
    return SpanView(
        id="send",
        parent=None,
        who=host_text(stored.born_host),
        what="send",
        start_ms=stored.born_timestamp,
        duration_ms=max(stored.store_timestamp - stored.born_timestamp, 0),
        ok=True,
        note="from birth to store time, by the clocks of two machines",
    )


def _stored(message: ReceivedMessage) -> SpanView:
    return SpanView(
        id="store",
        parent="send",
        who=message.queue.broker_name,
        what="store",
        start_ms=message.store_timestamp,
        duration_ms=None,
        ok=True,
        note=f"{message.queue!s}@{message.offset}",
    )


def _consumed(number: int, begin: ConsumeStarted, end: Consumed | None) -> SpanView:
    note = f"attempt {begin.retry_times + 1}"
    if end is None:
        note += ", its end was not noted"
    elif not end.success:
        note += f", {end.context_code.name}"
    return SpanView(
        id=f"consume-{number}",
        parent="store",
        who=begin.group,
        what="consume",
        start_ms=begin.timestamp_ms,
        duration_ms=None if end is None else end.cost_ms,
        ok=None if end is None else end.success,
        note=note,
    )


def _ended(number: int, end: TransactionEnded) -> SpanView:
    return SpanView(
        id=f"transaction-{number}",
        parent="send",
        who=end.group,
        what="transaction",
        start_ms=end.timestamp_ms,
        duration_ms=0,
        ok=end.state == "COMMIT_MESSAGE",
        note=f"{end.state}{' after a question' if end.from_check else ''}",
    )


def _tracked(number: int, track: MessageTrack) -> SpanView:
    return SpanView(
        id=f"group-{number}",
        parent="store",
        who=track.group,
        what="consume",
        start_ms=None,
        duration_ms=None,
        ok=None if track.kind in _NOT_HANDED_OVER else track.consumed,
        note=f"{track.kind.value}{': ' + track.reason if track.reason else ''}",
    )


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


class MessageList(msgspec.Struct, frozen=True, kw_only=True):
    """Some messages; `cursor` fetches more of a time range, null: there are no more."""

    items: list[StoredMessageView]
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

    message: StoredMessageView
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


@OPERATIONS.get(
    "/v1/messages",
    "find_messages",
    needs=(),
    about="Messages of a topic with a key, newest first; or those stored in a time range, oldest "
    "first, paged: pass `cursor` until it is null. A page may be short: it "
    f"has at most {MESSAGES_PAGE_BYTES_MAX >> 20} MiB of messages over all queues, or a "
    "single larger one. So have the `latest`, of which the newest are kept. Times are epoch "
    "milliseconds.",
)
async def find_messages(gateway: Gateway, parameters: Query) -> MessageList:
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


async def _latest(gateway: Gateway, parameters: Query) -> MessageList:
    others = (parameters.key, parameters.from_ms, parameters.until_ms, parameters.cursor)
    if parameters.tag or parameters.sql is not None or any(one is not None for one in others):
        raise BadRequest("latest=true cannot be combined", hint="count= says how many")
    reading = gateway.admin.reading
    queues = await reading.queues(parameters.topic)
    found = await newest_messages(reading, queues, parameters.count)
    return MessageList(
        items=await views_of(found.messages, Budget(), parameters.body_max),
        total=found.total,
        truncated=found.total is None or found.total > len(found.messages),
        cursor=None,
        as_of_ms=gateway.clock.now_ms(),
        missing=found.missing,
    )


async def _by_key(gateway: Gateway, parameters: Query, key: str) -> MessageList:
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
    return MessageList(
        items=await views_of(found[:asked], Budget(), parameters.body_max),
        total=None,
        truncated=len(found) >= asked,
        cursor=None,
        as_of_ms=gateway.clock.now_ms(),
        missing=_missing(found),
    )


async def _by_time(gateway: Gateway, parameters: Query) -> MessageList:
    reading = gateway.admin.reading
    queues = await reading.queues(parameters.topic)
    from_ms = parameters.from_ms or 0
    offsets: dict[MessageQueue, int] = {}
    unplaced: Sequence[MessageQueue] = queues
    if parameters.cursor is not None:
        position = decode_cursor(parameters.cursor, queues)
        from_ms = position.time_ms
        if position.offsets is not None:
            offsets, unplaced = position.offsets, position.silent
    begins, missing = await offsets_at(reading, unplaced, from_ms)
    silent = [queue for queue in unplaced if queue not in begins]
    until_ms = FOR_EVER_MS if parameters.until_ms is None else parameters.until_ms
    page = await page_by_time(
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
        cursor = encode_cursor(page.offsets, came_to_ms, silent)
    return MessageList(
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


@OPERATIONS.get("/v1/messages/{id}", "get_message", needs=())
async def get_message(gateway: Gateway, parameters: OneWithBody) -> Detail:
    """A message by producer ID or offset ID, its other copies, and the groups that consumed it."""
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
        tracks=[view_from(TrackView, one, kind=one.kind.value) for one in tracks],
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


@OPERATIONS.get(
    "/v1/messages/{id}/body", "get_message_body", needs=(), media_type="application/octet-stream"
)
async def get_message_body(gateway: Gateway, parameters: OneMessage) -> Content:
    """Download the body of a message."""
    message = await found(gateway, parameters)
    return Content(await asyncio.to_thread(_raw, message), filename=f"{message.message_id}.bin")


def _raw(message: ReceivedMessage) -> bytes:
    return message.raw_body


@OPERATIONS.get("/v1/messages/{id}/trace", "get_message_trace", needs=())
async def get_message_trace(gateway: Gateway, parameters: OneMessage) -> TraceView:
    """The trace of a message as spans: sent, stored, delivered to groups. Handler times are
    included if clients write message traces.
    """
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


class BrowseParams(msgspec.Struct, frozen=True, kw_only=True):
    """A queue, and the offset to start at."""

    topic: Name
    broker: Name
    queue: Annotated[int, msgspec.Meta(ge=0, le=TOPIC_QUEUES_MAX)]
    #: A negative offset counts from the end: -20 is the last 20 messages.
    offset: Annotated[int, msgspec.Meta(ge=-(2**53), le=2**53)] = -20
    count: Annotated[int, msgspec.Meta(ge=1, le=MESSAGES_PER_PAGE_MAX)] = 20
    body_max: BodyMax = PREVIEW_BYTES


class QueuePage(msgspec.Struct, frozen=True, kw_only=True):
    """Messages of a queue; `next_offset` is that of the next page. `total` counts what is kept."""

    items: list[StoredMessageView]
    total: int
    truncated: bool
    min_offset: int
    max_offset: int
    next_offset: int
    as_of_ms: int
    missing: list[Missing] = []


@OPERATIONS.get(
    "/v1/topics/{topic}/queues/{broker}/{queue}/messages",
    "browse_queue",
    needs=(),
    about="Messages of one queue from an offset on, also of retry, dead-letter and system topics. "
    "Reading does not change the offsets of any group. A page ends where its bodies have "
    f"{MESSAGES_PAGE_BYTES_MAX >> 20} MiB; continue at `next_offset`.",
)
async def browse_queue(gateway: Gateway, parameters: BrowseParams) -> QueuePage:
    """Messages from an offset on."""
    reading = gateway.admin.reading
    queue = MessageQueue(check_topic(parameters.topic), parameters.broker, parameters.queue)
    if queue not in await reading.queues(queue.topic):
        raise TopicNotFound(f"queue {queue!s} not found", hint="check the topic's route")
    low, high = await reading.bounds(queue)
    offset = parameters.offset
    offset = max(low, high + offset) if offset < 0 else min(max(low, offset), high)
    missing: list[Missing] = []
    items: list[StoredMessageView] = []
    budget = Budget()
    # A read may end early, because of its size or a damaged record.
    while len(items) < parameters.count and offset < high:
        try:
            result = await reading.read(
                queue,
                offset,
                count_max=parameters.count - len(items),
                size_bytes_max=READ_BYTES,
            )
        except UnreadableMessages as error:
            missing.append(Missing(f"{queue!s}@{offset}", str(error)))
            offset = max(offset + 1, error.next_offset)
            continue
        if result.status is PullStatus.NO_NEW_MESSAGE:
            break
        items += await views_of(result.messages, budget, parameters.body_max)
        offset = max(result.next_offset, offset + 1)
        if len(missing) >= MESSAGES_PER_PAGE_MAX or not budget.left:
            break
    return QueuePage(
        items=items,
        total=high - low,
        truncated=offset < high,
        min_offset=low,
        max_offset=high,
        next_offset=offset,
        as_of_ms=gateway.clock.now_ms(),
        missing=missing,
    )


class ExplainParams(msgspec.Struct, frozen=True):
    """The message, and the group in question."""

    id: str
    topic: str | None = None
    group: str | None = None


@EXPLAIN_OPERATIONS.get("/v1/messages/{id}/explain", "explain_message", needs=())
async def explain(gateway: Gateway, parameters: ExplainParams) -> Explanation:
    """Explain where a message is and why. Each reason has a stable code, a sentence and an action.
    `id` is a producer's message ID, an offset message ID, a business key or
    topic/broker/queue@offset (slashes encoded as %2F). `topic` limits the search for a key to one
    topic, `group` the explanation to one group. A message that is not found has an explanation,
    too: then `message` is null.
    """
    return await gateway.admin.explain.message(
        parameters.id, topic=parameters.topic, group=parameters.group
    )
