"""Divides the range between two offsets into Spark's partitions.

Invariant: the partitions, and their order, depend on start, end and `minPartitions` alone. A batch
that is repeated after a crash has the same partitions, which exactly-once sinks rely on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

from pyspark.sql.datasource import InputPartition

from kourou.model.topic import MessageQueue


@dataclass
class QueueRange(InputPartition):
    """The messages of one queue from `begin` up to, not including, `end`.

    `fresh`: the start of the queue was not known, so messages missing there are not data loss.
    """

    topic: str
    broker: str
    queue_id: int
    begin: int
    end: int
    fresh: bool = False

    @property
    def queue(self) -> MessageQueue:
        """The queue."""
        return MessageQueue(self.topic, self.broker, self.queue_id)

    def __str__(self) -> str:
        return f"{self.queue!s}@{self.begin} to {self.end}"


def planned(
    start: Mapping[MessageQueue, int],
    end: Mapping[MessageQueue, int],
    min_partitions: int | None = None,
) -> list[QueueRange]:
    """The partitions between `start` and `end`, queue by queue.

    A queue that `start` does not contain is read from its beginning. There is a partition for each
    queue with messages; if `min_partitions` is larger, long ranges are split into equal parts.
    """
    spans = [
        (queue, start.get(queue, 0), end[queue])
        for queue in sorted(end)
        if end[queue] > start.get(queue, 0)
    ]
    parts = _parts([high - low for _, low, high in spans], min_partitions or 0)
    ranges: list[QueueRange] = []
    for (queue, low, high), count in zip(spans, parts, strict=True):
        place = (queue.topic, queue.broker_name, queue.queue_id)
        fresh = queue not in start
        edges = [low + (high - low) * part // count for part in range(count + 1)]
        ranges += [QueueRange(*place, *span, fresh=fresh) for span in pairwise(edges)]
    return ranges


def _parts(lengths: list[int], wanted: int) -> list[int]:
    """The number of parts of each range; additional parts go to the longest ranges."""
    total = sum(lengths)
    wanted = min(wanted, total)
    parts = [max(1, length * wanted // total) for length in lengths]
    while sum(parts) < wanted:
        longest = max(range(len(parts)), key=lambda one: (lengths[one] / parts[one], -one))
        parts[longest] += 1
    return parts
