"""Message queries by ID, key, time or queue offset; consume status and trace; queue reading.

State: none, except which broker replied last to a read of a queue.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Self, TypeVar

from kourou.client.admin.base_api import ADMIN_TIMEOUT_MS, AdminApi
from kourou.client.consumer.pull_consumer import PullResult, result_of
from kourou.client.consumer.puller import Puller, PullParams
from kourou.client.consumer.received import ReceivedMessage, from_record, from_records
from kourou.client.filters.expressions import Sql, Wanted, check_wanted, subscription_of
from kourou.client.session.client_session import Session
from kourou.client.session.connections import body_of
from kourou.client.session.io_thread import on_io_thread
from kourou.errors import (
    BadRequest,
    Code,
    GroupNotFound,
    KourouError,
    Rejected,
    TopicNotFound,
    Unavailable,
    UnknownOutcome,
)
from kourou.filtering.subscriptions import selects
from kourou.model.limits import PULL_MESSAGES_MAX, PULL_SIZE_BYTES_MAX, QUERY_MESSAGES_MAX
from kourou.model.names import READER_GROUP, TRACE_TOPIC
from kourou.model.subscription import (
    MATCH_ALL,
    SQL92,
    TAG,
    ConsumeType,
    MessageModel,
    Subscription,
)
from kourou.model.topic import MessageQueue
from kourou.model.units import NEVER_MS
from kourou.protocol.bodies.config_bodies import decode_delay_offsets
from kourou.protocol.bodies.lists_body import (
    ConsumerConnection,
    decode_consumer_connection,
    decode_group_list,
)
from kourou.protocol.bodies.statistics_bodies import OffsetWrapper, decode_consume_stats
from kourou.protocol.bodies.status_bodies import QueueLook, decode_queue_look
from kourou.protocol.messages.broker_admin import QueryTopicConsumeByWho
from kourou.protocol.messages.groups import GetConsumerConnectionList, GetConsumeStats
from kourou.protocol.messages.pulls import (
    GetAllDelayOffset,
    QueryConsumeQueue,
    QueryMessage,
    ViewMessageById,
)
from kourou.protocol.record.message_id import decode_offset_id
from kourou.protocol.record.message_trace import TraceRecord, decode_trace

QUERY_COUNT = 32
_NONE = frozenset({int(Code.QUERY_NOT_FOUND)})
T = TypeVar("T")


class MessageNotFound(Rejected):
    """No broker that replied has such a message."""

    code = Code.QUERY_NOT_FOUND


class QueryResults(list[T]):
    """Query results. `missing` maps each broker that could not be queried to its error.

    A query returns results even if a broker is offline; that broker may have more. An empty result
    is complete: if nothing was found and a broker is missing, the query raises that broker's error.
    """

    def __init__(self, items: Iterable[T] = (), missing: Mapping[str, KourouError] = {}) -> None:
        super().__init__(items)
        self.missing = dict(missing)

    def or_why(self) -> Self:
        """Return this list, or raise the first error in `missing` if the list is empty."""
        for error in () if self else self.missing.values():
            raise error
        return self


class MessagesApi(AdminApi):
    """Message queries: `client.admin.messages`."""

    @on_io_thread
    async def by_offset_id(self, offset_message_id: str) -> ReceivedMessage:
        """Return the message with this offset message ID.

        Raises MessageNotFound if no broker has it. If a broker that may have it could not be
        reached, raises that broker's error instead.
        """
        away: KourouError | None = None
        host, position = decode_offset_id(offset_message_id)
        brokers = await self._brokers()
        # The ID contains the broker's own address, which may differ from the one that clients use;
        # so all brokers are queried.
        asking = [
            asyncio.ensure_future(self._at(broker.broker_name, address, position))
            for broker in brokers
            for address in broker.broker_addrs.values()
        ]
        try:
            for answer in asyncio.as_completed(asking):
                one = await answer
                if isinstance(one, KourouError):
                    away = one if one.retryable else away
                elif one.position == position and one.stored().store_host == host:
                    return one
        finally:
            for task in asking:
                task.cancel()
        if away is not None:
            raise away
        raise MessageNotFound(f"no broker has a message with offset ID {offset_message_id}")

    async def _at(self, broker: str, address: str, position: int) -> ReceivedMessage | KourouError:
        try:
            reply = await self._ask(address, ViewMessageById(offset=position))
            return from_record(body_of(reply), broker)
        except KourouError as error:
            return error

    @on_io_thread
    async def copies(self, topic: str, unique_key: str) -> QueryResults[ReceivedMessage]:
        """Return the stored messages with this unique key, the newest 32 of each broker."""
        return (await self._copies(topic, unique_key)).or_why()

    async def _copies(
        self, topic: str, unique_key: str, *, without: Collection[str] = ()
    ) -> QueryResults[ReceivedMessage]:
        found = await self._query(
            topic, unique_key, QUERY_COUNT, 0, NEVER_MS, unique=True, without=without
        )
        exact = (message for message in found if message.message_id == unique_key)
        return QueryResults(exact, found.missing)

    @on_io_thread
    async def search(self, topics: Iterable[str], unique_key: str) -> QueryResults[ReceivedMessage]:
        """Return the copies in the first of these topics that has any.

        A broker that does not reply is not queried again for the remaining topics.
        """
        away: dict[str, KourouError] = {}
        for topic in topics:
            try:
                found = await self._copies(topic, unique_key, without=away)
            except TopicNotFound:  # deleted in the meantime
                continue
            away |= {name: error for name, error in found.missing.items() if error.retryable}
            if found:
                return QueryResults(found, away)
        return QueryResults((), away).or_why()

    @on_io_thread
    async def by_unique_key(self, topic: str, unique_key: str) -> ReceivedMessage:
        """Return the message with this unique key. Raises MessageNotFound."""
        exact = (await self._copies(topic, unique_key)).or_why()
        if not exact:
            raise MessageNotFound(f"topic {topic!r} has no message with ID {unique_key!r}")
        return exact[0]

    @on_io_thread
    async def by_id(self, topic: str, message_id: str) -> ReceivedMessage:
        """Return the message with this offset message ID or unique key.

        Raises MessageNotFound if no broker has it. If a broker that may have it could not be
        reached, raises that broker's error instead.
        """
        try:
            return await self.by_offset_id(message_id)
        except (BadRequest, MessageNotFound):
            return await self.by_unique_key(topic, message_id)
        except (Unavailable, UnknownOutcome) as away:
            try:
                return await self.by_unique_key(topic, message_id)
            except MessageNotFound:
                raise away from None

    @on_io_thread
    async def by_key(
        self,
        topic: str,
        key: str,
        *,
        begin_ms: int = 0,
        end_ms: int = NEVER_MS,
        count_max: int = QUERY_COUNT,
    ) -> QueryResults[ReceivedMessage]:
        """Return messages with a business key that were stored in [begin, end], newest first.

        At most `count_max` messages of each broker are returned.
        """
        if not 0 < count_max <= QUERY_MESSAGES_MAX:
            raise BadRequest(
                f"count_max is {count_max}; it must be between 1 and {QUERY_MESSAGES_MAX}"
            )
        found = await self._query(topic, key, count_max, begin_ms, end_ms, unique=False)
        exact = [message for message in found if key in message.keys]
        exact.sort(key=lambda message: message.store_timestamp, reverse=True)
        return QueryResults(exact, found.missing).or_why()

    async def _query(
        self,
        topic: str,
        key: str,
        count_max: int,
        begin_ms: int,
        end_ms: int,
        *,
        unique: bool,
        without: Collection[str] = (),
    ) -> QueryResults[ReceivedMessage]:
        """Query all brokers of the topic concurrently, except those in `without`."""
        if not key:
            raise BadRequest("the key is empty")
        request = QueryMessage(
            topic=topic,
            key=key,
            max_num=count_max,
            begin_timestamp=begin_ms,
            end_timestamp=end_ms,
            unique_key_query=True if unique else None,
        )
        leaders = await self._leaders_of(topic)
        asked = {name: address for name, address in leaders.items() if name not in without}
        replies = await asyncio.gather(
            *(self._query_broker(*one, request) for one in asked.items())
        )
        found: QueryResults[ReceivedMessage] = QueryResults()
        for name, one in zip(asked, replies, strict=True):
            if isinstance(one, KourouError):
                found.missing[name] = one
            else:
                found += one
        return found

    async def _query_broker(
        self, broker: str, address: str, request: QueryMessage
    ) -> Sequence[ReceivedMessage] | KourouError:
        try:
            reply = await self._ask(address, request, also=_NONE)
            if reply.code != Code.SUCCESS:
                return []
            return from_records(body_of(reply), broker)
        except KourouError as error:
            return error

    # -- in a queue -------------------------------------------------------------------------------

    @on_io_thread
    async def units(
        self, queue: MessageQueue, offset: int, *, count: int = 10, group: str | None = None
    ) -> QueueLook:
        """Return queue entries from an offset on, and whether `group` would get their messages."""
        address = await self._leader_of(queue)
        request = QueryConsumeQueue(
            topic=queue.topic,
            queue_id=queue.queue_id,
            index=offset,
            count=count,
            consumer_group=group,
        )
        return decode_queue_look(body_of(await self._ask(address, request)))

    # -- consume status and trace -----------------------------------------------------------------

    @on_io_thread
    async def tracks(self, message: ReceivedMessage) -> list[MessageTrack]:
        """Return which groups consumed a message, sorted by group name.

        Lists all groups that subscribe to its topic, or have offsets in it, at the broker that
        stores the message. Raises Unavailable if that broker has no leader.
        """
        address = await self._leader_of(message.queue)
        request = QueryTopicConsumeByWho(topic=message.queue.topic)
        reply = await self._ask(address, request)
        groups = sorted(decode_group_list(body_of(reply)))
        return list(await asyncio.gather(*(self._track(address, one, message) for one in groups)))

    async def _track(self, address: str, group: str, message: ReceivedMessage) -> MessageTrack:
        connected: ConsumerConnection | KourouError
        progress: OffsetWrapper | KourouError | None
        topic = message.queue.topic
        try:
            request = GetConsumerConnectionList(consumer_group=group)
            connected = decode_consumer_connection(body_of(await self._ask(address, request)))
        except KourouError as error:
            connected = error
        try:
            stats = GetConsumeStats(consumer_group=group, topic=topic)
            stats_of_group = decode_consume_stats(body_of(await self._ask(address, stats)))
            progress = stats_of_group.offsets.get(message.queue)
        except GroupNotFound as error:
            progress = error
        return track(group, connected, progress, topic, message.offset, message.properties)

    @on_io_thread
    async def trace(
        self,
        message_id: str,
        *,
        trace_topic: str = TRACE_TOPIC,
        begin_ms: int = 0,
        end_ms: int = NEVER_MS,
    ) -> QueryResults[TraceRecord]:
        """Return the trace records of a message, earliest first.

        `message_id` is its unique key. Clients with message trace enabled write the records,
        RocketMQ's clients included. The newest 64 trace messages of each broker that contain the ID
        are read.
        """
        found = await self._query(
            trace_topic, message_id, QUERY_MESSAGES_MAX, begin_ms, end_ms, unique=False
        )
        records = [
            record
            for message in found
            if message_id in message.keys
            for record in decode_trace(message.raw_body)
            if record.message_id == message_id
        ]
        records.sort(key=lambda record: record.timestamp_ms)
        return QueryResults(records, found.missing).or_why()


# -- reading of queues without joining a consumer group --------------------------------------------


HOLD_MS = 15_000
"""The longest long poll of a read, in milliseconds."""


class Reading(AdminApi):
    """Queue reading for tools: `client.admin.reading`."""

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self._puller = Puller(READER_GROUP, session.connections, session.routes, session.clock)

    @on_io_thread
    async def queues(self, topic: str) -> list[MessageQueue]:
        """Return the topic's readable queues in order, as the name servers have them now.

        Raises TopicNotFound.
        """
        leaders = await self._leaders_of(topic)
        known = await self._session.routes.find(topic)
        return [queue for queue in known.readable if queue.broker_name in leaders]

    @on_io_thread
    async def bounds(self, queue: MessageQueue) -> tuple[int, int]:
        """Return the minimum offset that is stored, and the next offset that will be assigned."""
        facts = self._session.facts
        return await facts.min_offset(queue), await facts.max_offset(queue)

    @on_io_thread
    async def offset_by_time(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """Return the offset of the first message stored at or after a time."""
        return await self._session.facts.offset_by_time(queue, timestamp_ms)

    @on_io_thread
    async def committed(self, group: str, queue: MessageQueue) -> int | None:
        """Return a group's committed offset, or None if there is none."""
        return await self._session.facts.committed(group, queue)

    @on_io_thread
    async def read(
        self,
        queue: MessageQueue,
        offset: int,
        *,
        wanted: Wanted = MATCH_ALL,
        count_max: int = 32,
        size_bytes_max: int = PULL_SIZE_BYTES_MAX,
        wait_ms: int = 0,
    ) -> PullResult:
        """Return messages from `offset` on; the broker waits up to `wait_ms` for a first one.

        Raises the errors of `PullConsumer.pull`. An offset outside the queue is reported in the
        result's status.
        """
        if offset < 0 or wait_ms < 0 or not 0 < count_max <= PULL_MESSAGES_MAX:
            raise BadRequest(
                "offset and wait time must be at least 0, and the number of messages at least 1"
            )
        if not isinstance(wanted, str | Sql):
            raise BadRequest(
                "reading does not support Python filters",
                hint="filter by tags or Sql, or consume in a group",
            )
        check_wanted(wanted)
        subscription = subscription_of(queue.topic, wanted, version=self._session.clock.now_ms())
        hold_ms = min(wait_ms, HOLD_MS)
        params = PullParams(count_max, size_bytes_max, hold_ms, hold_ms + ADMIN_TIMEOUT_MS)
        pulled = await self._puller.pull(queue, offset, subscription, params)
        return result_of(queue, pulled, subscription)

    @on_io_thread
    async def delay_offsets(self, broker_name: str) -> dict[int, int]:
        """Return by delay level up to which offset of its queue a broker has delivered.

        A level at which nothing was delivered yet may be left out. Raises Unavailable if the broker
        is unknown or has no leader.
        """
        address = (await self._leaders()).get(broker_name)
        if address is None:
            raise Unavailable(f"broker {broker_name} has no leader")
        return decode_delay_offsets(body_of(await self._ask(address, GetAllDelayOffset())))


class TrackKind(StrEnum):
    """RocketMQ's `TrackType`, with its spelling."""

    CONSUMED = "CONSUMED"  # the group has committed past it
    CONSUMED_BUT_FILTERED = "CONSUMED_BUT_FILTERED"  # past it, and excluded by tag or SQL92
    PULL = "PULL"  # the group pulls and manages its own offsets
    NOT_CONSUME_YET = "NOT_CONSUME_YET"  # the group has not committed past it
    NOT_ONLINE = "NOT_ONLINE"  # no consumer is connected
    CONSUME_BROADCASTING = "CONSUME_BROADCASTING"  # every consumer has its own offsets
    UNKNOWN = "UNKNOWN"  # the broker did not reply, or a Python filter decided


@dataclass(frozen=True, slots=True)
class MessageTrack:
    """The status of a message in one group.

    `consumed` is whether the group has committed past the message, whether or not a consumer is
    connected; None if unknown. `offset` is the next offset that the group will receive of that
    queue.
    """

    group: str
    kind: TrackKind
    consumed: bool | None = None
    offset: int | None = None
    reason: str = ""


def track(
    group: str,
    connected: ConsumerConnection | KourouError,
    progress: OffsetWrapper | KourouError | None,
    topic: str,
    offset: int,
    properties: Mapping[str, str],
) -> MessageTrack:
    """Return the status of the message of `topic` at `offset`.

    `progress` is the group's offset in the message's queue.
    """
    where = progress.consumer_offset if isinstance(progress, OffsetWrapper) else None
    consumed = None if where is None else where > offset
    if isinstance(connected, KourouError):
        away = connected.wire_code == Code.CONSUMER_NOT_ONLINE
        kind = TrackKind.NOT_ONLINE if away else TrackKind.UNKNOWN
        return MessageTrack(group, kind, consumed, where, str(connected))
    if connected.message_model is MessageModel.BROADCASTING:
        return MessageTrack(group, TrackKind.CONSUME_BROADCASTING)
    if connected.consume_type is ConsumeType.CONSUME_ACTIVELY:
        return MessageTrack(group, TrackKind.PULL, consumed, where)
    if consumed is None:
        reason = (
            str(progress)
            if isinstance(progress, KourouError)
            else "its queue is not reported by the broker"
        )
        return MessageTrack(group, TrackKind.UNKNOWN, None, None, reason)
    if not consumed:
        return MessageTrack(group, TrackKind.NOT_CONSUME_YET, False, where)
    subscription = connected.subscriptions.get(topic)
    wants = True if subscription is None else _matches(subscription, properties)
    if wants is None:
        assert subscription is not None, "nothing else is unknown"
        reason = (
            "the group consumed past it; whether the filter "
            f"{subscription.expression} accepted it is not checked here"
        )
        return MessageTrack(group, TrackKind.UNKNOWN, True, where, reason)
    if wants:
        return MessageTrack(group, TrackKind.CONSUMED, True, where)
    assert subscription is not None, "a subscription rejects it"
    by = "SQL92" if subscription.expression_type == SQL92 else "its tag"
    reason = f"filtered by {by}: the subscription is {subscription.expression}"
    return MessageTrack(group, TrackKind.CONSUMED_BUT_FILTERED, True, where, reason)


def _matches(subscription: Subscription, properties: Mapping[str, str]) -> bool | None:
    """Return whether the subscription matches; None if a Python filter decides.

    A `*` among tags matches every message, as RocketMQ's tools report it.
    """
    if MATCH_ALL in subscription.tags and subscription.expression_type == TAG:
        return None if subscription.class_filter_mode else True
    return selects(subscription, properties)
