"""Samples of consumer lag, requested from the brokers.

Groups are requested one by one, so that a group which a broker does not know does not affect the
others.

State: soft: an open client.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

from kourou.model.topic import MessageQueue
from kourou.sync import Client


@dataclass(frozen=True, slots=True)
class LagSample:
    """The lag of a group in a topic at one time: sums over the topic's queues."""

    consumer_group: str
    topic: str
    at_ms: int
    lag: int
    end_offsets: int
    consumed_offsets: int


class LagSampler:
    """Samples one cluster. Empty `groups`: all groups."""

    def __init__(self, name_servers: str, groups: Collection[str] = ()) -> None:
        self._client = Client(name_servers)
        self._client.open()
        self._groups = frozenset(groups)

    def sample(self, at_ms: int) -> list[LagSample]:
        """One sample for each group and topic. Raises KourouError if a broker does not reply."""
        admin: Any = self._client.admin
        names = sorted(self._groups) or [group.name for group in admin.groups.list()]
        found: list[LagSample] = []
        for group in names:
            found += summed(group, at_ms, _queues(admin.offsets.of(group)))
        return found

    def close(self) -> None:
        """Close all connections."""
        self._client.close()


Queue = tuple[MessageQueue, int, int]
"""A queue, its end, and the group's offset."""


def _queues(offsets: Any) -> Iterable[Queue]:
    return [(queue, one.broker_offset, one.consumer_offset) for queue, one in offsets.items()]


def summed(group: str, at_ms: int, queues: Iterable[Queue]) -> list[LagSample]:
    """Samples by topic. A group without an offset in a queue (below 0) lags by the whole queue."""
    sums: dict[str, tuple[int, int, int]] = {}
    for queue, end, consumed in queues:
        place = min(max(consumed, 0), end)
        lag, ends, places = sums.get(queue.topic, (0, 0, 0))
        sums[queue.topic] = (lag + end - place, ends + end, places + place)
    return [LagSample(group, topic, at_ms, *sums[topic]) for topic in sorted(sums)]
