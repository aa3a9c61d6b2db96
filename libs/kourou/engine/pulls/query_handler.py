"""Queries: the bounds and offsets of queues, and stored messages by position or by key.

State: none. Uncommitted messages are not found.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kourou.engine.context import BrokerContext
from kourou.engine.effects import Effect
from kourou.engine.groups.member_handler import EnsureGroup
from kourou.errors import BadRequest, Code, Rejected, TopicNotFound
from kourou.model.limits import PULL_SIZE_BYTES_MAX, QUERY_MESSAGES_MAX, QUEUE_LOOK_UNITS_MAX
from kourou.model.subscription import TAG, Subscription
from kourou.protocol.bodies.status_bodies import QueueLook, QueueUnit, encode_queue_look
from kourou.protocol.messages.pulls import (
    GetEarliestMsgStoreTime,
    GetEarliestMsgStoreTimeResponse,
    GetMaxOffset,
    GetMaxOffsetResponse,
    GetMinOffset,
    GetMinOffsetResponse,
    QueryConsumeQueue,
    QueryConsumerOffset,
    QueryConsumerOffsetResponse,
    QueryMessage,
    QueryMessageResponse,
    SearchOffsetByTimestamp,
    SearchOffsetByTimestampResponse,
    UpdateConsumerOffset,
    ViewMessageById,
)
from kourou.protocol.record.hashes import tags_code
from kourou.protocol.record.layout import parts_of
from kourou.protocol.record.properties import labels
from kourou.protocol.request import Request
from kourou.runtime import Received, Reply


class OffsetHandler:
    """Handles queries of offsets, and commits.

    State: none of its own.
    """

    def __init__(self, context: BrokerContext, ensure_group: EnsureGroup) -> None:
        self._view = context.view
        self._confirmations = context.confirmations
        self._control = context.control
        self._commits = context.commits
        self._ensure_group = ensure_group

    def committed(
        self, _now_ms: int, received: Received, request: QueryConsumerOffset
    ) -> list[Effect]:
        """Reply with a group's offset (14).

        A group without an offset gets 0 while the queue still begins at 0 and message 0 is recent:
        a young queue is read from its start. Otherwise the reply is QUERY_NOT_FOUND, and the client
        decides by its consumeFromWhere.
        """
        offset = self._commits.offset(request.consumer_group, request.topic, request.queue_id)
        if offset is None:
            low, _ = self._view.queue_range(request.topic, request.queue_id) or (0, 0)
            first = self._view.offset_position(request.topic, request.queue_id, 0)
            if low > 0 or (first >= 0 and not self._view.is_recent(first)):
                return [
                    Reply(
                        received.to,
                        Code.QUERY_NOT_FOUND,
                        f"group {request.consumer_group} has no offset in queue "
                        f"{request.queue_id} of {request.topic}",
                    )
                ]
            offset = 0
        return [Reply(received.to, header=QueryConsumerOffsetResponse(offset=offset))]

    def commit(
        self, _now_ms: int, received: Received, request: UpdateConsumerOffset
    ) -> list[Effect]:
        """Commit a group's offset (15); it is recorded with the next ProgressRecorded event.

        An unknown group is created, if that is allowed.
        """
        if request.topic not in self._control.topics:
            raise TopicNotFound(f"topic {request.topic} does not exist")
        if request.consumer_group not in self._control.groups:
            self._ensure_group(request.consumer_group, received, "first commit of a consumer")
        self._commits.commit(
            request.consumer_group, request.topic, request.queue_id, request.commit_offset
        )
        return [Reply(received.to)]

    def maximum(self, _now_ms: int, received: Received, request: GetMaxOffset) -> list[Effect]:
        """Reply with the offset of the next message (30); 0 for a queue never written.

        Only committed messages count. Another leader could assign a higher offset to another
        message, and a consumer that began there would miss that message.
        """
        end = self._confirmed_end(request.topic, _queue(request.queue_id))
        return [Reply(received.to, header=GetMaxOffsetResponse(offset=end))]

    def _confirmed_end(self, topic: str, queue_id: int) -> int:
        confirmed = self._confirmations.confirmed
        if confirmed < self._confirmations.appended:
            return self._view.offset_at(topic, queue_id, confirmed)
        span = self._view.queue_range(topic, queue_id)
        return span[1] if span else 0

    def minimum(self, _now_ms: int, received: Received, request: GetMinOffset) -> list[Effect]:
        """Reply with the first offset still stored (31); 0 for a queue never written."""
        span = self._view.queue_range(request.topic, _queue(request.queue_id))
        return [Reply(received.to, header=GetMinOffsetResponse(offset=span[0] if span else 0))]

    def by_time(
        self, _now_ms: int, received: Received, request: SearchOffsetByTimestamp
    ) -> list[Effect]:
        """Reply with the first offset stored at or after a time (29)."""
        topic, queue_id = request.topic, _queue(request.queue_id)
        found = self._view.offset_by_time(topic, queue_id, request.timestamp)
        offset = min(found, self._confirmed_end(topic, queue_id))
        return [Reply(received.to, header=SearchOffsetByTimestampResponse(offset=offset))]

    def earliest(
        self, _now_ms: int, received: Received, request: GetEarliestMsgStoreTime
    ) -> list[Effect]:
        """Reply with the store time of the queue's first message (32); -1 for an empty queue."""
        span = self._view.queue_range(request.topic, _queue(request.queue_id))
        at_ms = self._view.store_time(request.topic, request.queue_id, span[0]) if span else -1
        return [Reply(received.to, header=GetEarliestMsgStoreTimeResponse(timestamp=at_ms))]


def _queue(queue_id: int) -> int:
    if queue_id < 0:
        raise BadRequest(f"queue ID {queue_id} is negative")
    return queue_id


class QueryHandler:
    """Handles message queries."""

    def __init__(self, context: BrokerContext) -> None:
        self._view = context.view
        self._confirmations = context.confirmations
        self._members = context.members
        self._policy = context.policy

    def handlers(self) -> dict[type[Request], Callable[[int, Received, Any], list[Effect]]]:
        """Return the handler of each request type."""
        return {
            QueryMessage: self.by_key,
            ViewMessageById: self.view,
            QueryConsumeQueue: self.look,
        }

    def view(self, _now_ms: int, received: Received, request: ViewMessageById) -> list[Effect]:
        """Reply with the record at a log position (33)."""
        if not 0 <= request.offset < self._confirmations.confirmed:
            raise Rejected(f"this broker's log has no message at position {request.offset}")
        return [Reply(received.to, body=(self._view.record_at(request.offset),))]

    def by_key(self, _now_ms: int, received: Received, request: QueryMessage) -> list[Effect]:
        """Reply with messages by key or unique key (12).

        RocketMQ returns every record with the same hash, and its clients compare the keys. This
        broker omits records of other keys already; Kourou's client compares, too.
        """
        wanted = self._policy.query_max if request.unique_key_query else request.max_num
        if wanted <= 0:
            raise BadRequest(f"maxNum is {wanted}; it must be at least 1")
        records = self._view.find_by_key(
            request.topic,
            request.key,
            max_count=min(wanted, QUERY_MESSAGES_MAX),
            begin_ms=request.begin_timestamp,
            end_ms=request.end_timestamp,
            below=self._confirmations.confirmed,
        )
        if not records:
            return [
                Reply(
                    received.to,
                    Code.QUERY_NOT_FOUND,
                    f"this broker has no message with key {request.key} in topic {request.topic}",
                    QueryMessageResponse(
                        index_last_update_timestamp=0, index_last_update_phyoffset=0
                    ),
                )
            ]
        newest = parts_of(records[0], 0, len(records[0]))
        header = QueryMessageResponse(
            index_last_update_timestamp=newest.store_timestamp,
            index_last_update_phyoffset=newest.position,
        )
        return [Reply(received.to, header=header, body=(b"".join(records),))]

    def look(self, _now_ms: int, received: Received, request: QueryConsumeQueue) -> list[Effect]:
        """Reply with queue entries from an offset on (321), and whether a group's tags match.

        Entries that are not committed or fail their check are omitted.
        """
        span = self._view.queue_range(request.topic, request.queue_id)
        if span is None:
            raise Rejected(f"{request.queue_id}@{request.topic} is not exist!")
        low, high = span
        subscription, filter_data = self._wanted(request)
        if not low <= request.index < high:
            look = QueueLook((), low, high, subscription, filter_data)
            remark = f"Index {request.index} of {request.queue_id}@{request.topic} is not exist!"
            return [Reply(received.to, Code.SUCCESS, remark, body=(encode_queue_look(look),))]
        read = self._view.read_queue(
            request.topic,
            request.queue_id,
            request.index,
            max_messages=max(1, min(request.count, QUEUE_LOOK_UNITS_MAX)),
            max_bytes=PULL_SIZE_BYTES_MAX,
            codes=None,
            below=self._confirmations.confirmed,
        )
        units = tuple(_unit(record, subscription) for record in read.records)
        look = QueueLook(units, low, high, subscription, filter_data)
        return [Reply(received.to, body=(encode_queue_look(look),))]

    def _wanted(self, request: QueryConsumeQueue) -> tuple[Subscription | None, str | None]:
        """Return the group's subscription to the topic, or the text that it is not online."""
        if request.consumer_group is None:
            return None, None
        group = self._members.consumer_group(request.consumer_group)
        found = None if group is None else group.subscriptions.get(request.topic)
        if found is None:
            return None, f"{request.consumer_group}@{request.topic} is not online!"
        return found, None


def _unit(record: memoryview, subscription: Subscription | None) -> QueueUnit:
    parts = parts_of(record, 0, len(record))
    tag, _ = labels(bytes(record[parts.props_at :]))
    code = tags_code(tag.decode("utf-8", "replace"))
    by_code = subscription is not None and subscription.expression_type == TAG
    codes = subscription.codes if subscription is not None and by_code else frozenset()
    return QueueUnit(
        eval=not codes or code in codes,
        physic_offset=parts.position,
        physic_size=len(record),
        tags_code=code,
    )
