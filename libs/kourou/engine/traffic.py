"""What passed through this broker, in plain integers (a metrics page reads them; nothing waits on
it).

Lives here: counting by topic, by group, by size; a batch at a time where there are batches.
May not live here: a decision that looks at the counts.

State: soft. Counters start at 0 with the process, as every scraper expects.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from kourou.model.names import HALF_TOPIC, SCHEDULE_TOPIC

SIZE_BOUNDS = (1_024, 4_096, 524_288, 1_048_576, 2_097_152, 4_194_304)
"""Sizes of stored messages are counted in RocketMQ's buckets: so many bytes at most, or more."""

_BUCKETS = len(SIZE_BOUNDS) + 1
_BOUNDS = np.asarray(SIZE_BOUNDS, np.int64)


_KINDS = {HALF_TOPIC: "transaction", SCHEDULE_TOPIC: "delay"}
"""RocketMQ 5's types of messages that are stored elsewhere first, by where that is."""


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
        """What a group could not process, for another attempt or as dead letters."""
        self.repeats_removed = 0
        self.pulls_empty = 0
        """Pulls that were answered without a message, whatever the reason."""

    def taken(self, topic: str, size_bytes: int) -> None:
        """A message was stored."""
        self.messages_in[topic] += 1
        self.bytes_in[topic] += size_bytes
        self.sizes_in[topic][bisect_left(SIZE_BOUNDS, size_bytes)] += 1

    def taken_to(self, place: str, topic: str, size_bytes: int) -> None:
        """The message of `topic` that `taken` counts went to the topic `place` first."""
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
        topic_of: npt.NDArray[np.integer[Any]] | None,
        sizes: npt.NDArray[np.int64],
    ) -> None:
        """The messages that `taken_many` counts went to the topic `place` first."""
        kind = _KINDS[place]
        buckets = _BOUNDS.searchsorted(sizes)
        for number, topic in enumerate(topics):
            if topic_of is None and number:
                return
            mine = slice(None) if topic_of is None else topic_of == number
            count = len(sizes[mine])
            if not count:
                continue
            tally = self.kinds_in[topic, kind]
            tally.messages += count
            tally.size_bytes += int(sizes[mine].sum())
            for bucket, more in enumerate(_by_bucket(buckets[mine]) or ()):
                tally.sizes[bucket] += more

    def taken_many(
        self,
        topics: Sequence[str],
        topic_of: npt.NDArray[np.integer[Any]] | None,
        sizes: npt.NDArray[np.int64],
    ) -> None:
        """Messages of these sizes, at least one, were stored.

        `topic_of[i]` says which of `topics` message i went to, None that all went to the first; the
        same topic may stand there more than once.
        """
        lowest, highest = (bisect_left(SIZE_BOUNDS, int(end)) for end in (sizes.min(), sizes.max()))
        # As a rule the messages of a batch are much alike.
        buckets = None if lowest == highest else _BOUNDS.searchsorted(sizes)
        if topic_of is None:
            self._add(topics[0], len(sizes), int(sizes.sum()), _by_bucket(buckets), highest)
            return
        counts = np.bincount(topic_of, minlength=len(topics)).tolist()
        totals = np.bincount(topic_of, weights=sizes, minlength=len(topics)).tolist()
        for number, (count, total) in enumerate(zip(counts, totals, strict=True)):
            if count:
                found = None if buckets is None else _by_bucket(buckets[topic_of == number])
                self._add(topics[number], count, int(total), found, highest)

    def _add(
        self, topic: str, count: int, size_bytes: int, found: list[int] | None, bucket: int
    ) -> None:
        """Messages of one topic: so many a bucket, or all of them in this one."""
        self.messages_in[topic] += count
        self.bytes_in[topic] += size_bytes
        sizes = self.sizes_in[topic]
        if found is None:
            sizes[bucket] += count
            return
        for number, more in enumerate(found):
            sizes[number] += more

    def out(self, topic: str, group: str, messages: int, size_bytes: int) -> None:
        """A pull brought messages to a consumer group."""
        self.pulls_out[topic, group] += 1
        self.messages_out[topic, group] += messages
        self.bytes_out[topic, group] += size_bytes

    def passed_over(self, topic: str, group: str, messages: int, failures: int) -> None:
        """A pull looked at messages that its group does not want; so many could not be compared."""
        self.filtered[topic, group] += messages
        if failures:
            self.filter_failures[topic, group] += failures

    def refuse(self, code: int) -> None:
        """A request was refused with this code."""
        self.refused[code] += 1


def _no_sizes() -> list[int]:
    return [0] * _BUCKETS


def _by_bucket(buckets: npt.NDArray[np.integer[Any]] | None) -> list[int] | None:
    return None if buckets is None else np.bincount(buckets, minlength=_BUCKETS).tolist()
