"""Partitions follow from start and end alone."""

from __future__ import annotations

import pickle

from hypothesis import given
from hypothesis import strategies as st

from kourou.model.topic import MessageQueue
from kourou_spark_etl.source.ranges import QueueRange, planned

A = [MessageQueue("orders", "broker-a", number) for number in range(4)]


def test_a_partition_for_each_queue_with_messages() -> None:
    ranges = planned({A[0]: 5, A[1]: 7, A[2]: 9}, {A[2]: 10, A[1]: 7, A[0]: 9})
    assert ranges == [
        QueueRange("orders", "broker-a", 0, 5, 9),
        QueueRange("orders", "broker-a", 2, 9, 10),
    ]
    assert ranges[0].queue == A[0]
    assert str(ranges[0]) == "orders/broker-a/0@5 to 9"


def test_a_queue_that_was_not_known_is_read_from_its_beginning() -> None:
    assert planned({}, {A[0]: 2}) == [QueueRange("orders", "broker-a", 0, 0, 2, fresh=True)]


def test_a_queue_that_went_back_has_nothing_to_read() -> None:
    assert planned({A[0]: 70}, {A[0]: 60}) == []


def test_long_ranges_are_cut() -> None:
    ranges = planned({A[0]: 0, A[1]: 0}, {A[0]: 900, A[1]: 100}, 10)
    assert [(one.queue_id, one.begin, one.end) for one in ranges] == [
        *((0, part * 100, part * 100 + 100) for part in range(9)),
        (1, 0, 100),
    ]


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
