"""Batch transactions: the decisions of each query's coordinator, and their open half messages.

State of the decisions: projection of BatchPrepared, BatchDecided, BatchResolved and
BatchQueryForgotten.

A commit spans several brokers and has two phases. First, every broker records that it has what its
tasks report, and waits (prepared). Then one of them, the query's coordinator, decides: that event
is the commit. Then every broker stores the winners and discards the rest (resolved), the
coordinator last. After a failure the client repeats the request: each step is idempotent.

Invariants:
- resolved <= the last batch known; numbers never decrease
- a decided batch keeps its winners until this broker has resolved it
- a coordinator decides a batch only after the previous one is resolved
- a query that has a user keeps it
- no user displaces the queries of others: each has a share of the table

State of the open half messages: projection of the half queue, in memory, rebuilt at start
(open_halves). Each takes 16 bytes, because a batch may have a million.

The broker sends no check-backs for these half messages and does not put them back. They stay where
they are until their batch is decided, aborted by its writers, or timed out.

Invariants:
- a part is what one attempt wrote of one partition, in the order of the half queue
- a part is resolved from its first half message on; empty parts are removed
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import msgspec
import numpy as np
import numpy.typing as npt

from kourou.errors import BadRequest, Rejected
from kourou.events.control_events import (
    BatchDecided,
    BatchEventBase,
    BatchPrepared,
    BatchQueryForgotten,
    BatchResolved,
    Event,
)
from kourou.model.limits import BATCH_PARTITIONS_MAX, BATCH_QUERIES_MAX, BATCH_QUERIES_USER_MAX
from kourou.model.transaction import BatchMark, BatchQuery


@dataclass(slots=True)
class Batches:
    """All remembered queries by ID, in the order of their last change."""

    table: dict[str, BatchQuery] = field(default_factory=dict)

    def copy(self) -> Batches:
        """An independent copy."""
        return Batches({query: _copy(known) for query, known in self.table.items()})

    def resolved(self, query: str) -> int:
        """Return the last batch of a query that is resolved here; NONE if there is none."""
        known = self.table.get(query)
        return BatchQuery("").resolved if known is None else known.resolved

    def waits(self, query: str, batch: int) -> bool:
        """Return whether half messages of this batch wait to be decided or resolved."""
        known = self.table.get(query)
        return known is not None and known.resolved < batch <= max(known.prepared, known.decided)


def evolve(batches: Batches, event: BatchEventBase, at_ms: int) -> None:
    """Apply one event in place."""
    known = batches.table.pop(event.query, None)
    if isinstance(event, BatchQueryForgotten):
        return
    if known is None:
        known = BatchQuery("")
    match event:
        case BatchPrepared(_, batch, coordinator, messages, user):
            known.coordinator = coordinator
            known.user = known.user or user
            if messages:
                known.prepared = max(known.prepared, batch)
        case BatchDecided(_, batch, winners, counts):
            known.decided = max(known.decided, batch)
            known.winners, known.counts = dict(winners), dict(counts)
        case BatchResolved(_, batch):
            known.resolved = max(known.resolved, batch)
            if known.resolved >= known.decided:
                known.winners, known.counts = {}, {}
    known.at_ms = at_ms
    batches.table[event.query] = known


def decide_prepare(
    batches: Batches, query: str, batch: int, coordinator: str, messages: int, user: str = ""
) -> list[Event]:
    """Record that this broker holds messages of a batch and waits for its coordinator.

    `user` is who prepares it, "" where that is not decided. Raises Rejected while an earlier batch
    waits for another coordinator.
    """
    known = batches.table.get(query)
    if known is not None:
        recorded = known.prepared >= batch or not messages
        recorded = recorded and known.coordinator == coordinator and bool(known.user or not user)
        if known.resolved >= batch or recorded:
            return []
        if known.coordinator != coordinator and known.is_pending:
            raise Rejected(
                f"the coordinator of query {query} is {known.coordinator}, not {coordinator}",
                hint="start that broker again: it may have a decision already",
            )
    forgotten = [] if known is not None else _make_room(batches, user)
    return [*forgotten, BatchPrepared(query, batch, coordinator, messages, user)]


def _make_room(batches: Batches, user: str) -> list[Event]:
    """Forget the least recently used query where a new one has no room: of its user, or of all."""
    own = [query for query, known in batches.table.items() if user and known.user == user]
    if len(own) >= BATCH_QUERIES_USER_MAX:
        candidates = own
    elif len(batches.table) >= BATCH_QUERIES_MAX:
        candidates = list(batches.table)
    else:
        return []
    for query in candidates:
        if not batches.table[query].is_pending:
            return [BatchQueryForgotten(query)]
    raise Rejected(
        f"this broker has unfinished batches of {len(candidates)} queries already, the maximum"
    )


def decide_winners(
    batches: Batches,
    broker: str,
    query: str,
    batch: int,
    winners: Mapping[int, str],
    counts: Mapping[str, int],
) -> list[Event]:
    """Commit a batch; return no events if it, or a later one, is decided already.

    Raises BadRequest if another broker is the coordinator, Rejected while an earlier batch is not
    resolved.
    """
    known = batches.table.get(query)
    if known is None or known.coordinator != broker:
        raise BadRequest(
            f"broker {broker} is not the coordinator of query {query}",
            hint="prepare the batch at this broker first",
        )
    if len(winners) > BATCH_PARTITIONS_MAX:
        raise BadRequest(
            f"the batch has {len(winners)} partitions; at most {BATCH_PARTITIONS_MAX} are allowed"
        )
    if max(known.decided, known.resolved) >= batch:
        return []
    if known.decided > known.resolved:
        raise Rejected(
            f"batch {known.decided} of query {query} is decided, but not resolved yet",
            hint="resolve it first",
        )
    return [BatchDecided(query, batch, dict(winners), dict(counts))]


def decide_resolved(
    batches: Batches, broker: str, query: str, batch: int, *, last: bool
) -> list[Event]:
    """Record that all messages of a batch are stored or discarded. `last`: the query ends with it.

    Raises Rejected if this broker is the coordinator and has not decided this batch.
    """
    check_resolve(batches, broker, query, batch)
    known = batches.table.get(query)
    if known is None:
        return []
    if last:
        return [BatchQueryForgotten(query)]
    if known.resolved >= batch or max(known.prepared, known.decided) < batch:
        return []
    return [BatchResolved(query, batch)]


def check_resolve(batches: Batches, broker: str, query: str, batch: int) -> None:
    """Raise Rejected if this broker must decide this batch first."""
    known = batches.table.get(query)
    if known is None or known.coordinator != broker:
        return
    if max(known.decided, known.resolved) < batch:
        raise Rejected(f"batch {batch} of query {query} is not decided yet")


def decide_forget(batches: Batches, before_ms: int) -> list[Event]:
    """Forget the queries that were not used since `before_ms` (wall time)."""
    events: list[Event] = []
    for query, known in batches.table.items():
        if known.at_ms >= before_ms:
            break
        events.append(BatchQueryForgotten(query))
    return events


def snapshot(batches: Batches) -> list[tuple[str, BatchQuery]]:
    """Return the state for a snapshot; its order is part of it."""
    return [(query, _copy(known)) for query, known in batches.table.items()]


def batches_of(found: list[tuple[str, BatchQuery]]) -> Batches:
    """Return the state from a result of `snapshot`."""
    return Batches(dict(found))


def _copy(known: BatchQuery) -> BatchQuery:
    return msgspec.structs.replace(known, winners=dict(known.winners), counts=dict(known.counts))


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
