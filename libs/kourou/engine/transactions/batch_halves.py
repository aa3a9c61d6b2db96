"""The open half messages of batch transactions.

State: projection of the half queue, in memory, rebuilt at start (open_halves). Each takes
16 bytes, because a batch may have a million.

The broker sends no check-backs for these half messages and does not put them back. They stay where
they are until their batch is decided, aborted by its writers, or timed out.

Invariants:
- a part is what one attempt wrote of one partition, in the order of the half queue
- a part is resolved from its first half message on; empty parts are removed
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from kourou.model.transaction import BatchMark

Longs = npt.NDArray[np.int64]
PartKey = tuple[int, int, str]
"""(batch, partition, attempt) of a query."""


class BatchPart:
    """The open half messages of one attempt at one partition.

    `since_ms` is the monotonic time of the newest one. `proven` is False if they were open when the
    broker started and the broker has not checked yet whether the committed message of the first one
    was stored just before it stopped.
    """

    __slots__ = ("_next", "_offsets", "_positions", "key", "proven", "query", "since_ms")

    def __init__(self, query: str, key: PartKey, since_ms: int, *, proven: bool) -> None:
        self.query = query
        self.key = key
        self.since_ms = since_ms
        self.proven = proven
        self._offsets = array("q")
        self._positions = array("q")
        self._next = 0

    def __len__(self) -> int:
        return len(self._offsets) - self._next

    @property
    def batch(self) -> int:
        """The number of its batch."""
        return self.key[0]

    def add(self, offset: int, position: int) -> None:
        """Add one that was stored."""
        self._offsets.append(offset)
        self._positions.append(position)

    def add_many(self, offsets: Longs, positions: Longs) -> None:
        """Add some that were stored, in this order."""
        self._offsets.frombytes(offsets.tobytes())
        self._positions.frombytes(positions.tobytes())

    def run(self, count: int) -> tuple[int, Longs]:
        """Return the first queue offset, and the positions up to a gap, at most `count`."""
        span = slice(self._next, self._next + count)
        offsets = np.asarray(self._offsets[span], np.int64)
        gaps = np.flatnonzero(np.diff(offsets) != 1)
        end = int(gaps[0]) + 1 if len(gaps) else len(offsets)
        return int(offsets[0]), np.asarray(self._positions[span][:end], np.int64)

    def first(self, count: int) -> list[tuple[int, int]]:
        """Return the queue offsets and positions of the first `count`."""
        span = slice(self._next, self._next + count)
        return list(zip(self._offsets[span], self._positions[span], strict=True))

    @property
    def first_offset(self) -> int:
        """The lowest queue offset."""
        return self._offsets[self._next]

    def passed(self, count: int) -> None:
        """Drop the first `count`, which are resolved."""
        self._next += count

    def places(self) -> Iterator[tuple[int, int]]:
        """Yield the queue offset and position of each."""
        for index in range(self._next, len(self._offsets)):
            yield self._offsets[index], self._positions[index]


class BatchHalves:
    """The table: query -> parts; `count` is the number of all half messages in it."""

    __slots__ = ("_queries", "count")

    def __init__(self) -> None:
        self._queries: dict[str, dict[PartKey, BatchPart]] = {}
        self.count = 0

    def __len__(self) -> int:
        return self.count

    def open(
        self, mark: BatchMark, offset: int, position: int, since_ms: int, *, proven: bool = True
    ) -> None:
        """Add a half message that was stored after all others."""
        self._part(mark, since_ms, proven=proven).add(offset, position)
        self.count += 1

    def open_many(self, mark: BatchMark, offsets: Longs, positions: Longs, since_ms: int) -> None:
        """Add half messages of the part of `mark`, stored after all others of that part."""
        self._part(mark, since_ms, proven=True).add_many(offsets, positions)
        self.count += len(offsets)

    def _part(self, mark: BatchMark, since_ms: int, *, proven: bool) -> BatchPart:
        """Return the part that a new half message belongs to; create it if needed."""
        key = (mark.batch, mark.partition, mark.attempt)
        parts = self._queries.setdefault(mark.query, {})
        part = parts.get(key)
        if part is None:
            part = parts[key] = BatchPart(mark.query, key, since_ms, proven=proven)
        part.since_ms = max(part.since_ms, since_ms)
        return part

    def held(self, query: str, key: PartKey) -> int:
        """Return how many half messages of this part are open."""
        part = self._queries.get(query, {}).get(key)
        return 0 if part is None else len(part)

    def of_query(self, query: str) -> list[BatchPart]:
        """Return the parts of a query, sorted by batch and partition."""
        return sorted(self._queries.get(query, {}).values(), key=_key_of)

    def queries(self) -> list[str]:
        """Return the queries that have open half messages."""
        return list(self._queries)

    def close(self, part: BatchPart, count: int) -> None:
        """Remove the first `count` of a part, which are resolved."""
        part.passed(count)
        self.count -= count
        if not part:
            parts = self._queries[part.query]
            del parts[part.key]
            if not parts:
                del self._queries[part.query]

    def lowest(self, otherwise: int) -> int:
        """Return the lowest queue offset of all parts, at most `otherwise`."""
        for parts in self._queries.values():
            for part in parts.values():
                otherwise = min(otherwise, part.first_offset)
        return otherwise

    def below(self, position: int, low: int) -> list[int]:
        """Return the queue offsets, from `low` on, of those below a log position, sorted."""
        return sorted(
            offset
            for parts in self._queries.values()
            for part in parts.values()
            for offset, at in part.places()
            if at < position and offset >= low
        )


def _key_of(part: BatchPart) -> PartKey:
    return part.key
