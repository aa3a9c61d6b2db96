"""Figures of topics, groups and counters."""

import msgspec
import pytest

from kourou.errors import DecodeError
from kourou.model.topic import MessageQueue
from kourou.protocol.bodies.statistics_bodies import (
    BrokerConsumeStats,
    BrokerStats,
    ConsumeStats,
    OffsetWrapper,
    StatsItem,
    TopicOffset,
    decode_broker_consume_stats,
    decode_broker_stats,
    decode_consume_stats,
    decode_correction_offsets,
    decode_time_spans,
    decode_topic_stats,
    encode_broker_consume_stats,
    encode_broker_stats,
    encode_consume_stats,
    encode_correction_offsets,
    encode_time_spans,
    encode_topic_stats,
    time_span,
)

QUEUE = MessageQueue("T", "b", 3)
KEY = b'{"brokerName":"b","queueId":3,"topic":"T"}'


def test_topic_statistics():
    table = {QUEUE: TopicOffset(min_offset=1, max_offset=9, last_update_timestamp=1795227677562)}
    body = encode_topic_stats(table)
    assert body == (
        b'{"offsetTable":{' + KEY + b':{"lastUpdateTimestamp":1795227677562,'
        b'"maxOffset":9,"minOffset":1}}}'
    )
    assert decode_topic_stats(body) == table
    assert decode_topic_stats(b'{"offsetTable":{}}') == {}


def test_group_statistics():
    wrapper = OffsetWrapper(broker_offset=9, consumer_offset=5, last_timestamp=7)
    body = encode_consume_stats({QUEUE: wrapper}, 2.5)
    assert body == (
        b'{"consumeTps":2.5,"offsetTable":{' + KEY + b':{"brokerOffset":9,"consumerOffset":5,'
        b'"lastTimestamp":7}}}'
    )
    assert decode_consume_stats(body) == ConsumeStats({QUEUE: wrapper}, 2.5)
    assert decode_consume_stats(b'{"consumeTps":"1.5"}') == ConsumeStats({}, 1.5)
    with pytest.raises(DecodeError):
        decode_consume_stats(b'{"consumeTps":{}}')


def test_the_statistics_of_all_groups():
    wrapper = OffsetWrapper(broker_offset=9, consumer_offset=5)
    stats = BrokerConsumeStats("a:1", {"G": [ConsumeStats({QUEUE: wrapper}, 1.0)], "H": []}, 4)
    body = encode_broker_consume_stats(stats)
    assert body.startswith(b'{"brokerAddr":"a:1","consumeStatsList":[{"G":[{"consumeTps":1.0,')
    assert decode_broker_consume_stats(body) == stats
    for wrong in (
        b"{consumeStatsList:5}",
        b"{consumeStatsList:[5]}",
        b"{consumeStatsList:[{G:5}]}",
    ):
        with pytest.raises(DecodeError, match=r"array|object"):
            decode_broker_consume_stats(wrong)


def test_correction_offsets():
    assert encode_correction_offsets({0: 1}) == b'{"correctionOffsets":{"0":1}}'
    assert decode_correction_offsets(b'{"correctionOffsets":{0:1}}') == {0: 1}


def test_time_spans():
    span = time_span(QUEUE, first_ms=1, last_ms=9, consumed_ms=5, delay_ms=100)
    body = encode_time_spans([span])
    assert decode_time_spans(body) == [span]
    assert span.queue == QUEUE
    assert msgspec.json.decode(body)["consumeTimeSpanSet"] == [
        {
            "consumeTimeStamp": 5,
            "delayTime": 100,
            "maxTimeStamp": 9,
            "messageQueue": {"brokerName": "b", "queueId": 3, "topic": "T"},
            "minTimeStamp": 1,
        }
    ]


def test_counters():
    stats = BrokerStats(stats_minute=StatsItem(sum=60, tps=1.0, avgpt=1.0))
    body = encode_broker_stats(stats)
    assert decode_broker_stats(body) == stats
    assert b'"statsMinute":{"avgpt":1.0,"sum":60,"tps":1.0}' in body
