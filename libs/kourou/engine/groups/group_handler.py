"""Requests about consumer groups and their offsets.

State: none of its own.

A reset (222) works in two ways at once: the broker records the new offsets, so that a group that is
offline starts from them, and it notifies every connected consumer (220), which drops its queues and
adopts the offsets.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from kourou.engine.control import ControlState, decide_delete_group
from kourou.engine.effects import Effect
from kourou.engine.groups.group_table import decide_put
from kourou.engine.groups.member_handler import EnsureGroup
from kourou.engine.groups.membership import Membership
from kourou.engine.groups.progress import Commits, decide_clone, decide_reset
from kourou.engine.ports import StoreView
from kourou.engine.sends.pending_replies import PendingReplies
from kourou.errors import GroupNotFound, TopicNotFound
from kourou.events.control_events import OffsetsReset
from kourou.model.topic import MessageQueue, TopicConfig
from kourou.protocol.bodies.config_bodies import (
    decode_group_config,
    encode_consumer_offsets,
    encode_group_configs,
)
from kourou.protocol.bodies.statistics_bodies import encode_offset_table
from kourou.protocol.messages.groups import (
    DeleteSubscriptionGroup,
    GetAllSubscriptionGroupConfig,
    UpdateAndCreateSubscriptionGroup,
)
from kourou.protocol.messages.pulls import (
    CloneGroupOffset,
    GetAllConsumerOffset,
    InvokeBrokerToResetOffset,
    ResetConsumerClientOffset,
)
from kourou.protocol.request import Request
from kourou.runtime.effects import Notify, Reply
from kourou.runtime.inputs import Received

LIST_FORM_LANGUAGE = "CPP"
"""Clients in this language read tables of offsets as lists, as in RocketMQ."""


class GroupHandler:
    """Handles requests about consumer groups."""

    def __init__(
        self,
        control: ControlState,
        commits: Commits,
        members: Membership,
        pending_replies: PendingReplies,
        view: StoreView,
        broker_name: str,
        ensure_group: EnsureGroup,
    ) -> None:
        self._control = control
        self._commits = commits
        self._members = members
        self._pending_replies = pending_replies
        self._view = view
        self._broker_name = broker_name
        self._ensure_group = ensure_group

    def handlers(self) -> dict[type[Request], Callable[[int, Received, Any], list[Effect]]]:
        """Return the handler of each request type."""
        return {
            UpdateAndCreateSubscriptionGroup: self.put,
            DeleteSubscriptionGroup: self.delete,
            GetAllSubscriptionGroupConfig: self.all,
            GetAllConsumerOffset: self.all_offsets,
            InvokeBrokerToResetOffset: self.reset,
            CloneGroupOffset: self.clone,
        }

    def put(
        self, now_ms: int, received: Received, _request: UpdateAndCreateSubscriptionGroup
    ) -> list[Effect]:
        """Create or change a group (200)."""
        wanted = decode_group_config(b"".join(received.body))
        return self._pending_replies.decided(
            now_ms, received, decide_put(self._control.groups, wanted)
        )

    def delete(
        self, now_ms: int, received: Received, request: DeleteSubscriptionGroup
    ) -> list[Effect]:
        """Delete a group, and its offsets if requested (207)."""
        events = decide_delete_group(
            self._control, self._commits, request.group_name, remove_offset=request.remove_offset
        )
        return self._pending_replies.decided(now_ms, received, events)

    def all(
        self, _now_ms: int, received: Received, _request: GetAllSubscriptionGroupConfig
    ) -> list[Effect]:
        """Reply with every group's configuration (201)."""
        groups = self._control.groups
        return [Reply(received.to, body=(encode_group_configs(list(groups), groups.version),))]

    def all_offsets(
        self, _now_ms: int, received: Received, _request: GetAllConsumerOffset
    ) -> list[Effect]:
        """Reply with every group's offsets (43)."""
        return [Reply(received.to, body=(encode_consumer_offsets(self._commits.entries()),))]

    def reset(
        self, now_ms: int, received: Received, request: InvokeBrokerToResetOffset
    ) -> list[Effect]:
        """Reset a group to a store time (222); -1 means the end, without force only backwards."""
        topic = self._topic(request.topic)
        if request.group not in self._control.groups:
            raise GroupNotFound(f"consumer group {request.group} does not exist")
        offsets: dict[int, int | None] = {}
        table: dict[MessageQueue, int] = {}
        for queue_id in range(topic.read_queue_nums):
            target = self._offset_at(request.topic, queue_id, request.timestamp)
            known = self._commits.offset(request.group, request.topic, queue_id)
            if known is not None and not request.is_force:
                target = min(target, known)
            offsets[queue_id] = target
            table[MessageQueue(request.topic, self._broker_name, queue_id)] = target
        events = decide_reset(self._commits, request.group, request.topic, offsets)
        by_list = received.to.language == LIST_FORM_LANGUAGE
        body = encode_offset_table(table, list_form=by_list)
        effects = self._pending_replies.decided(
            now_ms,
            received,
            events,
            body=(body,),
            reason=request.reason or f"reset to {request.timestamp}",
        )
        notice = ResetConsumerClientOffset(
            topic=request.topic,
            group=request.group,
            timestamp=request.timestamp,
            is_force=request.is_force,
        )
        return effects + self._tell_members(notice, table)

    def moved(self, event: OffsetsReset, at_ms: int) -> list[Effect]:
        """Notify the connected consumers of a group that its offsets were changed.

        Where an entry was removed, consumers keep their offset, because no offset value means
        "none".
        """
        table = {
            MessageQueue(event.topic, self._broker_name, queue_id): offset
            for queue_id, offset in event.offsets.items()
            if offset is not None
        }
        if not table:
            return []
        notice = ResetConsumerClientOffset(
            topic=event.topic, group=event.group, timestamp=at_ms, is_force=True
        )
        return self._tell_members(notice, table)

    def _tell_members(
        self, notice: ResetConsumerClientOffset, table: Mapping[MessageQueue, int]
    ) -> list[Effect]:
        """Notify each connection once, in the form that its client understands.

        RocketMQ uses the form of the client that requested the reset, which other clients cannot
        read.
        """
        members = {member.peer.id: member for member in self._members.consumers(notice.group)}
        return [
            Notify(
                member.peer,
                notice,
                (encode_offset_table(table, list_form=member.language == LIST_FORM_LANGUAGE),),
            )
            for member in members.values()
        ]

    def clone(self, now_ms: int, received: Received, request: CloneGroupOffset) -> list[Effect]:
        """Copy a group's offsets to another group (314), which is created if that is allowed."""
        if request.src_group not in self._control.groups:
            raise GroupNotFound(f"consumer group {request.src_group} does not exist")
        self._ensure_group(
            request.dest_group, received, f"starts at the offset of {request.src_group}"
        )
        events = decide_clone(
            self._commits, request.src_group, request.dest_group, request.topic or None
        )
        return self._pending_replies.decided(now_ms, received, events)

    def _offset_at(self, topic: str, queue_id: int, timestamp_ms: int) -> int:
        if timestamp_ms < 0:
            span = self._view.queue_range(topic, queue_id)
            return span[1] if span is not None else 0
        return self._view.offset_by_time(topic, queue_id, timestamp_ms)

    def _topic(self, name: str) -> TopicConfig:
        topic = self._control.topics.get(name)
        if topic is None:
            raise TopicNotFound(f"topic {name} does not exist")
        return topic
