"""The JSON bodies in which a client describes itself: heartbeat (34), subscription check (46).

Java and JavaScript clients send enums by name, C++ clients by number; version numbers may be texts;
tag sets may be missing. Values such as a tag's hash are accepted as sent; kourou.filtering decides
whether a subscription is valid.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from kourou.model.limits import (
    CLIENT_GROUPS_MAX,
    GROUP_SUBSCRIPTIONS_MAX,
    HEARTBEAT_BYTES_MAX,
)
from kourou.model.subscription import (
    MATCH_ALL,
    TAG,
    ConsumeFromWhere,
    ConsumeType,
    MessageModel,
    Subscription,
)
from kourou.protocol.request import Int64
from kourou.protocol.wire.json_bodies import Buffer, Shape, choice, malformed, shape_decoder

_encode = msgspec.json.Encoder().encode


class SubscriptionShape(Shape, kw_only=True):
    """RocketMQ's SubscriptionData."""

    class_filter_mode: bool | None = False
    code_set: list[Int64] | None = None
    expression_type: str | None = TAG
    sub_string: str | None = MATCH_ALL
    sub_version: Int64 | None = 0
    tags_set: list[str] | None = None
    topic: str

    def model(self) -> Subscription:
        """As a value of kourou.model; the sender's codes are not checked against the tags."""
        return Subscription(
            topic=self.topic,
            expression=self.sub_string or MATCH_ALL,
            expression_type=self.expression_type or TAG,
            tags=frozenset(self.tags_set or ()),
            codes=frozenset(self.code_set or ()),
            version=self.sub_version or 0,
            class_filter_mode=bool(self.class_filter_mode),
        )


def subscription_shape(subscription: Subscription) -> SubscriptionShape:
    """The JSON form of a subscription; sets are sorted, so that equal ones have equal bytes."""
    return SubscriptionShape(
        class_filter_mode=subscription.class_filter_mode,
        code_set=sorted(subscription.codes),
        expression_type=subscription.expression_type,
        sub_string=subscription.expression,
        sub_version=subscription.version,
        tags_set=sorted(subscription.tags),
        topic=subscription.topic,
    )


# -- enums in every spelling ----------------------------------------------------------------------

_CONSUME_TYPES = (ConsumeType.CONSUME_ACTIVELY, ConsumeType.CONSUME_PASSIVELY)
_MESSAGE_MODELS = (MessageModel.BROADCASTING, MessageModel.CLUSTERING)
_LAST = ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
_FROM_WHERE = (
    _LAST,
    _LAST,  # CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST
    _LAST,  # CONSUME_FROM_MIN_OFFSET
    _LAST,  # CONSUME_FROM_MAX_OFFSET
    ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
    ConsumeFromWhere.CONSUME_FROM_TIMESTAMP,
)
_DEPRECATED_FROM_WHERE = {
    "CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST": _LAST,
    "CONSUME_FROM_MIN_OFFSET": _LAST,
    "CONSUME_FROM_MAX_OFFSET": _LAST,
}
"""Clients still send these names and treat all as CONSUME_FROM_LAST_OFFSET."""

_POP = {"CONSUME_POP": ConsumeType.CONSUME_PASSIVELY}
"""A 5.x pop consumer counts as a passive one."""


def consume_type(given: str | int | None) -> ConsumeType:
    """How a group consumes. Raises ValueError if unknown."""
    if given is None:
        return ConsumeType.CONSUME_PASSIVELY
    return choice(ConsumeType, given, _CONSUME_TYPES, _POP)


def message_model(given: str | int | None) -> MessageModel:
    """Clustering or broadcasting. Raises ValueError if unknown."""
    return (
        MessageModel.CLUSTERING if given is None else choice(MessageModel, given, _MESSAGE_MODELS)
    )


def consume_from_where(given: str | int | None) -> ConsumeFromWhere:
    """Where a group without stored offsets starts. Raises ValueError if unknown."""
    if given is None:
        return _LAST
    return choice(ConsumeFromWhere, given, _FROM_WHERE, _DEPRECATED_FROM_WHERE)


# -- heartbeat ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ConsumerData:
    """One consumer group in a client's heartbeat."""

    group: str
    consume_type: ConsumeType = ConsumeType.CONSUME_PASSIVELY
    message_model: MessageModel = MessageModel.CLUSTERING
    consume_from_where: ConsumeFromWhere = ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
    subscriptions: tuple[Subscription, ...] = ()
    unit_mode: bool = False


@dataclass(frozen=True, slots=True)
class HeartbeatBody:
    """The content of a heartbeat: client ID, producer groups and consumer groups."""

    client_id: str
    producer_groups: tuple[str, ...] = ()
    consumers: tuple[ConsumerData, ...] = ()


class _ProducerShape(Shape, kw_only=True):
    group_name: str


class _ConsumerShape(Shape, kw_only=True):
    consume_from_where: str | int | None = None
    consume_type: str | int | None = None
    group_name: str
    message_model: str | int | None = None
    subscription_data_set: list[SubscriptionShape] | None = None
    unit_mode: bool | None = False


class _HeartbeatShape(Shape, kw_only=True):
    client_id: str = msgspec.field(name="clientID")
    consumer_data_set: list[_ConsumerShape] | None = None
    producer_data_set: list[_ProducerShape] | None = None


_decode_heartbeat = shape_decoder(_HeartbeatShape, "heartbeat")


def decode_heartbeat(body: Buffer) -> HeartbeatBody:
    """The body of HEART_BEAT (34)."""
    if len(body) > HEARTBEAT_BYTES_MAX:
        raise malformed("heartbeat", f"it has over {HEARTBEAT_BYTES_MAX} bytes")
    shape = _decode_heartbeat(body)
    producers = shape.producer_data_set or []
    consumers = shape.consumer_data_set or []
    _check_count("groups", len(producers) + len(consumers), CLIENT_GROUPS_MAX)
    return HeartbeatBody(
        shape.client_id,
        tuple(producer.group_name for producer in producers),
        tuple(_consumer_data(consumer) for consumer in consumers),
    )


def _consumer_data(shape: _ConsumerShape) -> ConsumerData:
    subscriptions = shape.subscription_data_set or []
    _check_count("subscriptions", len(subscriptions), GROUP_SUBSCRIPTIONS_MAX)
    try:
        return ConsumerData(
            shape.group_name,
            consume_type(shape.consume_type),
            message_model(shape.message_model),
            consume_from_where(shape.consume_from_where),
            tuple(subscription.model() for subscription in subscriptions),
            bool(shape.unit_mode),
        )
    except ValueError as error:
        raise malformed("heartbeat", error) from error


def _check_count(what: str, count: int, most: int) -> None:
    if count > most:
        raise malformed("heartbeat", f"it names {count} {what}; at most {most} are allowed")


def encode_heartbeat(heartbeat: HeartbeatBody) -> bytes:
    """The body for these values."""
    return _encode(
        _HeartbeatShape(
            client_id=heartbeat.client_id,
            consumer_data_set=[
                _ConsumerShape(
                    consume_from_where=consumer.consume_from_where.value,
                    consume_type=consumer.consume_type.value,
                    group_name=consumer.group,
                    message_model=consumer.message_model.value,
                    subscription_data_set=[
                        subscription_shape(each) for each in consumer.subscriptions
                    ],
                    unit_mode=consumer.unit_mode,
                )
                for consumer in heartbeat.consumers
            ],
            producer_data_set=[
                _ProducerShape(group_name=group) for group in heartbeat.producer_groups
            ],
        )
    )


# -- subscription check ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SubscriptionCheck:
    """A consumer's request, before it starts, whether the broker accepts its subscription."""

    client_id: str
    group: str
    subscription: Subscription


class _CheckShape(Shape, kw_only=True):
    client_id: str
    group: str
    subscription_data: SubscriptionShape


_decode_check = shape_decoder(_CheckShape, "subscription check")


def decode_subscription_check(body: Buffer) -> SubscriptionCheck:
    """The body of CHECK_CLIENT_CONFIG (46)."""
    shape = _decode_check(body)
    return SubscriptionCheck(shape.client_id, shape.group, shape.subscription_data.model())


def encode_subscription_check(check: SubscriptionCheck) -> bytes:
    """The body for these values."""
    return _encode(
        _CheckShape(
            client_id=check.client_id,
            group=check.group,
            subscription_data=subscription_shape(check.subscription),
        )
    )
