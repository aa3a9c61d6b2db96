"""Messages that a consumer could not process: retried later, or stored as dead letters.

State: none but counters. What is sent back is an ordinary message in the log.

The consumer names the failed copy by its position. The broker stores a new copy: in the retry topic
of the group, after a delay that grows with the attempts, or in the group's dead-letter topic, where
it stays as long as any message.

    reconsumeTimes        attempts that failed; counted here
    RETRY_TOPIC           the topic that it was first sent to
    ORIGIN_MESSAGE_ID     the ID of the first copy
    DLQ_REASON            of a dead letter: the reason that the consumer gave
    DLQ_ORIGIN_TOPIC, DLQ_ORIGIN_MESSAGE_ID
                          of a dead letter: where it came from, with the names of RocketMQ 5
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from kourou.engine.context import BrokerContext
from kourou.engine.control import decide_dlq_topic, decide_retry_topic
from kourou.engine.effects import Effect
from kourou.engine.sends.appends import Target
from kourou.errors import GroupNotFound, NoPermission, Rejected
from kourou.events.control_events import Cause, Event, TopicPut
from kourou.model.limits import FAILURE_REASON_LENGTH_MAX
from kourou.model.message import RETRY_LEVEL, Property
from kourou.model.names import NOT_FOR_CLIENTS, RETRY_PREFIX, dlq_topic, retry_topic
from kourou.model.subscription import GroupConfig
from kourou.model.topic import UNIT_SUBSCRIPTION, WRITE
from kourou.protocol.messages.sends import ConsumerSendMsgBack
from kourou.protocol.record.layout import Parts, decode_host, parts_of
from kourou.protocol.record.message_id import encode_offset_id
from kourou.protocol.record.message_record import Changes, moved_draft
from kourou.protocol.record.properties import decode_properties
from kourou.protocol.request import Request
from kourou.runtime import Received, Reply

Counts = defaultdict[tuple[str, str], int]


class SendBackHandler:
    """Stores failed messages again. `sent_back` and `dead` count by (topic, group)."""

    def __init__(self, context: BrokerContext) -> None:
        self._view = context.view
        self._control = context.control
        self._appends = context.appends
        self._confirmations = context.confirmations
        self._recorder = context.recorder
        self._redirects = context.redirects
        self._pressure = context.pressure
        self._policy = context.policy
        self._traffic = context.traffic
        self._turn = 0
        self.sent_back: Counts = defaultdict(int)
        self.dead: Counts = defaultdict(int)

    def handlers(self) -> dict[type[Request], Callable[[int, Received, Any], list[Effect]]]:
        """Return the handler of each request type."""
        return {ConsumerSendMsgBack: self.send_back}

    def send_back(
        self, now_ms: int, received: Received, request: ConsumerSendMsgBack
    ) -> list[Effect]:
        """Store a failed message for another attempt, or as a dead letter (36).

        The reply waits until the new copy is as safe as the settings promise, because the consumer
        then commits the former one.
        """
        group = self._group(request.group)
        if not self._policy.permission & WRITE:
            raise NoPermission(
                f"broker {self._policy.broker_name} does not accept messages",
                hint="it has no write permission; send the message to another broker",
            )
        if group.retry_queue_nums <= 0:
            return [Reply(received.to)]  # the group has no retries, as in RocketMQ
        if self._pressure.refusing:
            self._pressure.check_writable()
        record = self._failed_copy(request)
        parts = parts_of(record, 0, len(record))
        stored = decode_properties(record[parts.props_at :])
        properties = dict(stored)
        topic = bytes(record[parts.topic_at : parts.topic_end]).decode("utf-8", "replace")
        self._check_copy(request, parts, topic, properties)
        origin = properties.setdefault(Property.RETRY_TOPIC, topic)
        properties.setdefault(Property.ORIGIN_MESSAGE_ID, _id_of(parts))
        properties[Property.WAIT] = "false"
        times_max = request.max_reconsume_times
        if times_max is None:
            times_max = group.retry_max_times
        times = parts.reconsume_times + 1
        if request.delay_level < 0 or parts.reconsume_times >= times_max:
            target = self._dead_target(request.group, received)
            _mark_dead(properties, request.reason)
            changes = _changes(stored, properties)
            draft = moved_draft(record, target, changes, reconsume_times=times)
        else:
            retry = self._retry_target(group, received, unit_mode=request.unit_mode)
            level = request.delay_level or RETRY_LEVEL + parts.reconsume_times
            draft, target = self._redirects.delayed(
                record, retry, level, _changes(stored, properties), reconsume_times=times
            )
        self._appends.write_one(draft, target, received.wall_ms)
        self._confirmations.append(self._appends.end)
        counts = self.dead if target[0] == dlq_topic(request.group) else self.sent_back
        counts[origin, request.group] += 1
        self._traffic.sent_back[origin, request.group] += 1
        return self._confirmations.defer(now_ms, self._appends.end, Reply(received.to))

    def dead_target(
        self,
        topic: str,
        received: Received,
        times: int,
        times_max: int | None,
        properties: dict[str, str],
    ) -> Target | None:
        """Return where to store a message that a consumer itself sends to its retry topic.

        None: in the retry topic, because attempts are left. Otherwise the dead-letter queue, and
        `properties` become those of a dead letter. Raises GroupNotFound.
        """
        name = topic.removeprefix(RETRY_PREFIX)
        group = self._group(name)
        if times < (group.retry_max_times if times_max is None else times_max):
            return None
        _mark_dead(properties, properties.get(Property.DLQ_REASON))
        self.dead[properties.get(Property.RETRY_TOPIC, topic), name] += 1
        return self._dead_target(name, received)

    # -- the failed copy ----------------------------------------------------------------------

    def _group(self, name: str) -> GroupConfig:
        group = self._control.groups.get(name)
        if group is None:
            raise GroupNotFound(f"consumer group {name} does not exist")
        return group

    def _failed_copy(self, request: ConsumerSendMsgBack) -> memoryview:
        if not 0 <= request.offset < self._confirmations.confirmed:
            raise Rejected(
                f"this broker's log has no message at position {request.offset}",
                hint="send the message itself to the retry topic",
            )
        return self._view.record_at(request.offset)

    def _check_copy(
        self, request: ConsumerSendMsgBack, parts: Parts, topic: str, properties: dict[str, str]
    ) -> None:
        """Check that it is the consumer's message: after a power loss, another may be there."""
        if topic in NOT_FOR_CLIENTS:
            raise NoPermission(
                f"the message at position {request.offset} belongs to {topic}, which is "
                "internal; it cannot be sent back"
            )
        named = request.origin_topic
        known = (topic, properties.get(Property.RETRY_TOPIC), properties.get(Property.REAL_TOPIC))
        if named and not any(one and (one == named or one.endswith(f"%{named}")) for one in known):
            raise Rejected(
                f"the message at position {request.offset} belongs to topic {topic}, not {named}"
            )
        message_id = request.origin_msg_id
        ids = (
            properties.get(Property.UNIQ_KEY),
            properties.get(Property.ORIGIN_MESSAGE_ID),
            _id_of(parts),
        )
        if message_id and ids[0] and message_id not in ids:
            raise Rejected(
                f"the message at position {request.offset} has ID {ids[0]}, not {message_id}"
            )

    # -- the target queue ---------------------------------------------------------------------

    def _retry_target(self, group: GroupConfig, received: Received, *, unit_mode: bool) -> Target:
        name = retry_topic(group.name)
        if name not in self._control.topics:
            events: list[Event] = [
                TopicPut(replace(event.topic, topic_sys_flag=UNIT_SUBSCRIPTION))
                if unit_mode and isinstance(event, TopicPut)
                else event
                for event in decide_retry_topic(self._control, group.name)
            ]
            self._record(events, received, "a message of the group failed")
        topic = self._control.topics.table[name]
        if not topic.writable:
            raise NoPermission(f"topic {name} is not writable (perm {topic.perm})")
        self._turn += 1
        return name, self._turn % group.retry_queue_nums

    def _dead_target(self, group: str, received: Received) -> Target:
        name = dlq_topic(group)
        if name not in self._control.topics:
            events = decide_dlq_topic(self._control, group)
            self._record(events, received, "a message reached the maximum of attempts")
        return name, 0

    def _record(self, events: list[Event], received: Received, reason: str) -> None:
        self._recorder.record(events, Cause(received.actor, reason), received.wall_ms)


def _changes(before: Mapping[str, str], after: Mapping[str, str]) -> Changes:
    """Return the properties that are new or different in `after`."""
    return tuple(
        (name.encode(), value.encode())
        for name, value in after.items()
        if before.get(name) != value
    )


def _mark_dead(properties: dict[str, str], reason: str | None) -> None:
    """Set the properties of a dead letter, which has no delay."""
    properties[Property.DELAY] = "0"
    if reason:
        plain = reason.replace("\x01", " ").replace("\x02", " ")
        properties[Property.DLQ_REASON] = plain[:FAILURE_REASON_LENGTH_MAX]
    if properties.get(Property.RETRY_TOPIC):
        properties[Property.DLQ_ORIGIN_TOPIC] = properties[Property.RETRY_TOPIC]
    if properties.get(Property.UNIQ_KEY):
        properties[Property.DLQ_ORIGIN_MESSAGE_ID] = properties[Property.UNIQ_KEY]


def _id_of(parts: Parts) -> str:
    """Return the offset message ID of a stored record."""
    return encode_offset_id(decode_host(parts.store_host), parts.position)
