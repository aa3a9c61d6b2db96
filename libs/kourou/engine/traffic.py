"""Traffic counters of this broker: plain integers, read by a metrics page.

State: soft. Counters start at 0 with the process, as every scraper expects.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from kourou.model.names import HALF_TOPIC, SCHEDULE_TOPIC

SIZE_BOUNDS = (1_024, 4_096, 524_288, 1_048_576, 2_097_152, 4_194_304)
"""Upper bounds, in bytes, of RocketMQ's buckets of message sizes; one more bucket is above."""

_BUCKETS = len(SIZE_BOUNDS) + 1


_KINDS = {HALF_TOPIC: "transaction", SCHEDULE_TOPIC: "delay"}
"""RocketMQ 5's types of messages that are stored in another topic first, by that topic."""


@dataclass(slots=True)
class Tally:
    """Messages of one kind."""

    messages: int = 0
    size_bytes: int = 0
    sizes: list[int] = field(default_factory=lambda: _no_sizes())


class Traffic:
    """Counts by topic, and by topic and group."""

    __slots__ = (
        "bytes_in",
        "bytes_out",
        "filter_failures",
        "filtered",
        "kinds_in",
        "messages_in",
        "messages_out",
        "pulls_empty",
        "pulls_out",
        "refused",
        "repeats_removed",
        "sent_back",
        "sizes_in",
    )

    def __init__(self) -> None:
        self.messages_in: defaultdict[str, int] = defaultdict(int)
        self.bytes_in: defaultdict[str, int] = defaultdict(int)
        self.sizes_in: defaultdict[str, list[int]] = defaultdict(_no_sizes)
        self.kinds_in: defaultdict[tuple[str, str], Tally] = defaultdict(Tally)
        self.messages_out: defaultdict[tuple[str, str], int] = defaultdict(int)
        self.bytes_out: defaultdict[tuple[str, str], int] = defaultdict(int)
        self.pulls_out: defaultdict[tuple[str, str], int] = defaultdict(int)
        self.filtered: defaultdict[tuple[str, str], int] = defaultdict(int)
        self.filter_failures: defaultdict[tuple[str, str], int] = defaultdict(int)
        self.refused: defaultdict[int, int] = defaultdict(int)
        self.sent_back: defaultdict[tuple[str, str], int] = defaultdict(int)
        """Messages that a group could not process, for another attempt or as dead letters."""
        self.repeats_removed = 0
        self.pulls_empty = 0
        """Pulls whose reply has no message, whatever the reason."""

    def taken(self, topic: str, size_bytes: int) -> None:
        """Count a stored message."""
        self.messages_in[topic] += 1
        self.bytes_in[topic] += size_bytes
        self.sizes_in[topic][bisect_left(SIZE_BOUNDS, size_bytes)] += 1

    def taken_to(self, place: str, topic: str, size_bytes: int) -> None:
        """Count a message of `topic`, which `taken` counts too, that is stored in `place` first."""
        kind = _KINDS.get(place)
        if kind is not None:
            tally = self.kinds_in[topic, kind]
            tally.messages += 1
            tally.size_bytes += size_bytes
            tally.sizes[bisect_left(SIZE_BOUNDS, size_bytes)] += 1

    def taken_many_to(
        self,
        place: str,
        topics: Sequence[str],
        topic_of: Sequence[int] | None,
        sizes: Sequence[int],
    ) -> None:
        """Count messages, which `taken_many` counts too, that are stored in `place` first."""
        for topic, own in _by_topic(topics, topic_of, sizes):
            tally = self.kinds_in[topic, _KINDS[place]]
            tally.messages += len(own)
            tally.size_bytes += sum(own)
            _count(tally.sizes, own)

    def taken_many(
        self, topics: Sequence[str], topic_of: Sequence[int] | None, sizes: Sequence[int]
    ) -> None:
        """Count stored messages of these sizes, at least one.

        `topic_of[i]` is the index in `topics` for message i; None means that all went to the first
        one. `topics` may have repeats.
        """
        for topic, own in _by_topic(topics, topic_of, sizes):
            self.messages_in[topic] += len(own)
            self.bytes_in[topic] += sum(own)
            _count(self.sizes_in[topic], own)

    def out(self, topic: str, group: str, messages: int, size_bytes: int) -> None:
        """Count a pull that returned messages to a consumer group."""
        self.pulls_out[topic, group] += 1
        self.messages_out[topic, group] += messages
        self.bytes_out[topic, group] += size_bytes

    def passed_over(self, topic: str, group: str, messages: int, failures: int) -> None:
        """Count messages that did not match; the filter failed for `failures` of them."""
        self.filtered[topic, group] += messages
        if failures:
            self.filter_failures[topic, group] += failures

    def refuse(self, code: int) -> None:
        """Count a request that was refused with this code."""
        self.refused[code] += 1


def _no_sizes() -> list[int]:
    return [0] * _BUCKETS


def _by_topic(
    topics: Sequence[str], topic_of: Sequence[int] | None, sizes: Sequence[int]
) -> Iterable[tuple[str, Sequence[int]]]:
    """Return the sizes of each topic's messages."""
    if topic_of is None or len(set(topics)) == 1:
        return [(topics[0], sizes)]
    found: dict[str, list[int]] = {}
    for number, size in zip(topic_of, sizes, strict=True):
        found.setdefault(topics[number], []).append(size)
    return found.items()


def _count(buckets: list[int], sizes: Sequence[int]) -> None:
    """Count messages by their sizes; the sizes in a batch are usually similar."""
    lowest = bisect_left(SIZE_BOUNDS, min(sizes))
    if lowest == bisect_left(SIZE_BOUNDS, max(sizes)):
        buckets[lowest] += len(sizes)
        return
    for size in sizes:
        buckets[bisect_left(SIZE_BOUNDS, size)] += 1
