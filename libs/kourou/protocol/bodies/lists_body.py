"""JSON bodies that list clients, groups and locked queues."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from kourou.model.limits import LOCK_BYTES_MAX
from kourou.model.subscription import (
    ConsumeFromWhere,
    ConsumeType,
    MessageModel,
    Subscription,
)
from kourou.model.topic import MessageQueue
from kourou.protocol.bodies.heartbeat_body import (
    SubscriptionShape,
    consume_from_where,
    consume_type,
    message_model,
    subscription_shape,
)
from kourou.protocol.request import Int32, Int64
from kourou.protocol.wire.json_bodies import (
    Buffer,
    QueueShape,
    Shape,
    malformed,
    queue_shape,
    reply_decoder,
    same_fields,
    shape_decoder,
)

_encode = msgspec.json.Encoder().encode


# -- ids and names --------------------------------------------------------------------------------


class _ConsumerIdsShape(Shape, kw_only=True):
    consumer_id_list: list[str] | None = None


_decode_consumer_ids = reply_decoder(_ConsumerIdsShape, "list of consumers")


def decode_consumer_ids(body: Buffer) -> list[str]:
    """The client IDs of GET_CONSUMER_LIST_BY_GROUP (38)."""
    return _decode_consumer_ids(body).consumer_id_list or []


def encode_consumer_ids(ids: Iterable[str]) -> bytes:
    """The body for these values."""
    return _encode(_ConsumerIdsShape(consumer_id_list=list(ids)))


class _GroupListShape(Shape, kw_only=True):
    group_list: list[str] | None = None


_decode_group_list = reply_decoder(_GroupListShape, "list of groups")


def decode_group_list(body: Buffer) -> list[str]:
    """The group names of QUERY_TOPIC_CONSUME_BY_WHO (300)."""
    return _decode_group_list(body).group_list or []


def encode_group_list(groups: Iterable[str]) -> bytes:
    """The body for these values."""
    return _encode(_GroupListShape(group_list=list(groups)))


# -- connections ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ClientConnection:
    """One client of a group; `language` is a name of kourou.protocol.wire.remoting.Language."""

    client_id: str
    client_addr: str
    language: str
    version: int


@dataclass(frozen=True, slots=True)
class ConsumerConnection:
    """The consumers of a group, and how and what they consume: topic -> subscription (203)."""

    connections: Sequence[ClientConnection] = ()
    subscriptions: Mapping[str, Subscription] = field(default_factory=dict)
    consume_type: ConsumeType = ConsumeType.CONSUME_PASSIVELY
    message_model: MessageModel = MessageModel.CLUSTERING
    consume_from_where: ConsumeFromWhere = ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET


@dataclass(frozen=True, slots=True)
class ProducerConnection:
    """The producers of a group (204)."""

    connections: Sequence[ClientConnection] = ()


class _ConnectionShape(Shape, kw_only=True):
    client_addr: str
    client_id: str
    language: str | None = None
    version: Int32 = 0

    def model(self) -> ClientConnection:
        return ClientConnection(
            self.client_id, self.client_addr, self.language or "OTHER", self.version
        )


class _ConsumerConnectionShape(Shape, kw_only=True):
    connection_set: list[_ConnectionShape] | None = None
    consume_from_where: str | int | None = None
    consume_type: str | int | None = None
    message_model: str | int | None = None
    subscription_table: dict[str, SubscriptionShape] | None = None


class _ProducerConnectionShape(Shape, kw_only=True):
    connection_set: list[_ConnectionShape] | None = None


_decode_consumers = reply_decoder(_ConsumerConnectionShape, "list of consumer connections")
_decode_producers = reply_decoder(_ProducerConnectionShape, "list of producer connections")


def _connection_shapes(connections: Iterable[ClientConnection]) -> list[_ConnectionShape]:
    return [same_fields(each, _ConnectionShape) for each in connections]


def decode_consumer_connection(body: Buffer) -> ConsumerConnection:
    """The reply body of GET_CONSUMER_CONNECTION_LIST (203)."""
    shape = _decode_consumers(body)
    try:
        return ConsumerConnection(
            [connection.model() for connection in shape.connection_set or ()],
            {topic: each.model() for topic, each in (shape.subscription_table or {}).items()},
            consume_type(shape.consume_type),
            message_model(shape.message_model),
            consume_from_where(shape.consume_from_where),
        )
    except ValueError as error:
        raise malformed("list of consumer connections", error) from error


def encode_consumer_connection(consumers: ConsumerConnection) -> bytes:
    """The body for these values."""
    return _encode(
        _ConsumerConnectionShape(
            connection_set=_connection_shapes(consumers.connections),
            consume_from_where=consumers.consume_from_where.value,
            consume_type=consumers.consume_type.value,
            message_model=consumers.message_model.value,
            subscription_table={
                topic: subscription_shape(each) for topic, each in consumers.subscriptions.items()
            },
        )
    )


def decode_producer_connection(body: Buffer) -> ProducerConnection:
    """The reply body of GET_PRODUCER_CONNECTION_LIST (204)."""
    shape = _decode_producers(body)
    return ProducerConnection([each.model() for each in shape.connection_set or ()])


def encode_producer_connection(producers: ProducerConnection) -> bytes:
    """The body for these values."""
    return _encode(
        _ProducerConnectionShape(connection_set=_connection_shapes(producers.connections))
    )


@dataclass(frozen=True, slots=True)
class ProducerInfo:
    """One producer; the timestamp is epoch ms of its last heartbeat."""

    client_id: str
    remote_ip: str
    language: str
    version: int
    last_update_timestamp: int


class _ProducerInfoShape(Shape, kw_only=True):
    client_id: str
    language: str | None = None
    last_update_timestamp: Int64 = 0
    remote_ip: str = msgspec.field(name="remoteIP")
    version: Int32 = 0


class _ProducerTableShape(Shape, kw_only=True):
    data: dict[str, list[_ProducerInfoShape]] | None = None


_decode_producer_table = reply_decoder(_ProducerTableShape, "table of producers")


def decode_producer_table(body: Buffer) -> dict[str, list[ProducerInfo]]:
    """The reply body of GET_ALL_PRODUCER_INFO (328): group -> its producers."""
    return {
        group: [
            ProducerInfo(
                each.client_id,
                each.remote_ip,
                each.language or "OTHER",
                each.version,
                each.last_update_timestamp,
            )
            for each in producers
        ]
        for group, producers in (_decode_producer_table(body).data or {}).items()
    }


def encode_producer_table(table: Mapping[str, Iterable[ProducerInfo]]) -> bytes:
    """The body for these values."""
    return _encode(
        _ProducerTableShape(
            data={
                group: [same_fields(each, _ProducerInfoShape) for each in producers]
                for group, producers in table.items()
            }
        )
    )


# -- locks ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LockBatch:
    """Queues that a client of a group requests to lock (41) or unlock (42)."""

    group: str
    client_id: str
    queues: tuple[MessageQueue, ...] = ()


class _LockShape(Shape, kw_only=True):
    client_id: str
    consumer_group: str
    mq_set: list[QueueShape] | None = None


class _LockedShape(Shape, kw_only=True):
    locked: list[QueueShape] | None = msgspec.field(default=None, name="lockOKMQSet")


_decode_lock = shape_decoder(_LockShape, "list of queues to lock")
_decode_locked = reply_decoder(_LockedShape, "list of locked queues")


def decode_lock_batch(body: Buffer) -> LockBatch:
    """The body of LOCK_BATCH_MQ (41) and UNLOCK_BATCH_MQ (42)."""
    if len(body) > LOCK_BYTES_MAX:
        raise malformed("list of queues to lock", f"it has over {LOCK_BYTES_MAX} bytes")
    shape = _decode_lock(body)
    queues = tuple(queue.model() for queue in shape.mq_set or ())
    return LockBatch(shape.consumer_group, shape.client_id, queues)


def encode_lock_batch(batch: LockBatch) -> bytes:
    """The body for these values."""
    return _encode(
        _LockShape(
            client_id=batch.client_id,
            consumer_group=batch.group,
            mq_set=[queue_shape(queue) for queue in batch.queues],
        )
    )


def decode_locked_queues(body: Buffer) -> tuple[MessageQueue, ...]:
    """The reply body of LOCK_BATCH_MQ (41): the queues that the client holds now."""
    return tuple(queue.model() for queue in _decode_locked(body).locked or ())


def encode_locked_queues(queues: Iterable[MessageQueue]) -> bytes:
    """The body for these values."""
    return _encode(_LockedShape(locked=[queue_shape(queue) for queue in queues]))
