"""The reads that the engine may do while it decides; it has no other access to the outside.

The store implements this interface; tests use a fake that passes the same contract tests. Reads are
served from files already written, so a decision is a function of the inputs and of what was
appended.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Protocol

from kourou.protocol.record.properties import Values
from kourou.replication.epochs import Epochs
from kourou.replication.static_leader import ChunkRead

ANYWHERE = 2**63 - 1
"""Above every position."""


class PropertyTest(Protocol):
    """A predicate for messages. It is called with the values of the properties in `names`.

    Its result depends on them alone. The caller adds to `failed` the messages without a result.
    """

    failed: int

    @property
    def names(self) -> tuple[bytes, ...]:
        """The properties that it needs."""
        ...

    def __call__(self, values: Values, /) -> bool | None:
        """Return True if a message matches; None if it cannot be compared."""
        ...


@dataclass(slots=True)
class QueueRead:
    """The result of reading one queue.

    `run` is all records as one piece of memory: complete encoded records, verified, in queue order,
    `sizes` the bytes of each. `next_offset` follows the last unit examined, matched or not.
    `corrupt_offsets` are quarantined messages that were skipped; a read stops before the second run
    of them. `first_position` and `last_position` are those of the first and last record returned.
    """

    run: memoryview = memoryview(b"")  # noqa: RUF009 - it has no bytes that could change
    sizes: Sequence[int] = ()
    next_offset: int = 0
    min_offset: int = 0
    max_offset: int = 0
    corrupt_offsets: list[int] = field(default_factory=list)
    first_position: int = -1
    last_position: int = -1

    @property
    def records(self) -> list[memoryview]:
        """The records one by one; the reply to a pull sends the run instead."""
        ends = list(accumulate(self.sizes))
        return [self.run[end - size : end] for size, end in zip(self.sizes, ends, strict=True)]


class StoreView(Protocol):
    """Reads of the log and its projections. Positions and offsets are plain integers here."""

    def log_range(self) -> tuple[int, int]:
        """Return the first readable position and the end of the log."""
        ...

    @property
    def dispatched(self) -> int:
        """All records below this position are in their queues."""
        ...

    def topics(self) -> list[str]:
        """Return the topics that have queues, sorted; also those without a configuration."""
        ...

    def queue_ids(self, topic: str) -> list[int]:
        """Return the queues of a topic that were ever written, sorted."""
        ...

    def queue_range(self, topic: str, queue_id: int) -> tuple[int, int] | None:
        """Return the minimum offset and the next offset; None for a queue never written."""
        ...

    def queue_bytes(self, topic: str, queue_id: int, first: int, end: int) -> int:
        """Return the size of the records at offsets [first, end), which are within the range."""
        ...

    def read_queue(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        *,
        max_messages: int,
        max_bytes: int,
        codes: frozenset[int] | None,
        below: int,
        wanted: PropertyTest | None = None,
    ) -> QueueRead:
        """Read records below position `below` from `offset` on, which must be in [min, max].

        `codes` are tag hash codes to keep, None keeps all. `wanted` keeps records by their
        properties; then a read examines at most limits.FILTER_RECORDS_MAX records. The first record
        is returned whatever its size; otherwise the sum of sizes stays within `max_bytes`.
        """
        ...

    def offset_position(self, topic: str, queue_id: int, offset: int) -> int:
        """Return the log position of the message at `offset`; -1 if there is none."""
        ...

    def offset_at(self, topic: str, queue_id: int, position: int) -> int:
        """Return the first offset, from the minimum on, of a message at or above `position`.

        The maximum if there is none, 0 for a queue never written.
        """
        ...

    def record_at(self, position: int) -> memoryview:
        """Return the record at `position`. Raises Rejected if there is none, Corrupt if damaged."""
        ...

    def offset_by_time(self, topic: str, queue_id: int, timestamp_ms: int) -> int:
        """Return the first offset stored at or after `timestamp_ms`, or the maximum offset."""
        ...

    def store_time(self, topic: str, queue_id: int, offset: int) -> int:
        """Return the store time in ms of the message at `offset`; -1 if there is none."""
        ...

    def find_by_key(
        self,
        topic: str,
        key: str,
        *,
        max_count: int,
        begin_ms: int,
        end_ms: int,
        below: int = ANYWHERE,
    ) -> list[memoryview]:
        """Return the newest `max_count` records with this key or unique key, newest first.

        Only complete, verified records count that were stored within [begin, end] and end at or
        below position `below`.
        """
        ...

    def is_recent(self, position: int) -> bool:
        """Return whether the record is likely still in memory (RocketMQ's 40 % rule)."""
        ...

    def read_chunk(self, position: int, limit: int, max_bytes: int) -> ChunkRead:
        """Read whole records of one segment from `position` to `limit`, and its final filler.

        Both are boundaries of records. One record is returned whatever its size. Damaged bytes are
        returned separately, with the reason in `damage`. Raises Rejected if a position is not a
        boundary.
        """
        ...


JOINING = "joining"
"""The state of a replica without a vote; its leader writes all states in capitals."""


@dataclass(frozen=True, slots=True)
class QuorumMember:
    """Another replica of a Raft group, as its leader sees it; positions in bytes.

    `state`: a name of kourou.replication.progress.ReplicationState, or that of JOINING.
    `heard_ms_ago`: None if the leader has not heard from it since it began to lead.
    """

    member: str
    broker_id: int
    state: str
    written: int
    flushed: int
    heard_ms_ago: int | None = None


class Quorum(Protocol):
    """The Raft group of this broker's log, as this replica knows it at this moment.

    The owner of the Raft node implements it. Nothing here changes within a batch of the core.
    """

    @property
    def group(self) -> str:
        """The name of the group."""
        ...

    @property
    def member(self) -> str:
        """The name of this broker in the group."""
        ...

    @property
    def state(self) -> str:
        """The role of this broker: a value of kourou.replication.raft.effects.RaftRole."""
        ...

    @property
    def epoch(self) -> int:
        """The current epoch."""
        ...

    @property
    def epochs(self) -> Epochs:
        """The history of its log, up to the end of what was written; read-only."""
        ...

    @property
    def leader(self) -> str:
        """The leader of that epoch; "" if unknown."""
        ...

    @property
    def leader_address(self) -> str:
        """The address where clients reach the leader; "" if unknown."""
        ...

    @property
    def leader_end(self) -> int:
        """The end of the leader's log when it was last heard; 0 if it never was."""
        ...

    @property
    def confirmed(self) -> int:
        """The position below which the group has committed everything."""
        ...

    def may_acknowledge(self) -> bool:
        """Return whether this replica leads and is certainly the only leader at this moment."""
        ...

    def may_append(self) -> bool:
        """Return whether writes are accepted: not while leadership is transferred.

        The new leader must have all writes first.
        """
        ...

    def followers(self) -> Sequence[QuorumMember]:
        """Return all other replicas, if this one leads."""
        ...
