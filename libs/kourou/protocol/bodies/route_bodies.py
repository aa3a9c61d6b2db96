"""JSON bodies of the name server: routes, clusters, topic lists, key/value tables."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import msgspec
from msgspec import UNSET, UnsetType

from kourou.model.topic import BrokerData, QueueData, TopicRoute
from kourou.protocol.request import Int32
from kourou.protocol.wire.json_bodies import (
    BrokerIdText,
    Buffer,
    Shape,
    reply_decoder,
    same_fields,
)

_encode = msgspec.json.Encoder().encode


class _BrokerShape(Shape, kw_only=True):
    broker_addrs: dict[BrokerIdText, str] | None = None
    broker_name: str
    cluster: str | None = None

    def model(self) -> BrokerData:
        addresses = {int(number): addr for number, addr in (self.broker_addrs or {}).items()}
        return BrokerData(self.cluster or "", self.broker_name, addresses)


class _QueueDataShape(Shape, kw_only=True):
    broker_name: str
    perm: Int32
    read_queue_nums: Int32
    topic_sys_flag: Int32 | UnsetType = UNSET
    topic_syn_flag: Int32 | UnsetType = UNSET  # the misspelled name, up to 4.8
    write_queue_nums: Int32

    def model(self) -> QueueData:
        flag = self.topic_syn_flag if self.topic_sys_flag is UNSET else self.topic_sys_flag
        return QueueData(
            self.broker_name,
            self.read_queue_nums,
            self.write_queue_nums,
            self.perm,
            0 if flag is UNSET else flag,
        )


class _RouteShape(Shape, kw_only=True):
    broker_datas: list[_BrokerShape] | None = None
    filter_server_table: dict[str, list[str]] | None = None
    order_topic_conf: str | UnsetType | None = UNSET
    queue_datas: list[_QueueDataShape] | None = None


_decode_route = reply_decoder(_RouteShape, "topic route")


def decode_topic_route(body: Buffer) -> TopicRoute:
    """The route of GET_ROUTEINFO_BY_TOPIC (105)."""
    shape = _decode_route(body)
    conf = shape.order_topic_conf
    return TopicRoute(
        tuple(broker.model() for broker in shape.broker_datas or ()),
        tuple(queue.model() for queue in shape.queue_datas or ()),
        {addr: tuple(found) for addr, found in (shape.filter_server_table or {}).items()},
        None if conf is UNSET else conf,
    )


def encode_topic_route(route: TopicRoute, *, strict: bool = True) -> bytes:
    """The body for this route; broker IDs are bare numbers unless it must be standard JSON."""
    conf = route.order_topic_conf
    body = _encode(
        _RouteShape(
            broker_datas=[_broker_shape(broker) for broker in route.broker_datas],
            filter_server_table={
                addr: list(found) for addr, found in route.filter_server_table.items()
            },
            order_topic_conf=UNSET if conf is None else conf,
            queue_datas=[same_fields(queue, _QueueDataShape) for queue in route.queue_datas],
        )
    )
    return body if strict else _QUOTED_IDS.sub(_bare_ids, body)


_QUOTED_IDS = re.compile(rb'"brokerAddrs":\{[^}]*\}')
_QUOTED_ID = re.compile(rb'([{,])"([0-9]+)":')


def _bare_ids(found: re.Match[bytes]) -> bytes:
    return _QUOTED_ID.sub(rb"\1\2:", found.group())


def _broker_shape(broker: BrokerData) -> _BrokerShape:
    return _BrokerShape(
        broker_addrs={str(number): addr for number, addr in broker.broker_addrs.items()},
        broker_name=broker.broker_name,
        cluster=broker.cluster,
    )


# -- all clusters ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ClusterInfo:
    """Every broker by its name, and the broker names of every cluster."""

    brokers: dict[str, BrokerData] = field(default_factory=dict)
    clusters: dict[str, tuple[str, ...]] = field(default_factory=dict)


class _ClusterShape(Shape, kw_only=True):
    broker_addr_table: dict[str, _BrokerShape] | None = None
    cluster_addr_table: dict[str, list[str]] | None = None


_decode_cluster = reply_decoder(_ClusterShape, "cluster info")


def decode_cluster_info(body: Buffer) -> ClusterInfo:
    """The reply body of GET_BROKER_CLUSTER_INFO (106)."""
    shape = _decode_cluster(body)
    return ClusterInfo(
        {name: broker.model() for name, broker in (shape.broker_addr_table or {}).items()},
        {name: tuple(found) for name, found in (shape.cluster_addr_table or {}).items()},
    )


def encode_cluster_info(info: ClusterInfo) -> bytes:
    """The body for these values."""
    return _encode(
        _ClusterShape(
            broker_addr_table={name: _broker_shape(each) for name, each in info.brokers.items()},
            cluster_addr_table={name: list(each) for name, each in info.clusters.items()},
        )
    )


# -- lists and tables -----------------------------------------------------------------------------


class _TopicListShape(Shape, kw_only=True):
    broker_addr: str | UnsetType | None = UNSET
    topic_list: list[str] | None = None


_decode_topic_list = reply_decoder(_TopicListShape, "topic list")


def decode_topic_list(body: Buffer) -> tuple[list[str], str | None]:
    """Topic names, and the address of some broker if the list has one."""
    shape = _decode_topic_list(body)
    addr = shape.broker_addr
    return list(shape.topic_list or ()), None if addr is UNSET else addr


def encode_topic_list(topics: Iterable[str], broker_addr: str | None = None) -> bytes:
    """The body for these values."""
    return _encode(
        _TopicListShape(
            broker_addr=UNSET if broker_addr is None else broker_addr, topic_list=list(topics)
        )
    )


class _KvTableShape(Shape, kw_only=True):
    table: dict[str, str | None] | None = None


_decode_kv_table = reply_decoder(_KvTableShape, "key/value table")


def decode_kv_table(body: Buffer) -> dict[str, str]:
    """A table of texts: one namespace (219), order settings (103), runtime information (28)."""
    table = _decode_kv_table(body).table or {}
    return {key: value for key, value in table.items() if value is not None}


def encode_kv_table(table: Mapping[str, str]) -> bytes:
    """The body for these values."""
    return _encode({"table": dict(table)})
