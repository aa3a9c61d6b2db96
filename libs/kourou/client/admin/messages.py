"""Message queries by ID, key, time or queue offset; consume status and trace of a message."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Self, TypeVar

from kourou.client.admin.base_api import AdminApi
from kourou.client.admin.message_tracks import MessageTrack, track
from kourou.client.consumer.received import ReceivedMessage, from_record, from_records
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
from kourou.model.limits import QUERY_MESSAGES_MAX
from kourou.model.names import TRACE_TOPIC
from kourou.model.topic import MessageQueue
from kourou.protocol.bodies.lists_body import (
    ConsumerConnection,
    decode_consumer_connection,
    decode_group_list,
)
from kourou.protocol.bodies.statistics_bodies import OffsetWrapper, decode_consume_stats
from kourou.protocol.bodies.status_bodies import QueueLook, decode_queue_look
from kourou.protocol.messages.broker_admin import QueryTopicConsumeByWho
from kourou.protocol.messages.groups import GetConsumerConnectionList, GetConsumeStats
from kourou.protocol.messages.pulls import QueryConsumeQueue, QueryMessage, ViewMessageById
from kourou.protocol.record.message_id import decode_offset_id
from kourou.protocol.record.message_trace import TraceRecord, decode_trace

FOR_EVER_MS = 2**62
QUERY_COUNT = 32
_NONE = frozenset({int(Code.QUERY_NOT_FOUND)})
T = TypeVar("T")


class MessageNotFound(Rejected):
    """No broker that replied has such a message."""

    code = Code.QUERY_NOT_FOUND


class Found(list[T]):
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


class Messages(AdminApi):
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
    async def copies(self, topic: str, unique_key: str) -> Found[ReceivedMessage]:
        """Return the stored messages with this unique key, the newest 32 of each broker."""
        return (await self._copies(topic, unique_key)).or_why()

    async def _copies(
        self, topic: str, unique_key: str, *, without: Collection[str] = ()
    ) -> Found[ReceivedMessage]:
        found = await self._query(
            topic, unique_key, QUERY_COUNT, 0, FOR_EVER_MS, unique=True, without=without
        )
        exact = (message for message in found if message.message_id == unique_key)
        return Found(exact, found.missing)

    @on_io_thread
    async def search(self, topics: Iterable[str], unique_key: str) -> Found[ReceivedMessage]:
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
                return Found(found, away)
        return Found((), away).or_why()

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
        end_ms: int = FOR_EVER_MS,
        count_max: int = QUERY_COUNT,
    ) -> Found[ReceivedMessage]:
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
        return Found(exact, found.missing).or_why()

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
    ) -> Found[ReceivedMessage]:
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
        told = await asyncio.gather(*(self._told(*one, request) for one in asked.items()))
        found: Found[ReceivedMessage] = Found()
        for name, one in zip(asked, told, strict=True):
            if isinstance(one, KourouError):
                found.missing[name] = one
            else:
                found += one
        return found

    async def _told(
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
        address = (await self._leaders_of(queue.topic)).get(queue.broker_name)
        if address is None:
            raise Unavailable(f"broker {queue.broker_name} of {queue!s} has no leader")
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
        topic, queue = message.queue.topic, message.queue
        address = (await self._leaders_of(topic)).get(queue.broker_name)
        if address is None:
            raise Unavailable(f"broker {queue.broker_name} of {queue!s} has no leader")
        reply = await self._ask(address, QueryTopicConsumeByWho(topic=topic))
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
            told = decode_consume_stats(body_of(await self._ask(address, stats)))
            progress = told.offsets.get(message.queue)
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
        end_ms: int = FOR_EVER_MS,
    ) -> Found[TraceRecord]:
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
        return Found(records, found.missing).or_why()
