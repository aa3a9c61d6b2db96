"""Consumer lag: in messages, in time, and over many groups.

State: none of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kourou.engine.control import ControlState
from kourou.engine.effects import Effect
from kourou.engine.groups.membership import Membership
from kourou.engine.groups.progress import OFFSET_MAX, Commits
from kourou.engine.ports import StoreView
from kourou.engine.statistics import Statistics
from kourou.errors import GroupNotFound, TopicNotFound
from kourou.model.names import retry_topic
from kourou.model.topic import MessageQueue, TopicConfig
from kourou.protocol.bodies.statistics_bodies import (
    BrokerConsumeStats,
    ConsumeStats,
    OffsetWrapper,
    QueueTimeSpan,
    encode_broker_consume_stats,
    encode_consume_stats,
    encode_correction_offsets,
    encode_time_spans,
    time_span,
)
from kourou.protocol.messages.groups import (
    GetBrokerConsumeStats,
    GetConsumeStats,
    QueryConsumeTimeSpan,
)
from kourou.protocol.messages.pulls import QueryCorrectionOffset
from kourou.protocol.request import Request
from kourou.runtime.effects import Reply
from kourou.runtime.inputs import Received


class GroupFigures:
    """Handles requests about consumer lag. `address` is this broker's own, as clients dial it."""

    def __init__(
        self,
        control: ControlState,
        commits: Commits,
        members: Membership,
        view: StoreView,
        statistics: Statistics,
        broker_name: str,
        address: str,
    ) -> None:
        self._control = control
        self._commits = commits
        self._members = members
        self._view = view
        self._statistics = statistics
        self._broker_name = broker_name
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
            self._topic(request.topic)
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
        """Reply with all groups' offsets, by topic (317); `is_order`: only ordered topics."""
        groups: dict[str, list[ConsumeStats]] = {}
        lag = 0
        for group in self._commits.groups():
            found: list[ConsumeStats] = []
            for name in self._topics_of(group):
                topic = self._control.topics.get(name)
                if topic is None or (request.is_order and not topic.order):
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
        topic = self._topic(request.topic)
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

        Offsets below the oldest stored message and those of `filter_groups` do not count. If the
        offset of `compare_group` is below the result, the result is OFFSET_MAX: nothing to correct.
        """
        left_out = set((request.filter_groups or "").split(","))
        lowest: dict[int, int] = {}
        for group in self._commits.groups(request.topic):
            if group in left_out:
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

    def _topic(self, name: str) -> TopicConfig:
        topic = self._control.topics.get(name)
        if topic is None:
            raise TopicNotFound(f"topic {name} does not exist")
        return topic
