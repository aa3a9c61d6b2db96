"""The bounds of a queue, a group's offset, and the offset for a time.

State: none of its own.
"""

from __future__ import annotations

from kourou.engine.control import ControlState
from kourou.engine.effects import Effect
from kourou.engine.groups.member_handler import EnsureGroup
from kourou.engine.groups.progress import Commits
from kourou.engine.ports import StoreView
from kourou.engine.sends.confirmations import Confirmations
from kourou.errors import BadRequest, Code, TopicNotFound
from kourou.protocol.messages.pulls import (
    GetEarliestMsgStoreTime,
    GetEarliestMsgStoreTimeResponse,
    GetMaxOffset,
    GetMaxOffsetResponse,
    GetMinOffset,
    GetMinOffsetResponse,
    QueryConsumerOffset,
    QueryConsumerOffsetResponse,
    SearchOffsetByTimestamp,
    SearchOffsetByTimestampResponse,
    UpdateConsumerOffset,
)
from kourou.runtime.effects import Reply
from kourou.runtime.inputs import Received


class OffsetHandler:
    """Handles queries of offsets, and commits."""

    def __init__(
        self,
        view: StoreView,
        control: ControlState,
        commits: Commits,
        ensure_group: EnsureGroup,
        confirmations: Confirmations,
    ) -> None:
        self._view = view
        self._confirmations = confirmations
        self._control = control
        self._commits = commits
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
