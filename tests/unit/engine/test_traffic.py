"""What passed through is counted, a batch as its messages one by one."""

from __future__ import annotations

import numpy as np
import pytest

from kourou.engine.traffic import SIZE_BOUNDS, Traffic
from kourou.model.names import HALF_TOPIC

MIXED = [1, 1_024, 1_025, 4_096, 600_000, 4_194_304, 4_194_305, 90, 1_500_000]


def counted(traffic: Traffic) -> dict[str, tuple[int, int, list[int]]]:
    return {
        topic: (count, traffic.bytes_in[topic], list(traffic.sizes_in[topic]))
        for topic, count in traffic.messages_in.items()
    }


def test_sizes_are_counted_by_rocketmqs_bounds() -> None:
    traffic = Traffic()
    for size in MIXED:
        traffic.taken("orders", size)
    assert counted(traffic) == {"orders": (9, sum(MIXED), [3, 2, 0, 1, 1, 1, 1])}
    assert len(traffic.sizes_in["orders"]) == len(SIZE_BOUNDS) + 1


@pytest.mark.parametrize("sizes", [[300] * 9, [5_000] * 9, MIXED])
@pytest.mark.parametrize("targets", [None, [0, 1, 2, 2, 1, 0, 0, 1, 2], [2] * 9])
def test_a_batch_counts_as_its_messages(sizes: list[int], targets: list[int] | None) -> None:
    topics = ["orders", "bills", "orders"]  # two queues of one topic
    together, alone = Traffic(), Traffic()
    target_of = None if targets is None else np.asarray(targets, np.uint16)
    for _ in range(2):
        together.taken_many(topics, target_of, np.asarray(sizes, np.int64))
        for number, size in enumerate(sizes):
            alone.taken(topics[0 if targets is None else targets[number]], size)
    assert counted(together) == counted(alone)
    together.taken_many_to(HALF_TOPIC, topics, target_of, np.asarray(sizes, np.int64))
    for number, size in enumerate(sizes):
        alone.taken_to(HALF_TOPIC, topics[0 if targets is None else targets[number]], size)
    assert together.kinds_in == alone.kinds_in


def test_groups_and_refusals() -> None:
    traffic = Traffic()
    traffic.out("orders", "g", 2, 20)
    traffic.out("orders", "g", 1, 5)
    traffic.refuse(13)
    assert traffic.messages_out == {("orders", "g"): 3}
    assert traffic.bytes_out == {("orders", "g"): 25}
    assert traffic.refused == {13: 1}
