"""How far groups are: beside the ends of their queues, in time, over many groups."""

import json

import pytest

from kourou.errors import Code
from kourou.protocol.bodies.statistics_bodies import (
    OffsetWrapper,
    decode_broker_consume_stats,
    decode_consume_stats,
    decode_correction_offsets,
    decode_time_spans,
)
from kourou.protocol.messages.broker_admin import UpdateAndCreateTopic
from kourou.protocol.messages.groups import (
    GetBrokerConsumeStats,
    GetConsumeStats,
    QueryConsumeTimeSpan,
    UpdateAndCreateSubscriptionGroup,
)
from kourou.protocol.messages.pulls import PullMessage, QueryCorrectionOffset, UpdateConsumerOffset
from kourou_rigs.engine import Engine

START_MS = 1_700_000_000_000


def make(engine: Engine, *names: str) -> None:
    for name in names:
        engine.send(UpdateAndCreateSubscriptionGroup(), b'{"groupName":"%s"}' % name.encode())
    engine.flush()


def commit(
    engine: Engine, offset: int, queue_id: int = 0, group: str = "g", topic: str = "orders"
) -> None:
    request = UpdateConsumerOffset(
        consumer_group=group, topic=topic, queue_id=queue_id, commit_offset=offset
    )
    assert engine.ask(request).code == Code.SUCCESS


@pytest.fixture
def filled(engine, draft, records) -> Engine:
    """Queue 0 of orders has a message every second, 10 in all; queue 1 has one of then."""
    for _ in range(10):
        engine.send(*records([draft()]))
        engine.advance(1_000)
    engine.send(*records([draft(queue_id=1)], [("orders", 1)]))
    engine.flush()
    make(engine, "g")
    return engine


def stats_of(engine: Engine, group: str = "g", topic: str = ""):
    reply = engine.ask(GetConsumeStats(consumer_group=group, topic=topic))
    assert reply.code == Code.SUCCESS, reply.remark
    return decode_consume_stats(b"".join(reply.body))


def stats(engine: Engine, group: str = "g", topic: str = "") -> dict[int, OffsetWrapper]:
    offsets = stats_of(engine, group, topic).offsets
    return {queue.queue_id: wrapper for queue, wrapper in offsets.items()}


def test_lag_is_reported_per_queue(filled) -> None:
    commit(filled, 4)
    found = stats(filled)
    assert set(found) == {0, 1, 2, 3}
    assert (found[0].broker_offset, found[0].consumer_offset) == (10, 4)
    assert found[0].last_timestamp == START_MS + 3_000
    assert (found[1].broker_offset, found[1].consumer_offset) == (1, 0)
    assert stats(filled, topic="orders") == found
    unknown = filled.ask(GetConsumeStats(consumer_group="x"))
    assert unknown.code == Code.SUBSCRIPTION_GROUP_NOT_EXIST
    missing = filled.ask(GetConsumeStats(consumer_group="g", topic="x"))
    assert missing.code == Code.TOPIC_NOT_EXIST


def test_a_groups_rate_is_that_of_the_last_minute(filled) -> None:
    assert stats_of(filled).consume_tps == 0.0
    pull = PullMessage(
        consumer_group="g",
        topic="orders",
        queue_id=0,
        queue_offset=0,
        max_msg_nums=32,
        sys_flag=4,
        subscription="*",
    )
    filled.ask(pull)
    commit(filled, 10)
    filled.advance(10_000)
    assert stats_of(filled).consume_tps == pytest.approx(10 / 19), (
        "10 in the 19 s since the first tick"
    )


def test_all_groups_are_reported_at_once(filled) -> None:
    ordered = UpdateAndCreateTopic(
        topic="steps", read_queue_nums=1, write_queue_nums=1, perm=6, order=True
    )
    filled.ask(ordered)
    make(filled, "h", "idle")
    commit(filled, 4)
    commit(filled, 0, group="h", topic="steps")
    reply = filled.ask(GetBrokerConsumeStats())
    found = decode_broker_consume_stats(b"".join(reply.body))
    assert found.broker_addr == "127.0.0.1:10911"
    assert set(found.groups) == {"g", "h"}
    assert found.total_lag == 6 + 1
    ((one,)) = found.groups["h"]
    assert [queue.topic for queue in one.offsets] == ["steps"]
    reply = filled.ask(GetBrokerConsumeStats(is_order=True))
    assert set(decode_broker_consume_stats(b"".join(reply.body)).groups) <= {"h"}


def test_time_spans_of_a_group_that_is_behind(filled) -> None:
    commit(filled, 4)
    reply = filled.ask(QueryConsumeTimeSpan(topic="orders", group="g"))
    spans = {span.queue.queue_id: span for span in decode_time_spans(b"".join(reply.body))}
    assert set(spans) == {0, 1, 2, 3}
    behind = spans[0]
    assert behind.min_time_stamp == START_MS
    assert behind.max_time_stamp == START_MS + 9_000
    assert behind.consume_time_stamp == START_MS + 3_000, "when its last consumed one was stored"
    assert behind.delay_time == filled.wall_ms - (START_MS + 4_000), "how old the next one is"
    never = spans[1]
    assert never.consume_time_stamp == never.min_time_stamp == START_MS + 10_000
    assert never.delay_time == 0, "it was stored in this very millisecond"
    empty = spans[2]
    assert (empty.min_time_stamp, empty.max_time_stamp, empty.delay_time) == (-1, -1, 0)
    missing = filled.ask(QueryConsumeTimeSpan(topic="x", group="g"))
    assert missing.code == Code.TOPIC_NOT_EXIST


def test_a_group_that_has_all_is_not_late(filled) -> None:
    commit(filled, 10)
    reply = filled.ask(QueryConsumeTimeSpan(topic="orders", group="g"))
    first = decode_time_spans(b"".join(reply.body))[0]
    assert (first.consume_time_stamp, first.delay_time) == (START_MS + 9_000, 0)


def corrections(engine: Engine, compare: str, leave_out: str | None = None) -> dict[int, int]:
    request = QueryCorrectionOffset(topic="orders", compare_group=compare, filter_groups=leave_out)
    return decode_correction_offsets(b"".join(engine.ask(request).body))


def test_the_lowest_progress_over_groups(filled) -> None:
    make(filled, "h", "low")
    commit(filled, 6)
    commit(filled, 4, group="h")
    commit(filled, 1, group="low")
    assert corrections(filled, "none") == {0: 1}
    assert corrections(filled, "none", "low") == {0: 4}
    assert corrections(filled, "none", "low,h") == {0: 6}
    assert corrections(filled, "g") == {0: 1}, "g is ahead of the lowest"
    assert corrections(filled, "low", "low") == {0: 2**63 - 1}, "nobody is behind it"


def test_progress_below_what_is_kept_does_not_count(filled) -> None:
    make(filled, "h")
    commit(filled, 2)
    commit(filled, 7, group="h")
    filled.store.firsts["orders", 0] = 5
    assert corrections(filled, "none") == {0: 7}


def test_bodies_are_as_rocketmq_writes_them(filled) -> None:
    commit(filled, 4)
    body = b"".join(filled.ask(QueryConsumeTimeSpan(topic="orders", group="g")).body)
    first = json.loads(body)["consumeTimeSpanSet"][0]
    assert set(first) == {
        "consumeTimeStamp",
        "delayTime",
        "maxTimeStamp",
        "messageQueue",
        "minTimeStamp",
    }
