"""The `config` directory: tables that a RocketMQ broker reads, and may have written.

State: projection of the control events in the log. What another broker wrote cannot be derived from
them; `<root>/kourou/config_hashes.json` detects it.

`consumerFilter.json` and any other file in the directory is never written.

Tables are JSON in exactly the bytes that RocketMQ writes. Its library prints objects with tabs and
one member a line, with fields in alphabetical order. A map with integer keys is printed
differently: all members follow the opening brace, and the closing brace is on a line of its own:

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

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import msgspec

from kourou.engine.filters.filter_table import FiltersSnapshot
from kourou.errors import Corrupt, DecodeError
from kourou.model.limits import CONFIG_FILE_BYTES_MAX, OWN_FILE_BYTES_MAX
from kourou.model.subscription import GroupConfig
from kourou.model.topic import DataVersion, Permission, TopicConfig
from kourou.protocol.wire.lenient_json import loads
from kourou.store.config.durable_files import SharedFiles
from kourou.store.disk import Disk, as_store_error, read_whole, write_atomically
from kourou.store.paths import StorePaths

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


TOPICS = "topics.json"
GROUPS = "subscriptionGroup.json"
OFFSETS = "consumerOffset.json"
DELAYS = "delayOffset.json"

OURS = (TOPICS, GROUPS, OFFSETS)
"""Files whose change is a sign that another broker ran here.

delayOffset.json is not among them: stores created before Kourou wrote it have RocketMQ's.
"""


_HASHES = "config_hashes.json"


@dataclass(frozen=True, slots=True)
class LoadedConfig(Generic[T]):
    """A table as read. `note` describes problems with the file itself, "" if there are none."""

    value: T
    note: str = ""


class ConfigFiles:
    """The tables of one store. Thread-safe."""

    def __init__(self, disk: Disk, paths: StorePaths) -> None:
        self._directory = paths.config
        self._files = SharedFiles(disk, paths.config, paths.kourou / _HASHES, CONFIG_FILE_BYTES_MAX)

    # -- the tables -------------------------------------------------------------------------------

    def load_topics(self) -> LoadedConfig[TopicTable] | None:
        """The topics; None if there is no file. Raises Corrupt if neither it nor its backup is
        readable.
        """
        return self._load(TOPICS, decode_topics)

    def save_topics(self, table: TopicTable) -> bool:
        """Write the topics; False if the file already has them. Raises OSError if writing fails."""
        return self._files.save(TOPICS, encode_topics(table), decode_topics)

    def load_groups(self) -> LoadedConfig[GroupTable] | None:
        """The consumer groups; see `load_topics`."""
        return self._load(GROUPS, decode_groups)

    def save_groups(self, table: GroupTable) -> bool:
        """Write the consumer groups; see `save_topics`."""
        return self._files.save(GROUPS, encode_groups(table), decode_groups)

    def load_offsets(self) -> LoadedConfig[Offsets] | None:
        """The progress of consumer groups; see `load_topics`."""
        return self._load(OFFSETS, decode_offsets)

    def save_offsets(self, offsets: Offsets) -> bool:
        """Write the progress of consumer groups; see `save_topics`."""
        return self._files.save(OFFSETS, encode_offsets(offsets), decode_offsets)

    def load_delays(self) -> LoadedConfig[dict[int, int]] | None:
        """The progress of the delay levels; see `load_topics`."""
        return self._load(DELAYS, decode_delays)

    def save_delays(self, offsets: dict[int, int]) -> bool:
        """Write the progress of the delay levels; see `save_topics`."""
        return self._files.save(DELAYS, encode_delays(offsets), decode_delays)

    # -- external changes -------------------------------------------------------------------------

    def external_changes(self) -> list[str]:
        """Names of files that another program wrote or removed since this broker wrote them."""
        return self._files.external(OURS)

    def delays_are_external(self) -> bool:
        """True if another program wrote or removed the delay levels' progress since this broker
        wrote it.
        """
        return bool(self._files.external([DELAYS]))

    # -- files ------------------------------------------------------------------------------------

    def _load(self, name: str, decode: Callable[[bytes], T]) -> LoadedConfig[T] | None:
        problems: list[str] = []
        for candidate in (name, name + ".bak"):
            data = self._files.read(candidate)
            if data is None:
                continue
            if not data.strip():
                problems.append(f"{self._directory / candidate} is empty")
                continue
            try:
                return LoadedConfig(decode(data), "; ".join(problems))
            except DecodeError as error:
                problems.append(f"{self._directory / candidate}: {error}")
        if not problems or all(problem.endswith(" is empty") for problem in problems):
            return None
        raise Corrupt(
            "; ".join(problems),
            hint="repair or remove the file; the log and the event store restore its content",
        )


# -- filters --------------------------------------------------------------------------------------

# `<root>/kourou/filters.json` has the filters of consumer groups, in case their events are lost. It
# is read if neither the log nor an event store has them any more. It records up to which event it
# goes, so that events still in the log are applied once.

_FILTERS_FORMAT = 1


class _FiltersFile(msgspec.Struct):
    format: int
    filters: FiltersSnapshot


_ENCODER = msgspec.json.Encoder()
_DECODER = msgspec.json.Decoder(_FiltersFile)


def read_filters(disk: Disk, paths: StorePaths) -> FiltersSnapshot | None:
    """The content of the file; None if there is none. Raises Corrupt if it cannot be read."""
    try:
        data = read_whole(disk, paths.filters, OWN_FILE_BYTES_MAX)
    except OSError as error:
        raise as_store_error(error, f"reading {paths.filters}") from error
    if data is None:
        return None
    try:
        read = _DECODER.decode(data)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise _unreadable(paths, str(error)) from error
    if read.format != _FILTERS_FORMAT:
        raise _unreadable(
            paths, f"it has format {read.format}; this version reads {_FILTERS_FORMAT}"
        )
    return read.filters


def write_filters(disk: Disk, paths: StorePaths, filters: FiltersSnapshot) -> None:
    """Replace the file. Raises OSError if the disk fails."""
    write_atomically(disk, paths.filters, _ENCODER.encode(_FiltersFile(_FILTERS_FORMAT, filters)))


def _unreadable(paths: StorePaths, why: str) -> Corrupt:
    return Corrupt(
        f"{paths.filters}: {why}",
        hint="restore the event store, or remove the file: then the filters are lost, and groups "
        "that use them wait until they are uploaded again",
    )
