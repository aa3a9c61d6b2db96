"""JSON bodies of configuration: versions, topics, consumer groups, progress."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from kourou.model.subscription import GroupConfig
from kourou.model.topic import DataVersion, TopicConfig
from kourou.protocol.request import Int32, Int64
from kourou.protocol.wire.json_bodies import (
    Buffer,
    QueueIdText,
    Shape,
    malformed,
    reply_decoder,
    same_fields,
    shape_decoder,
)

_encode = msgspec.json.Encoder().encode


# -- versions -------------------------------------------------------------------------------------


class DataVersionShape(Shape, kw_only=True):
    """RocketMQ's DataVersion; 5.x adds a state version, which is ignored."""

    counter: Int64 | None = 0
    timestamp: Int64 | None = 0

    def model(self) -> DataVersion:
        """As a value of kourou.model."""
        return DataVersion(self.timestamp or 0, self.counter or 0)


_decode_version = shape_decoder(DataVersionShape, "data version")


def decode_data_version(body: Buffer) -> DataVersion:
    """The body of QUERY_DATA_VERSION (322), of the request and of the reply."""
    return _decode_version(body).model()


def encode_data_version(version: DataVersion) -> bytes:
    """The body for these values."""
    return _encode(same_fields(version, DataVersionShape))


# -- topics ---------------------------------------------------------------------------------------


class TopicConfigShape(Shape, kw_only=True):
    """RocketMQ's TopicConfig."""

    order: bool | None = False
    perm: Int32 = 6
    read_queue_nums: Int32 = 16
    topic_filter_type: str | None = "SINGLE_TAG"
    name: str = msgspec.field(name="topicName")
    topic_sys_flag: Int32 | None = 0
    write_queue_nums: Int32 = 16

    def model(self) -> TopicConfig:
        """As a value of kourou.model."""
        return TopicConfig(
            self.name,
            self.read_queue_nums,
            self.write_queue_nums,
            self.perm,
            self.topic_filter_type or "SINGLE_TAG",
            self.topic_sys_flag or 0,
            bool(self.order),
        )


class TopicConfigsShape(Shape, kw_only=True):
    """RocketMQ's TopicConfigSerializeWrapper."""

    data_version: DataVersionShape | None = None
    topic_config_table: dict[str, TopicConfigShape] | None = None

    def model(self) -> tuple[list[TopicConfig], DataVersion]:
        """As values of kourou.model."""
        topics = [topic.model() for topic in (self.topic_config_table or {}).values()]
        return topics, DataVersion() if self.data_version is None else self.data_version.model()


def topics_shape(topics: Iterable[TopicConfig], version: DataVersion) -> TopicConfigsShape:
    """The JSON form of a table of topics."""
    return TopicConfigsShape(
        data_version=same_fields(version, DataVersionShape),
        topic_config_table={topic.name: same_fields(topic, TopicConfigShape) for topic in topics},
    )


_decode_topics = reply_decoder(TopicConfigsShape, "table of topics")


def decode_topic_configs(body: Buffer) -> tuple[list[TopicConfig], DataVersion]:
    """The reply body of GET_ALL_TOPIC_CONFIG (21)."""
    return _decode_topics(body).model()


def encode_topic_configs(topics: Iterable[TopicConfig], version: DataVersion) -> bytes:
    """The body for these values."""
    return _encode(topics_shape(topics, version))


# -- consumer groups ------------------------------------------------------------------------------


class _GroupConfigShape(Shape, kw_only=True):
    broker_id: Int64 = 0
    consume_broadcast_enable: bool = True
    consume_enable: bool = True
    consume_from_min_enable: bool = True
    name: str = msgspec.field(name="groupName")
    notify_consumer_ids_changed_enable: bool = True
    retry_max_times: Int32 = 16
    retry_queue_nums: Int32 = 1
    which_broker_when_consume_slowly: Int64 = 1


class _GroupConfigsShape(Shape, kw_only=True):
    data_version: DataVersionShape | None = None
    subscription_group_table: dict[str, _GroupConfigShape] | None = None


_decode_group = shape_decoder(_GroupConfigShape, "consumer group configuration")
_decode_groups = reply_decoder(_GroupConfigsShape, "table of consumer groups")


def decode_group_config(body: Buffer) -> GroupConfig:
    """The body of UPDATE_AND_CREATE_SUBSCRIPTIONGROUP (200)."""
    return same_fields(_decode_group(body), GroupConfig)


def encode_group_config(group: GroupConfig) -> bytes:
    """The body for these values."""
    return _encode(same_fields(group, _GroupConfigShape))


def decode_group_configs(body: Buffer) -> tuple[list[GroupConfig], DataVersion]:
    """The reply body of GET_ALL_SUBSCRIPTIONGROUP_CONFIG (201)."""
    shape = _decode_groups(body)
    table = shape.subscription_group_table or {}
    groups = [same_fields(group, GroupConfig) for group in table.values()]
    return groups, DataVersion() if shape.data_version is None else shape.data_version.model()


def encode_group_configs(groups: Iterable[GroupConfig], version: DataVersion) -> bytes:
    """The body for these values."""
    return _encode(
        _GroupConfigsShape(
            data_version=same_fields(version, DataVersionShape),
            subscription_group_table={
                group.name: same_fields(group, _GroupConfigShape) for group in groups
            },
        )
    )


# -- progress -------------------------------------------------------------------------------------

Progress = tuple[str, str, Mapping[int, int]]
"""(group, topic, queue ID -> offset)."""


class _ConsumerOffsetsShape(Shape, kw_only=True):
    offset_table: dict[str, dict[QueueIdText, Int64]] | None = None


class _DelayOffsetsShape(Shape, kw_only=True):
    offset_table: dict[QueueIdText, Int64] | None = None


_decode_consumer_offsets = reply_decoder(_ConsumerOffsetsShape, "table of consumer offsets")
_decode_delay_offsets = reply_decoder(_DelayOffsetsShape, "table of delay offsets")


def decode_consumer_offsets(body: Buffer) -> list[tuple[str, str, dict[int, int]]]:
    """The reply body of GET_ALL_CONSUMER_OFFSET (43)."""
    table = _decode_consumer_offsets(body).offset_table or {}
    progress = []
    for name, offsets in table.items():
        topic, at, group = name.partition("@")
        if not (topic and at and group):
            raise malformed("table of consumer offsets", f"{name!r} is not topic@group")
        progress.append((group, topic, _by_number(offsets)))
    return progress


def encode_consumer_offsets(progress: Iterable[Progress]) -> bytes:
    """The body for these values."""
    return _encode(
        _ConsumerOffsetsShape(
            offset_table={
                f"{topic}@{group}": {str(queue): offset for queue, offset in offsets.items()}
                for group, topic, offsets in progress
            }
        )
    )


def decode_delay_offsets(body: Buffer) -> dict[int, int]:
    """The reply body of GET_ALL_DELAY_OFFSET (45): delay level -> next offset of its queue."""
    return _by_number(_decode_delay_offsets(body).offset_table or {})


def encode_delay_offsets(offsets: Mapping[int, int]) -> bytes:
    """The body for these values."""
    return _encode(
        _DelayOffsetsShape(offset_table={str(level): index for level, index in offsets.items()})
    )


def _by_number(offsets: Mapping[str, int]) -> dict[int, int]:
    return {int(number): offset for number, offset in offsets.items()}
