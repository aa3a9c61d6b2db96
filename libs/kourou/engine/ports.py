"""What the engine may ask of the world while it decides: reads, and nothing else.

The store implements this; tests give a fake that passes the same contract tests. Reads are answered
from files already written, so a decision stays a function of the inputs and of what was appended.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from kourou.protocol.properties import Values
from kourou.replication.epochs import Epochs
from kourou.replication.shipping import Chunk

ANYWHERE = 2**63 - 1
"""Above every position."""


class PropertyTest(Protocol):
    """Is a message wanted? Asked with its values of the properties in `names`."""

    @property
    def names(self) -> tuple[bytes, ...]:
        """The properties that decide."""
        ...

    def __call__(self, values: Values, /) -> bool:
        """True if it is wanted."""
        ...


@dataclass(slots=True)
class QueueRead:
    """What a read of one queue found.

    `records` are whole encoded records, verified, in queue order. `next_offset` lies after the last
    unit looked at, matched or not. `corrupt_offsets` are quarantined messages that were passed
    over; a read stops before the second run of them. `last_position` is that of the last record
    returned. `run` is all records as one piece of memory, where they lie back to back in the log.
    """

    records: list[memoryview] = field(default_factory=list)
    next_offset: int = 0
    min_offset: int = 0
    max_offset: int = 0
    size_bytes: int = 0
    corrupt_offsets: list[int] = field(default_factory=list)
    last_position: int = -1
    run: memoryview | None = None


class StoreView(Protocol):
    """Reads of the log and its projections. Positions and offsets are plain integers here."""

    def log_range(self) -> tuple[int, int]:
        """First readable position and the end of what was appended."""
        ...

    def topics(self) -> list[str]:
        """The topics that have queues, sorted; also those that no table names any more."""
        ...

    def queue_ids(self, topic: str) -> list[int]:
        """The queues of a topic that were ever written, sorted."""
        ...

    def queue_range(self, topic: str, queue_id: int) -> tuple[int, int] | None:
        """Minimum offset and the next offset to be written; None for a queue never written."""
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
        """Read from `offset` (which must lie in [min, max]) what lies below position `below`.

        `codes` are tag hash codes to keep, None keeps all; `wanted` keeps records by their
        properties, and then a read looks at limits.FILTER_RECORDS_MAX records at most. The first
        record is returned whatever its size; otherwise the sum of sizes stays within `max_bytes`.
        """
        ...

    def offset_position(self, topic: str, queue_id: int, offset: int) -> int:
        """The log position of the message at `offset`; -1 if there is none."""
        ...

    def offset_at(self, topic: str, queue_id: int, position: int) -> int:
        """The first offset, from the minimum on, whose message lies at or above `position`.

        The maximum if there is none, 0 for a queue never written.
        """
        ...

    def record_at(self, position: int) -> memoryview:
        """The verified record at `position`; Rejected if none starts there, Corrupt if it fails."""
        ...

    def offset_by_time(self, topic: str, queue_id: int, timestamp_ms: int) -> int:
        """The first offset stored at or after `timestamp_ms`; the maximum if there is none."""
        ...

    def store_time(self, topic: str, queue_id: int, offset: int) -> int:
        """Store time in ms of the message at `offset`; -1 if there is none."""
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
        """The newest `max_count` records of a topic with this key or unique key, newest first.

        Only whole, verified ones that were stored within [begin, end] and end at or below position
        `below`; nothing else counts.
        """
        ...

    def is_recent(self, position: int) -> bool:
        """True when the record is likely still in memory (RocketMQ's 40 % rule)."""
        ...

    def read_chunk(self, position: int, limit: int, max_bytes: int) -> Chunk:
        """Whole records of one segment from `position` on, up to `limit`, and what closes it.

        Both are boundaries of records. One record is returned whatever its size; damaged bytes come
        by themselves, and `damage` says so. Raises Rejected for what is no boundary.
        """
        ...


JOINING = "joining"
"""How the state of a member without a vote is called; its leader writes all states in capitals."""


@dataclass(frozen=True, slots=True)
class QuorumMember:
    """Another member of a Raft group, as its leader sees it; positions in bytes.

    `state`: a name of kourou.replication.progress.State, or that of JOINING. `heard_ms_ago`: None
    if it was not heard since this leader began.
    """

    member: str
    broker_id: int
    state: str
    written: int
    flushed: int
    heard_ms_ago: int | None = None


class Quorum(Protocol):
    """The Raft group that this broker's log is of, as its member of it knows it at this moment.

    Whoever owns the member implements it; nothing here changes within a turn of the core.
    """

    @property
    def group(self) -> str:
        """Its name."""
        ...

    @property
    def member(self) -> str:
        """Which member this broker is."""
        ...

    @property
    def state(self) -> str:
        """What it is: a value of kourou.replication.raft.effects.Role."""
        ...

    @property
    def epoch(self) -> int:
        """The epoch it is in."""
        ...

    @property
    def epochs(self) -> Epochs:
        """The history of its log, up to the end of what was written; not to be changed."""
        ...

    @property
    def leader(self) -> str:
        """Who leads that epoch; "" if nobody is known to."""
        ...

    @property
    def leader_address(self) -> str:
        """Where clients find the leader; "" while that is not known."""
        ...

    @property
    def leader_end(self) -> int:
        """Where the leader's log ended when it was last heard; 0 if it never was."""
        ...

    @property
    def leader_heard_ms_ago(self) -> int | None:
        """How long ago a leader was heard; None for the leader itself, and if none was."""
        ...

    @property
    def confirmed(self) -> int:
        """What lies below is held by a majority for good."""
        ...

    def may_acknowledge(self) -> bool:
        """Whether this member leads and is sure to be the only one, at this very moment."""
        ...

    def may_append(self) -> bool:
        """Whether it takes writes; not while it lets another member lead, which needs them all."""
        ...

    def followers(self) -> Sequence[QuorumMember]:
        """All other members, if this one leads."""
        ...
