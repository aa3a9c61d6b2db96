"""JSON bodies of statistics: queues' bounds, groups' progress, counters, and offset resets.

Most of them are maps with queues as keys, for which standard JSON has no form; they are written as
RocketMQ writes them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from kourou.model.topic import MessageQueue
from kourou.protocol.request import Int32, Int64
from kourou.protocol.wire import lenient_json
from kourou.protocol.wire.json_bodies import (
    Buffer,
    QueueIdText,
    QueueShape,
    Shape,
    convert,
    items,
    keyed,
    malformed,
    members,
    queue_map,
    queue_shape,
    read,
    reply_decoder,
    submap,
)

_encode = msgspec.json.Encoder().encode


class TopicOffset(msgspec.Struct, rename="camel", kw_only=True, frozen=True):
    """A queue's bounds and the store time of its last message, epoch ms, 0 for none."""

    last_update_timestamp: Int64 = 0
    max_offset: Int64
    min_offset: Int64


class OffsetWrapper(msgspec.Struct, rename="camel", kw_only=True, frozen=True):
    """A queue's end and a group's offset in it; `last_timestamp` is that of the last consumed."""

    broker_offset: Int64
    consumer_offset: Int64
    last_timestamp: Int64 = 0


# -- topic and group statistics -------------------------------------------------------------------

_TOPIC_STATS = "topic statistics"
_CONSUME_STATS = "consumer group statistics"


def decode_topic_stats(body: Buffer) -> dict[MessageQueue, TopicOffset]:
    """The reply body of GET_TOPIC_STATS_INFO (202)."""
    top = members(read(body, _TOPIC_STATS), _TOPIC_STATS)
    return queue_map(submap(top, "offsetTable", _TOPIC_STATS), TopicOffset, _TOPIC_STATS)


def encode_topic_stats(table: Mapping[MessageQueue, TopicOffset]) -> bytes:
    """The body for these values."""
    return lenient_json.dumps({"offsetTable": keyed(table)})


@dataclass(frozen=True, slots=True)
class ConsumeStats:
    """A group's progress by queue, and how many messages per second it consumes."""

    offsets: dict[MessageQueue, OffsetWrapper] = field(default_factory=dict)
    consume_tps: float = 0.0


def decode_consume_stats(body: Buffer) -> ConsumeStats:
    """The reply body of GET_CONSUME_STATS (208)."""
    return _consume_stats(read(body, _CONSUME_STATS))


def _consume_stats(value: Any) -> ConsumeStats:
    top = members(value, _CONSUME_STATS)
    offsets = queue_map(submap(top, "offsetTable", _CONSUME_STATS), OffsetWrapper, _CONSUME_STATS)
    tps = top.get("consumeTps")
    return ConsumeStats(offsets, 0.0 if tps is None else convert(tps, float, _CONSUME_STATS))


def encode_consume_stats(
    table: Mapping[MessageQueue, OffsetWrapper], consume_tps: float = 0.0
) -> bytes:
    """The body for these values."""
    return lenient_json.dumps({"consumeTps": consume_tps, "offsetTable": keyed(table)})


@dataclass(frozen=True, slots=True)
class BrokerConsumeStats:
    """Every group's statistics at one broker, one entry per topic, and the sum of all lags."""

    broker_addr: str
    groups: dict[str, list[ConsumeStats]] = field(default_factory=dict)
    total_lag: int = 0


_ALL_STATS = "list of consumer group statistics"


def decode_broker_consume_stats(body: Buffer) -> BrokerConsumeStats:
    """The reply body of GET_BROKER_CONSUME_STATS (317)."""
    top = members(read(body, _ALL_STATS), _ALL_STATS)
    groups: dict[str, list[ConsumeStats]] = {}
    for entry in items(top, "consumeStatsList", _ALL_STATS):
        for group, stats in members(entry, _ALL_STATS).items():
            if not isinstance(group, str) or not isinstance(stats, list):
                raise malformed(_ALL_STATS, f"the entry of {group!r} is not an array")
            groups.setdefault(group, []).extend(_consume_stats(each) for each in stats)
    return BrokerConsumeStats(
        convert(top.get("brokerAddr") or "", str, _ALL_STATS),
        groups,
        convert(top.get("totalDiff") or 0, int, _ALL_STATS),
    )


def encode_broker_consume_stats(stats: BrokerConsumeStats) -> bytes:
    """The body for these values."""
    entries = [
        {
            group: [
                {"consumeTps": each.consume_tps, "offsetTable": keyed(each.offsets)}
                for each in found
            ]
        }
        for group, found in stats.groups.items()
    ]
    return lenient_json.dumps(
        {
            "brokerAddr": stats.broker_addr,
            "consumeStatsList": entries,
            "totalDiff": stats.total_lag,
        }
    )


# -- resets ---------------------------------------------------------------------------------------


class _ResetShape(Shape, kw_only=True):
    broker_name: str
    offset: Int64
    queue_id: Int32
    topic: str


_RESET = "table of offsets"


def decode_offset_table(body: Buffer) -> dict[MessageQueue, int]:
    """The reply body of 222 and the body of 220, in map form or in the list form of C++ clients."""
    table = members(read(body, _RESET), _RESET).get("offsetTable")
    if isinstance(table, list):
        rows = convert(table, list[_ResetShape], _RESET)
        return {MessageQueue(row.topic, row.broker_name, row.queue_id): row.offset for row in rows}
    return queue_map({} if table is None else members(table, _RESET), Int64, _RESET)


def encode_offset_table(table: Mapping[MessageQueue, int], *, list_form: bool = False) -> bytes:
    """The body for these values; C++ clients understand only the list form."""
    if not list_form:
        return lenient_json.dumps({"offsetTable": keyed(table)})
    rows = [
        _ResetShape(
            broker_name=queue.broker_name, offset=offset, queue_id=queue.queue_id, topic=queue.topic
        )
        for queue, offset in table.items()
    ]
    return _encode({"offsetTable": rows})


class _CorrectionShape(Shape, kw_only=True):
    correction_offsets: dict[QueueIdText, Int64] | None = None


_decode_corrections = reply_decoder(_CorrectionShape, "table of correction offsets")


def decode_correction_offsets(body: Buffer) -> dict[int, int]:
    """The reply body of QUERY_CORRECTION_OFFSET (308): queue ID -> offset."""
    table = _decode_corrections(body).correction_offsets or {}
    return {int(number): offset for number, offset in table.items()}


def encode_correction_offsets(offsets: Mapping[int, int]) -> bytes:
    """The body for these values."""
    table = {str(number): offset for number, offset in offsets.items()}
    return _encode(_CorrectionShape(correction_offsets=table))


# -- time spans -----------------------------------------------------------------------------------


class QueueTimeSpan(msgspec.Struct, rename="camel", kw_only=True, frozen=True):
    """Store times (epoch ms, -1 for none) of a queue's first, last and next consumed message.

    The texts are the same times as `yyyy-MM-dd#HH:mm:ss:SSS`; `delay_time` is ms.
    """

    consume_time_stamp: Int64 = -1
    consume_time_stamp_str: str | None = None
    delay_time: Int64 = 0
    max_time_stamp: Int64 = -1
    max_time_stamp_str: str | None = None
    message_queue: QueueShape
    min_time_stamp: Int64 = -1
    min_time_stamp_str: str | None = None

    @property
    def queue(self) -> MessageQueue:
        """The queue of this time span."""
        return self.message_queue.model()


class _TimeSpansShape(Shape, kw_only=True):
    consume_time_span_set: list[QueueTimeSpan] | None = None


_decode_time_spans = reply_decoder(_TimeSpansShape, "list of time spans")


def decode_time_spans(body: Buffer) -> list[QueueTimeSpan]:
    """The reply body of QUERY_CONSUME_TIME_SPAN (303)."""
    return _decode_time_spans(body).consume_time_span_set or []


def encode_time_spans(spans: Iterable[QueueTimeSpan]) -> bytes:
    """The body for these values, without missing texts."""
    rows = []
    for span in spans:
        row = msgspec.to_builtins(span)
        rows.append({name: value for name, value in row.items() if value is not None})
    return _encode({"consumeTimeSpanSet": rows})


def time_span(
    queue: MessageQueue, *, first_ms: int, last_ms: int, consumed_ms: int, delay_ms: int
) -> QueueTimeSpan:
    """A time span without texts, which depend on a time zone and are added by the caller."""
    return QueueTimeSpan(
        consume_time_stamp=consumed_ms,
        delay_time=delay_ms,
        max_time_stamp=last_ms,
        message_queue=queue_shape(queue),
        min_time_stamp=first_ms,
    )


# -- counters -------------------------------------------------------------------------------------


class StatsItem(msgspec.Struct, kw_only=True, frozen=True):
    """A counter over one period: sum, sum per second, average per count."""

    avgpt: float = 0.0
    sum: Int64 = 0
    tps: float = 0.0


class BrokerStats(msgspec.Struct, rename="camel", kw_only=True, frozen=True):
    """One counter over the last minute, hour and day."""

    stats_day: StatsItem = StatsItem()
    stats_hour: StatsItem = StatsItem()
    stats_minute: StatsItem = StatsItem()


_decode_broker_stats = reply_decoder(BrokerStats, "broker statistics")


def decode_broker_stats(body: Buffer) -> BrokerStats:
    """The reply body of VIEW_BROKER_STATS_DATA (315)."""
    return _decode_broker_stats(body)


def encode_broker_stats(stats: BrokerStats) -> bytes:
    """The body for these values."""
    return _encode(stats)
