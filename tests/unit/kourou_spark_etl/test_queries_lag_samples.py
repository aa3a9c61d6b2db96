"""Sums over queues."""

from __future__ import annotations

from kourou.model.topic import MessageQueue
from kourou_spark_etl.queries import LagSample, summed


def test_queues_add_up_by_topic() -> None:
    queues = [
        (MessageQueue("t", "a", 0), 100, 90),
        (MessageQueue("t", "b", 0), 50, -1),  # not begun
        (MessageQueue("t", "b", 1), 10, 12),  # an answer that is older than the other
        (MessageQueue("%RETRY%g", "a", 0), 3, 3),
    ]
    assert summed("g", 7, queues) == [
        LagSample("g", "%RETRY%g", 7, 0, 3, 3),
        LagSample("g", "t", 7, 60, 160, 100),
    ]
