"""Requests about consumer groups, their offsets and their consumer lag.

State: none of its own.

A reset (222) works in two ways at once: the broker records the new offsets, so that a group that is
offline starts from them, and it notifies every connected consumer (220), which drops its queues and
adopts the offsets.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from kourou.access.model import ResourceType
from kourou.engine.admin.access_gate import AccessGate
from kourou.engine.admin.quota_gate import QuotaGate
from kourou.engine.context import BrokerContext
from kourou.engine.control import ControlState, decide_delete_group
from kourou.engine.effects import Effect
from kourou.engine.groups.group_table import decide_put
from kourou.engine.groups.member_handler import EnsureGroup
from kourou.engine.groups.progress import decide_clone, decide_reset
from kourou.engine.statistics import Statistics
from kourou.errors import GroupNotFound, TopicNotFound
from kourou.events.control_events import OffsetsReset
from kourou.model.limits import OFFSET_MAX
from kourou.model.names import retry_topic
from kourou.model.topic import MessageQueue, TopicConfig
from kourou.protocol.bodies.config_bodies import (
    decode_group_config,
    encode_consumer_offsets,
    encode_group_configs,
)
from kourou.protocol.bodies.statistics_bodies import (
    BrokerConsumeStats,
    ConsumeStats,
    OffsetWrapper,
    QueueTimeSpan,
    encode_broker_consume_stats,
    encode_consume_stats,
    encode_correction_offsets,
    encode_offset_table,
    encode_time_spans,
    time_span,
)
from kourou.protocol.messages.groups import (
    DeleteSubscriptionGroup,
    GetAllSubscriptionGroupConfig,
    GetBrokerConsumeStats,
    GetConsumeStats,
    QueryConsumeTimeSpan,
    UpdateAndCreateSubscriptionGroup,
)
from kourou.protocol.messages.pulls import (
    CloneGroupOffset,
    GetAllConsumerOffset,
    InvokeBrokerToResetOffset,
    QueryCorrectionOffset,
    ResetConsumerClientOffset,
)
from kourou.protocol.request import Request
from kourou.runtime import Notify, Received, Reply

LIST_FORM_LANGUAGE = "CPP"
"""Clients in this language read tables of offsets as lists, as in RocketMQ."""


class GroupHandler:
    """Handles requests about consumer groups."""

    def __init__(
        self,
        context: BrokerContext,
        ensure_group: EnsureGroup,
        gate: AccessGate,
        quotas: QuotaGate,
    ) -> None:
        self._gate = gate
        self._quotas = quotas
        self._control = context.control
        self._commits = context.commits
        self._members = context.members
        self._pending_replies = context.pending_replies
        self._view = context.view
        self._broker_name = context.policy.broker_name
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
        events = decide_put(self._control.groups, wanted)
        self._quotas.check_new_group(received, wanted.name)
        return self._pending_replies.decided(now_ms, received, events)

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
        """Reply with every group's configuration (201), as far as the sender sees the group."""
        groups, sees = self._control.groups, self._gate.sees(received)
        seen = [group for group in groups if sees(ResourceType.GROUP, group.name)]
        return [Reply(received.to, body=(encode_group_configs(seen, groups.version),))]

    def all_offsets(
        self, _now_ms: int, received: Received, _request: GetAllConsumerOffset
    ) -> list[Effect]:
        """Reply with every group's offsets (43), as far as the sender sees group and topic."""
        sees = self._gate.sees(received)
        seen = (
            entry
            for entry in self._commits.entries()
            if sees(ResourceType.GROUP, entry[0]) and sees(ResourceType.TOPIC, entry[1])
        )
        return [Reply(received.to, body=(encode_consumer_offsets(seen),))]

    def reset(
        self, now_ms: int, received: Received, request: InvokeBrokerToResetOffset
    ) -> list[Effect]:
        """Reset a group to a store time (222); -1 means the end, without force only backwards."""
        topic = _topic(self._control, request.topic)
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
        return effects + self._notify_consumers(notice, table)

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
        return self._notify_consumers(notice, table)

    def _notify_consumers(
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
        events = decide_clone(
            self._commits, request.src_group, request.dest_group, request.topic or None
        )
        self._ensure_group(
            request.dest_group, received, f"starts at the offset of {request.src_group}"
        )
        return self._pending_replies.decided(now_ms, received, events)

    def _offset_at(self, topic: str, queue_id: int, timestamp_ms: int) -> int:
        if timestamp_ms < 0:
            span = self._view.queue_range(topic, queue_id)
            return span[1] if span is not None else 0
        return self._view.offset_by_time(topic, queue_id, timestamp_ms)


class ConsumerLagHandler:
    """Handles requests about consumer lag. `address` is this broker's own, as clients dial it.

    State: none of its own.
    """

    def __init__(
        self, context: BrokerContext, statistics: Statistics, address: str, gate: AccessGate
    ) -> None:
        self._gate = gate
        self._control = context.control
        self._commits = context.commits
        self._members = context.members
        self._view = context.view
        self._statistics = statistics
        self._broker_name = context.policy.broker_name
        self._address = address

    def handlers(self) -> dict[type[Request], Callable[[int, Received, Any], list[Effect]]]:
        """Return the handler of each request type."""
        return {
            GetConsumeStats: self.stats,
            GetBrokerConsumeStats: self.all_stats,
            QueryConsumeTimeSpan: self.time_spans,
            QueryCorrectionOffset: self.corrections,
        }

    def stats(self, _now_ms: int, received: Received, request: GetConsumeStats) -> list[Effect]:
        """Reply with a group's offsets and the queues' ends (208), for all topics or one."""
        group = request.consumer_group
        if request.topic:
            _topic(self._control, request.topic)
            topics = [request.topic]
        else:
            topics = self._topics_of(group)
        table: dict[MessageQueue, OffsetWrapper] = {}
        tps = 0.0
        for name in topics:
            topic = self._control.topics.get(name)
            if topic is not None:
                table.update(self._progress(group, topic))
                tps += self._statistics.consume_tps(name, group)
        return [Reply(received.to, body=(encode_consume_stats(table, tps),))]

    def all_stats(
        self, _now_ms: int, received: Received, request: GetBrokerConsumeStats
    ) -> list[Effect]:
        """Reply with all groups' offsets, by topic (317); `is_order`: only ordered topics.

        They and their total lag are those of groups and topics that the sender sees.
        """
        groups: dict[str, list[ConsumeStats]] = {}
        lag, sees = 0, self._gate.sees(received)
        for group in self._commits.groups():
            if not sees(ResourceType.GROUP, group):
                continue
            found: list[ConsumeStats] = []
            for name in self._topics_of(group):
                topic = self._control.topics.get(name)
                if topic is None or (request.is_order and not topic.order):
                    continue
                if not sees(ResourceType.TOPIC, name):
                    continue
                stats = ConsumeStats(
                    self._progress(group, topic), self._statistics.consume_tps(name, group)
                )
                lag += sum(
                    one.broker_offset - one.consumer_offset for one in stats.offsets.values()
                )
                found.append(stats)
            if found:
                groups[group] = found
        body = encode_broker_consume_stats(BrokerConsumeStats(self._address, groups, lag))
        return [Reply(received.to, body=(body,))]

    def _topics_of(self, group: str) -> list[str]:
        topics = set(self._commits.topics(group))
        consuming = self._members.consumer_group(group)
        if consuming is not None:
            topics |= set(consuming.subscriptions)
        if not topics and group not in self._control.groups:
            raise GroupNotFound(f"consumer group {group} does not exist")
        return sorted(topics - {retry_topic(group)})

    def _progress(self, group: str, topic: TopicConfig) -> dict[MessageQueue, OffsetWrapper]:
        return {
            MessageQueue(topic.name, self._broker_name, queue_id): self._wrapper(
                group, topic.name, queue_id
            )
            for queue_id in range(topic.read_queue_nums)
        }

    def _wrapper(self, group: str, topic: str, queue_id: int) -> OffsetWrapper:
        low, high = self._view.queue_range(topic, queue_id) or (0, 0)
        committed = self._commits.offset(group, topic, queue_id)
        consumer = low if committed is None else committed
        last_ms = 0
        if low < consumer <= high:
            last_ms = max(self._view.store_time(topic, queue_id, consumer - 1), 0)
        return OffsetWrapper(broker_offset=high, consumer_offset=consumer, last_timestamp=last_ms)

    # -- lag in time --------------------------------------------------------------------------

    def time_spans(
        self, _now_ms: int, received: Received, request: QueryConsumeTimeSpan
    ) -> list[Effect]:
        """Reply with store times of each queue's first, last and last consumed message (303)."""
        topic = _topic(self._control, request.topic)
        spans = [
            self._span(request.group, topic.name, queue_id, received.wall_ms)
            for queue_id in range(topic.write_queue_nums)
        ]
        return [Reply(received.to, body=(encode_time_spans(spans),))]

    def _span(self, group: str, topic: str, queue_id: int, wall_ms: int) -> QueueTimeSpan:
        """As in RocketMQ, a group without offsets counts as being at the first message."""
        low, high = self._view.queue_range(topic, queue_id) or (0, 0)
        first_ms = last_ms = -1
        if high > low:
            first_ms = self._view.store_time(topic, queue_id, low)
            last_ms = self._view.store_time(topic, queue_id, high - 1)
        offset = self._commits.offset(group, topic, queue_id) or 0
        consumed_ms, delay_ms = first_ms, 0
        if low < offset <= high:
            consumed_ms = self._view.store_time(topic, queue_id, offset - 1)
        if offset < high:
            next_ms = self._view.store_time(topic, queue_id, max(offset, low))
            delay_ms = max(wall_ms - next_ms, 0)
        return time_span(
            MessageQueue(topic, self._broker_name, queue_id),
            first_ms=first_ms,
            last_ms=last_ms,
            consumed_ms=consumed_ms,
            delay_ms=delay_ms,
        )

    # -- several groups -----------------------------------------------------------------------

    def corrections(
        self, _now_ms: int, received: Received, request: QueryCorrectionOffset
    ) -> list[Effect]:
        """Reply with the lowest offset of a topic over its groups, by queue (308).

        Offsets below the oldest stored message do not count, nor do those of `filter_groups` and of
        groups that the sender does not see. If the offset of `compare_group` is below the result,
        the result is OFFSET_MAX: nothing to correct.
        """
        left_out = set((request.filter_groups or "").split(","))
        sees = self._gate.sees(received)
        lowest: dict[int, int] = {}
        for group in self._commits.groups(request.topic):
            if group in left_out or not sees(ResourceType.GROUP, group):
                continue
            for queue_id, offset in self._commits.queues(group, request.topic).items():
                low, _ = self._view.queue_range(request.topic, queue_id) or (0, 0)
                if offset >= low:
                    lowest[queue_id] = min(offset, lowest.get(queue_id, offset))
        compared = self._commits.queues(request.compare_group, request.topic)
        for queue_id, offset in compared.items():
            if queue_id in lowest and lowest[queue_id] > offset:
                lowest[queue_id] = OFFSET_MAX
        return [Reply(received.to, body=(encode_correction_offsets(lowest),))]


def _topic(control: ControlState, name: str) -> TopicConfig:
    topic = control.topics.get(name)
    if topic is None:
        raise TopicNotFound(f"topic {name} does not exist")
    return topic
