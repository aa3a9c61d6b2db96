"""The inputs of a broker's core: what can happen to a broker.

Other systems use listeners and back-references for this. Here, everything enters as a value, at the
top of the loop.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from kourou.engine.ports import ANYWHERE
from kourou.errors import KourouError
from kourou.runtime import ClientAnswered, Disconnected, Peer, Received, Tick

if TYPE_CHECKING:
    from kourou.access.plain_acl import ImportedAcl
    from kourou.engine.admin.history import Found


@dataclass(frozen=True, slots=True)
class Dispatched:
    """The projections have caught up; `queues` has (topic, queue ID, new maximum offset).

    The key index may be behind the queues: it has every record that ends at or below `indexed`.
    """

    queues: Sequence[tuple[str, int, int]]
    indexed: int = ANYWHERE


@dataclass(frozen=True, slots=True)
class LogWritten:
    """The staged bytes below `position` are in the log's files; only if appends are staged."""

    position: int


@dataclass(frozen=True, slots=True)
class Flushed:
    """fdatasync returned; everything below `position` is on disk."""

    position: int


@dataclass(frozen=True, slots=True)
class StoreFailed:
    """An fsync or a write failed; unflushed records must not be acknowledged any more."""

    reason: str


@dataclass(frozen=True, slots=True)
class SpaceChanged:
    """Log space is allocated up to `allocated_end`; `full`: no more is available now."""

    allocated_end: int
    full: bool


class ClosedSegment(NamedTuple):
    """A segment that the log no longer appends to: positions, and ms since then."""

    start: int
    end: int
    age_ms: int


@dataclass(frozen=True, slots=True)
class DiskMeasured:
    """A measurement of the store's disk and of the closed segments, oldest first.

    `full`: the disk refused space since the last measurement. `hour`: of the wall clock, local
    time. `deletable_end`: only segments below this position may be deleted. `events_projected`: how
    many control events the event store has, None if there is no event store.
    """

    total_bytes: int
    free_bytes: int
    wall_ms: int
    hour: int
    segments: Sequence[ClosedSegment] = ()
    deletable_end: int = 0
    full: bool = False
    events_projected: int | None = None


@dataclass(frozen=True, slots=True)
class LogShrunk:
    """Old segments were deleted; the log now begins at `start`."""

    start: int


@dataclass(frozen=True, slots=True)
class HistoryAnswered:
    """The event database has replied to a query, or failed: `error` has the reason."""

    received: Received
    found: Found | None = None
    error: KourouError | None = None


@dataclass(frozen=True, slots=True)
class UsersRead:
    """The users in the files of `aclImportDir`, after a change and again from time to time."""

    found: ImportedAcl
    wall_ms: int


@dataclass(frozen=True, slots=True)
class RegistrationDone:
    """All reachable name servers know the registrations up to `number`."""

    number: int


@dataclass(frozen=True, slots=True)
class LeaderConnected:
    """A follower has a connection to its leader; the leader's messages come from this peer.

    `address`: where clients reach that leader, "" if unknown.
    """

    peer: Peer
    address: str = ""


@dataclass(frozen=True, slots=True)
class Copied:
    """The leader's bytes up to `end` are in the log's files."""

    end: int


@dataclass(frozen=True, slots=True)
class NotCopied:
    """The leader's bytes could not be stored; the log ends at `end`."""

    end: int
    reason: str


@dataclass(frozen=True, slots=True)
class Confirmed:
    """A majority of the Raft group has committed everything below `position`."""

    position: int


@dataclass(frozen=True, slots=True)
class Fenced:
    """A name server knows this epoch of another replica.

    It replaces a leader with a lower epoch. A follower must exceed it if it is promoted.
    """

    epoch: int


RoleInput = LeaderConnected | Copied | NotCopied | Confirmed | Fenced
"""What concerns the replicas of the log; the role of the broker handles it."""

Input = (
    Received
    | Disconnected
    | Dispatched
    | Flushed
    | StoreFailed
    | SpaceChanged
    | DiskMeasured
    | LogShrunk
    | Tick
    | LogWritten
    | HistoryAnswered
    | UsersRead
    | ClientAnswered
    | RegistrationDone
    | RoleInput
)
