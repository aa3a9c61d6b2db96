"""JSON bodies of consumers' status, and of units of one queue.

Codes 221, 223, 307, 309, 321, and the message that a broker stores when it corrected a group's
offset.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from kourou.model.subscription import Subscription
from kourou.model.topic import MessageQueue
from kourou.protocol.bodies.heartbeat_body import SubscriptionShape, subscription_shape
from kourou.protocol.request import Int32, Int64
from kourou.protocol.wire import lenient_json
from kourou.protocol.wire.json_bodies import (
    Buffer,
    QueueShape,
    Shape,
    convert,
    items,
    keyed,
    members,
    queue_map,
    queue_shape,
    read,
    reply_decoder,
    submap,
)

_encode = msgspec.json.Encoder().encode


# -- offsets of a group's consumers ---------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ConsumerStatus:
    """Offsets by queue of the consumer that replies, or of each queried consumer by client ID."""

    queues: dict[MessageQueue, int] = field(default_factory=dict)
    members: dict[str, dict[MessageQueue, int]] = field(default_factory=dict)


_STATUS = "consumer status"


def decode_consumer_status(body: Buffer) -> ConsumerStatus:
    """The reply body of 221 (from a consumer) and 223 (from a broker)."""
    top = members(read(body, _STATUS), _STATUS)
    by_client = submap(top, "consumerTable", _STATUS)
    return ConsumerStatus(
        _offsets(submap(top, "messageQueueTable", _STATUS)),
        {str(client): _offsets(members(each, _STATUS)) for client, each in by_client.items()},
    )


def _offsets(table: Mapping[Any, Any]) -> dict[MessageQueue, int]:
    return queue_map(table, Int64, _STATUS)


def encode_consumer_status(status: ConsumerStatus) -> bytes:
    """The body for these values."""
    return lenient_json.dumps(
        {
            "consumerTable": {client: keyed(each) for client, each in status.members.items()},
            "messageQueueTable": keyed(status.queues),
        }
    )


# -- one consumer ---------------------------------------------------------------------------------


class ProcessQueueInfo(msgspec.Struct, rename="camel", kw_only=True, frozen=True):
    """A consumer's state of one queue. `droped` is RocketMQ's spelling; times are epoch ms."""

    cached_msg_count: Int32 = 0
    cached_msg_max_offset: Int64 = 0
    cached_msg_min_offset: Int64 = 0
    cached_msg_size_in_mi_b: Int32 = msgspec.field(default=0, name="cachedMsgSizeInMiB")
    commit_offset: Int64 = 0
    droped: bool = False
    last_consume_timestamp: Int64 = 0
    last_lock_timestamp: Int64 = 0
    last_pull_timestamp: Int64 = 0
    locked: bool = False
    transaction_msg_count: Int32 = 0
    transaction_msg_max_offset: Int64 = 0
    transaction_msg_min_offset: Int64 = 0
    try_unlock_times: Int64 = 0


class ConsumeStatus(msgspec.Struct, kw_only=True, frozen=True):
    """Rates of one topic: messages per second, ms per message, failures in the last hour."""

    consume_failed_msgs: Int64 = msgspec.field(default=0, name="consumeFailedMsgs")
    consume_failed_tps: float = msgspec.field(default=0.0, name="consumeFailedTPS")
    consume_ok_tps: float = msgspec.field(default=0.0, name="consumeOKTPS")
    consume_rt: float = msgspec.field(default=0.0, name="consumeRT")
    pull_rt: float = msgspec.field(default=0.0, name="pullRT")
    pull_tps: float = msgspec.field(default=0.0, name="pullTPS")


@dataclass(frozen=True, slots=True)
class ConsumerRunningInfo:
    """A consumer's settings (`PROP_…`), subscriptions, queues and rates by topic."""

    properties: dict[str, str] = field(default_factory=dict)
    subscriptions: tuple[Subscription, ...] = ()
    queues: dict[MessageQueue, ProcessQueueInfo] = field(default_factory=dict)
    rates: dict[str, ConsumeStatus] = field(default_factory=dict)
    jstack: str | None = None


_RUNNING = "consumer running info"


def decode_consumer_running_info(body: Buffer) -> ConsumerRunningInfo:
    """The reply body of GET_CONSUMER_RUNNING_INFO (307)."""
    top = members(read(body, _RUNNING), _RUNNING)
    properties = convert(submap(top, "properties", _RUNNING), dict[str, str | None], _RUNNING)
    wanted = convert(items(top, "subscriptionSet", _RUNNING), list[SubscriptionShape], _RUNNING)
    return ConsumerRunningInfo(
        {name: value for name, value in properties.items() if value is not None},
        tuple(each.model() for each in wanted),
        queue_map(submap(top, "mqTable", _RUNNING), ProcessQueueInfo, _RUNNING),
        convert(submap(top, "statusTable", _RUNNING), dict[str, ConsumeStatus], _RUNNING),
        convert(top.get("jstack"), str | None, _RUNNING),  # type: ignore[arg-type]  # a union is a type to msgspec
    )


def encode_consumer_running_info(info: ConsumerRunningInfo) -> bytes:
    """The body for these values."""
    value: dict[str, Any] = {
        "mqTable": keyed(info.queues),
        "properties": info.properties,
        "statusTable": info.rates,
        "subscriptionSet": [subscription_shape(each) for each in info.subscriptions],
    }
    if info.jstack is not None:
        value["jstack"] = info.jstack
    return lenient_json.dumps(value)


class DirectResult(msgspec.Struct, rename="camel", kw_only=True, frozen=True):
    """The result of one message consumed on demand; `consume_result` is `CR_SUCCESS` or similar."""

    auto_commit: bool = True
    consume_result: str | None = None
    order: bool = False
    remark: str | None = None
    spent_time_mills: Int64 = 0


_decode_direct = reply_decoder(DirectResult, "result of a direct consumption")


def decode_direct_result(body: Buffer) -> DirectResult:
    """The reply body of CONSUME_MESSAGE_DIRECTLY (309)."""
    return _decode_direct(body)


def encode_direct_result(result: DirectResult) -> bytes:
    """The body for these values."""
    return _encode(_without_nulls(result))


# -- units of one queue -------------------------------------------------------------------------


class QueueUnit(msgspec.Struct, rename="camel", kw_only=True, frozen=True):
    """One unit of a queue, and whether the requested group would get its message."""

    bit_map: str | None = None
    eval: bool = True
    extend_data_json: str | None = None
    msg: str | None = None
    physic_offset: Int64
    physic_size: Int32
    tags_code: Int64 = 0


@dataclass(frozen=True, slots=True)
class QueueLook:
    """Some units of a queue, its bounds, and the subscription they were matched against."""

    units: tuple[QueueUnit, ...]
    min_index: int
    max_index: int
    subscription: Subscription | None = None
    filter_data: str | None = None


class _QueueLookShape(Shape, kw_only=True):
    filter_data: str | UnsetType | None = UNSET
    max_queue_index: Int64 = 0
    min_queue_index: Int64 = 0
    queue_data: list[QueueUnit] | None = None
    subscription_data: SubscriptionShape | UnsetType | None = UNSET


_decode_queue_look = reply_decoder(_QueueLookShape, "look into a queue")


def decode_queue_look(body: Buffer) -> QueueLook:
    """The reply body of QUERY_CONSUME_QUEUE (321)."""
    shape = _decode_queue_look(body)
    wanted, filter_data = shape.subscription_data, shape.filter_data
    return QueueLook(
        tuple(shape.queue_data or ()),
        shape.min_queue_index,
        shape.max_queue_index,
        wanted.model() if isinstance(wanted, SubscriptionShape) else None,
        None if filter_data is UNSET else filter_data,
    )


def encode_queue_look(look: QueueLook) -> bytes:
    """The body for these values."""
    value: dict[str, Any] = {
        "maxQueueIndex": look.max_index,
        "minQueueIndex": look.min_index,
        "queueData": [_without_nulls(unit) for unit in look.units],
    }
    if look.filter_data is not None:
        value["filterData"] = look.filter_data
    if look.subscription is not None:
        value["subscriptionData"] = subscription_shape(look.subscription)
    return _encode(value)


def _without_nulls(struct: msgspec.Struct) -> dict[str, Any]:
    given = msgspec.to_builtins(struct)
    return {name: value for name, value in given.items() if value is not None}


# -- a group's offset was corrected ---------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class OffsetMoved:
    """A pull requested an offset outside the queue, and got another one instead."""

    group: str
    queue: MessageQueue
    offset_request: int
    offset_new: int


class _OffsetMovedShape(Shape, kw_only=True):
    consumer_group: str
    message_queue: QueueShape
    offset_new: Int64
    offset_request: Int64


_decode_moved = reply_decoder(_OffsetMovedShape, "offset-moved event")


def decode_offset_moved(body: Buffer) -> OffsetMoved:
    """The body of a message of topic OFFSET_MOVED_EVENT."""
    shape = _decode_moved(body)
    return OffsetMoved(
        shape.consumer_group, shape.message_queue.model(), shape.offset_request, shape.offset_new
    )


def encode_offset_moved(moved: OffsetMoved) -> bytes:
    """The body for these values."""
    return _encode(
        _OffsetMovedShape(
            consumer_group=moved.group,
            message_queue=queue_shape(moved.queue),
            offset_new=moved.offset_new,
            offset_request=moved.offset_request,
        )
    )
