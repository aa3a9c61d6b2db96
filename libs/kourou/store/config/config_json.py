"""The tables that RocketMQ keeps as JSON, in exactly the bytes it writes.

RocketMQ's library prints objects with tabs and one member a line, with fields in alphabetical
order. A map with integer keys is printed differently: all members follow the opening brace, and the
closing brace is on a line of its own:

    {
    \t"offsetTable":{
    \t\t"TopicA@group":{0:4,1:3
    \t\t}
    \t}
    }

Maps keep their insertion order; RocketMQ's order is that of its hash table, and no reader depends
on it. Fields that RocketMQ 5 adds to these tables are ignored, and lost when they are written
again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import msgspec

from kourou.errors import DecodeError
from kourou.model.subscription import GroupConfig
from kourou.model.topic import DataVersion, Permission, TopicConfig
from kourou.protocol.wire.lenient_json import loads

Offsets = dict[str, dict[int, int]]
"""`topic@group` -> queue ID -> offset: the progress of each group."""

T = TypeVar("T")

_encode_text = msgspec.json.Encoder().encode


_NO_VERSION = DataVersion()


@dataclass(slots=True)
class TopicTable:
    """topics.json."""

    topics: dict[str, TopicConfig] = field(default_factory=dict)
    version: DataVersion = _NO_VERSION


@dataclass(slots=True)
class GroupTable:
    """subscriptionGroup.json."""

    groups: dict[str, GroupConfig] = field(default_factory=dict)
    version: DataVersion = _NO_VERSION


def progress_key(topic: str, group: str) -> str:
    """The key of a group's progress in a topic in consumerOffset.json."""
    return f"{topic}@{group}"


def split_progress_key(key: str) -> tuple[str, str] | None:
    """(topic, group) of a key of consumerOffset.json; None if it does not consist of two names."""
    topic, separator, group = key.partition("@")
    return (topic, group) if topic and separator and group and "@" not in group else None


# -- writing --------------------------------------------------------------------------------------


def pretty(value: Mapping[str, Any]) -> bytes:
    """An object of objects, integers, strings and booleans, as RocketMQ's library prints it."""
    return _text(value, 0).encode()


def _text(value: Any, depth: int) -> str:
    if isinstance(value, Mapping):
        if not value:
            return "{}"
        end = "\n" + "\t" * depth + "}"
        inner = depth + 1
        if isinstance(next(iter(value)), int):
            return "{" + ",".join(f"{k}:{_text(v, inner)}" for k, v in value.items()) + end
        line = "\n" + "\t" * inner
        members = (f"{line}{_text(k, 0)}:{_text(v, inner)}" for k, v in value.items())
        return "{" + ",".join(members) + end
    if value is True or value is False:
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    assert isinstance(value, str), value
    return _encode_text(value).decode()


def _version(version: DataVersion) -> dict[str, int]:
    return {"counter": version.counter, "timestamp": version.timestamp}


def encode_topics(table: TopicTable) -> bytes:
    """The bytes of topics.json."""
    topics = {
        name: {
            "order": topic.order,
            "perm": topic.perm,
            "readQueueNums": topic.read_queue_nums,
            "topicFilterType": topic.topic_filter_type,
            "topicName": name,
            "topicSysFlag": topic.topic_sys_flag,
            "writeQueueNums": topic.write_queue_nums,
        }
        for name, topic in table.topics.items()
    }
    return pretty({"dataVersion": _version(table.version), "topicConfigTable": topics})


def encode_groups(table: GroupTable) -> bytes:
    """The bytes of subscriptionGroup.json."""
    groups = {
        name: {
            "brokerId": group.broker_id,
            "consumeBroadcastEnable": group.consume_broadcast_enable,
            "consumeEnable": group.consume_enable,
            "consumeFromMinEnable": group.consume_from_min_enable,
            "groupName": name,
            "notifyConsumerIdsChangedEnable": group.notify_consumer_ids_changed_enable,
            "retryMaxTimes": group.retry_max_times,
            "retryQueueNums": group.retry_queue_nums,
            "whichBrokerWhenConsumeSlowly": group.which_broker_when_consume_slowly,
        }
        for name, group in table.groups.items()
    }
    return pretty({"dataVersion": _version(table.version), "subscriptionGroupTable": groups})


def encode_offsets(offsets: Offsets) -> bytes:
    """The bytes of consumerOffset.json."""
    return pretty({"offsetTable": offsets})


def encode_delays(offsets: dict[int, int]) -> bytes:
    """The bytes of delayOffset.json: delay level -> the next offset of that level's queue."""
    return pretty({"offsetTable": offsets})


# -- reading --------------------------------------------------------------------------------------


class _Version(msgspec.Struct):
    counter: int = 0
    timestamp: int = 0


class _Topic(msgspec.Struct, rename="camel"):
    """The fields of TopicConfig, except the name."""

    order: bool = False
    perm: int = int(Permission.READ_WRITE)
    read_queue_nums: int = 16
    topic_filter_type: str = "SINGLE_TAG"
    topic_sys_flag: int = 0
    write_queue_nums: int = 16


class _Topics(msgspec.Struct, rename="camel"):
    data_version: _Version = msgspec.field(default_factory=_Version)
    topic_config_table: dict[str, _Topic] = {}


class _Group(msgspec.Struct, rename="camel"):
    """The fields of GroupConfig, except the name."""

    broker_id: int = 0
    consume_broadcast_enable: bool = True
    consume_enable: bool = True
    consume_from_min_enable: bool = True
    notify_consumer_ids_changed_enable: bool = True
    retry_max_times: int = 16
    retry_queue_nums: int = 1
    which_broker_when_consume_slowly: int = 1


class _Groups(msgspec.Struct, rename="camel"):
    data_version: _Version = msgspec.field(default_factory=_Version)
    subscription_group_table: dict[str, _Group] = {}


class _Progress(msgspec.Struct, rename="camel"):
    offset_table: dict[str, dict[int, int]] = {}


class _Delays(msgspec.Struct, rename="camel"):
    offset_table: dict[int, int] = {}


def _decode(data: bytes, shape: type[T]) -> T:
    try:
        return msgspec.convert(loads(data), shape, strict=False)
    except msgspec.ValidationError as error:
        raise DecodeError(f"not a table of this kind: {error}") from error


def decode_topics(data: bytes) -> TopicTable:
    """The table in topics.json. Raises DecodeError if the data is not one."""
    table = _decode(data, _Topics)
    topics = {
        name: TopicConfig(name=name, **msgspec.structs.asdict(topic))
        for name, topic in table.topic_config_table.items()
    }
    version = table.data_version
    return TopicTable(topics, DataVersion(version.timestamp, version.counter))


def decode_groups(data: bytes) -> GroupTable:
    """The table in subscriptionGroup.json. Raises DecodeError if the data is not one."""
    table = _decode(data, _Groups)
    groups = {
        name: GroupConfig(name=name, **msgspec.structs.asdict(group))
        for name, group in table.subscription_group_table.items()
    }
    version = table.data_version
    return GroupTable(groups, DataVersion(version.timestamp, version.counter))


def decode_offsets(data: bytes) -> Offsets:
    """The table in consumerOffset.json. Raises DecodeError if the data is not one."""
    return _decode(data, _Progress).offset_table


def decode_delays(data: bytes) -> dict[int, int]:
    """The table in delayOffset.json. Raises DecodeError if the data is not one."""
    return _decode(data, _Delays).offset_table
