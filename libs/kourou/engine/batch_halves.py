"""Which half messages of batch transactions are open?

State: projection of the half queue, in memory, rebuilt at start (engine.half_recovery): 16 bytes
for each, since a batch may have a million.

Nobody is asked about these, and they are not put back: they wait where they are until their batch
is decided, given up by those who wrote it, or timed out.

Invariants:  a part is what one attempt wrote of one partition, in the order of the half queue
             a part is resolved from its first half message on; no empty part is kept
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from kourou.model.batch import BatchMark

Longs = npt.NDArray[np.int64]
PartKey = tuple[int, int, str]
"""(batch, partition, attempt) of a query."""


class BatchPart:
    """The open half messages of one attempt at one partition.

    `since_ms` is monotonic, that of the newest one. `proven` False: they were open when the broker
    started, and nobody has looked yet whether the committed message of the first one was stored
    just before the end.
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
        """One more was stored."""
        self._offsets.append(offset)
        self._positions.append(position)

    def add_many(self, offsets: Longs, positions: Longs) -> None:
        """More were stored, in this order."""
        self._offsets.frombytes(offsets.tobytes())
        self._positions.frombytes(positions.tobytes())

    def run(self, count: int) -> tuple[int, Longs]:
        """Of the first so many those without a gap: the first's queue offset, and positions."""
        span = slice(self._next, self._next + count)
        offsets = np.asarray(self._offsets[span], np.int64)
        gaps = np.flatnonzero(np.diff(offsets) != 1)
        end = int(gaps[0]) + 1 if len(gaps) else len(offsets)
        return int(offsets[0]), np.asarray(self._positions[span][:end], np.int64)

    def first(self, count: int) -> list[tuple[int, int]]:
        """Queue offsets and positions of the first so many."""
        span = slice(self._next, self._next + count)
        return list(zip(self._offsets[span], self._positions[span], strict=True))

    @property
    def first_offset(self) -> int:
        """The lowest queue offset."""
        return self._offsets[self._next]

    def passed(self, count: int) -> None:
        """The first so many are resolved."""
        self._next += count

    def places(self) -> Iterator[tuple[int, int]]:
        """Queue offset and position of each."""
        for index in range(self._next, len(self._offsets)):
            yield self._offsets[index], self._positions[index]


class BatchHalves:
    """The table: query -> parts; `count` is that of all half messages in it."""

    __slots__ = ("_queries", "count")

    def __init__(self) -> None:
        self._queries: dict[str, dict[PartKey, BatchPart]] = {}
        self.count = 0

    def __len__(self) -> int:
        return self.count

    def open(
        self, mark: BatchMark, offset: int, position: int, since_ms: int, *, proven: bool = True
    ) -> None:
        """A half message was stored behind all others."""
        self._part(mark, since_ms, proven=proven).add(offset, position)
        self.count += 1

    def open_many(self, mark: BatchMark, offsets: Longs, positions: Longs, since_ms: int) -> None:
        """Half messages of one part, whose mark this is, were stored behind all others of it."""
        self._part(mark, since_ms, proven=True).add_many(offsets, positions)
        self.count += len(offsets)

    def _part(self, mark: BatchMark, since_ms: int, *, proven: bool) -> BatchPart:
        """The part that a half message of now belongs to, made if need be."""
        key = (mark.batch, mark.partition, mark.attempt)
        parts = self._queries.setdefault(mark.query, {})
        part = parts.get(key)
        if part is None:
            part = parts[key] = BatchPart(mark.query, key, since_ms, proven=proven)
        part.since_ms = max(part.since_ms, since_ms)
        return part

    def held(self, query: str, key: PartKey) -> int:
        """How many of this part are open."""
        part = self._queries.get(query, {}).get(key)
        return 0 if part is None else len(part)

    def of_query(self, query: str) -> list[BatchPart]:
        """The parts of a query, by batch and partition."""
        return sorted(self._queries.get(query, {}).values(), key=_key_of)

    def queries(self) -> list[str]:
        """The queries that have open half messages."""
        return list(self._queries)

    def close(self, part: BatchPart, count: int) -> None:
        """The first so many of a part are resolved."""
        part.passed(count)
        self.count -= count
        if not part:
            parts = self._queries[part.query]
            del parts[part.key]
            if not parts:
                del self._queries[part.query]

    def lowest(self, otherwise: int) -> int:
        """The lowest queue offset of any, at most `otherwise`."""
        for parts in self._queries.values():
            for part in parts.values():
                otherwise = min(otherwise, part.first_offset)
        return otherwise

    def below(self, position: int, low: int) -> list[int]:
        """Queue offsets, from `low` on, of those below a position of the log, sorted."""
        return sorted(
            offset
            for parts in self._queries.values()
            for part in parts.values()
            for offset, at in part.places()
            if at < position and offset >= low
        )


def _key_of(part: BatchPart) -> PartKey:
    return part.key
