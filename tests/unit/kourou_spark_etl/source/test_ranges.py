"""Which queues options mean, and where in them a read begins."""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kourou.errors import BadRequest, TopicNotFound
from kourou.model.topic import MessageQueue
from kourou_spark_etl.source.offsets import OffsetSpan, QueueOffsets
from kourou_spark_etl.source.options import AtTime, AtTimes, Edge, ReadOptions
from kourou_spark_etl.source.ranges import offsets_at, planned, subscribed

SPANS = {
    MessageQueue(topic, "broker-a", number): OffsetSpan(10, 50)
    for topic in ("orders", "order-2", "%DLQ%g", "%RETRY%g", "RMQ_SYS_TRACE_TOPIC", "rmq_sys_x")
    for number in range(2)
}
ZERO, ONE = (MessageQueue("orders", "broker-a", number) for number in range(2))


class Told:
    """A cluster that is a dict."""

    def topics(self) -> list[str]:
        return sorted({queue.topic for queue in SPANS})

    def spans(self, topics: Sequence[str], *, all_of: bool) -> dict[MessageQueue, OffsetSpan]:
        for topic in topics:
            if topic not in self.topics() and all_of:
                raise TopicNotFound(f"no name server knows the topic {topic!r}")
        return {queue: span for queue, span in SPANS.items() if queue.topic in topics}

    def offset_by_time(self, queue: MessageQueue, timestamp_ms: int) -> int:
        return timestamp_ms

    def commit(self, offsets: Mapping[MessageQueue, int]) -> None:
        del offsets

    def close(self) -> None:
        """Nothing is open."""


def topics(**options: object) -> set[str]:
    found = subscribed(ReadOptions(**options), Told(), all_of=True)  # type: ignore[arg-type]
    return {queue.topic for queue in found}


def test_a_pattern_means_whole_names_and_no_system_topics() -> None:
    assert topics(pattern="order.*") == {"orders", "order-2"}
    assert topics(pattern="order") == set()
    assert topics(pattern=".*") == {"orders", "order-2"}
    assert topics(pattern="%DLQ%.*") == {"%DLQ%g"}


def test_topics_by_name() -> None:
    assert topics(topics=("orders", "%RETRY%g")) == {"orders", "%RETRY%g"}
    with pytest.raises(
        TopicNotFound, match="the option 'subscribe' names a topic that does not exist"
    ):
        topics(topics=("nope",))


def test_queues_by_name() -> None:
    options = ReadOptions(assigned=(ONE,))
    assert subscribed(options, Told(), all_of=True) == {ONE: OffsetSpan(10, 50)}
    strange = MessageQueue("orders", "broker-a", 9)
    with pytest.raises(BadRequest, match="'assign' has orders/broker-a/9, which is not a readable"):
        subscribed(ReadOptions(assigned=(ONE, strange)), Told(), all_of=True)
    assert list(subscribed(ReadOptions(assigned=(ONE, strange)), Told(), all_of=False)) == [ONE]


def test_places() -> None:
    spans = {ZERO: OffsetSpan(10, 50), ONE: OffsetSpan(20, 60)}

    def at(place: object) -> object:
        return offsets_at(place, spans, Told(), option="startingOffsets")  # type: ignore[arg-type]

    assert at(Edge.EARLIEST) == {ZERO: 10, ONE: 20}
    assert at(Edge.LATEST) == {ZERO: 50, ONE: 60}
    assert at(AtTime(33)) == {ZERO: 33, ONE: 33}
    assert at(AtTimes(QueueOffsets({ZERO: 1, ONE: 2}))) == {ZERO: 1, ONE: 2}
    assert at(QueueOffsets({ZERO: -2, ONE: -1})) == {ZERO: 10, ONE: 60}
    assert at(QueueOffsets({ZERO: 11, ONE: 12})) == {ZERO: 11, ONE: 12}
    with pytest.raises(BadRequest, match="'startingOffsets' has no entry for queue orders"):
        at(QueueOffsets({ZERO: 11}))
    with pytest.raises(BadRequest, match="'startingOffsetsByTimestamp' has no entry"):
        at(AtTimes(QueueOffsets({ZERO: 11})))
    with pytest.raises(BadRequest, match="has orders/broker-a/7, which is not read"):
        at(QueueOffsets({ZERO: 1, ONE: 1, MessageQueue("orders", "broker-a", 7): 1}))


# -- partitions follow from start and end alone ----------------------------------------------------


A = [MessageQueue("orders", "broker-a", number) for number in range(4)]


@given(st.lists(st.integers(0, 200), max_size=4), st.integers(1, 50))
def test_every_message_is_in_one_partition(counts: list[int], wanted: int) -> None:
    end = dict(zip(A, counts, strict=False))
    ranges = planned(dict.fromkeys(end, 0), end, wanted)
    covered = [(one.queue_id, offset) for one in ranges for offset in range(one.begin, one.end)]
    assert covered == [(q.queue_id, at) for q, count in end.items() for at in range(count)]
    queues = sum(count > 0 for count in counts)
    assert len(ranges) >= max(queues, min(wanted, sum(counts)))
    assert all(one.end > one.begin for one in ranges)
    assert pickle.loads(pickle.dumps(ranges)) == ranges
