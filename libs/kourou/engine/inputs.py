"""What can happen to a broker: the inputs of its core.

Everything that other systems do with listeners and back-references comes in again here, at the top
of the loop, as a value.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from kourou.engine.ports import ANYWHERE
from kourou.errors import KourouError
from kourou.runtime.inputs import ClientAnswered, Disconnected, Received, Tick
from kourou.runtime.peer import Peer

if TYPE_CHECKING:
    from kourou.engine.history import Found


@dataclass(frozen=True, slots=True)
class Dispatched:
    """The projections have caught up: (topic, queue id, new maximum offset) that grew.

    The key index may be behind the queues: it has every record that ends at or below `indexed`.
    """

    queues: Sequence[tuple[str, int, int]]
    indexed: int = ANYWHERE


@dataclass(frozen=True, slots=True)
class Written:
    """What was staged below `position` is in the log's files; only where appends are staged."""

    position: int


@dataclass(frozen=True, slots=True)
class Flushed:
    """fdatasync returned; everything below `position` is on disk."""

    position: int


@dataclass(frozen=True, slots=True)
class StoreFailed:
    """An fsync or a write failed; nothing that is not flushed may be acknowledged any more."""

    reason: str


@dataclass(frozen=True, slots=True)
class SpaceChanged:
    """Log space is allocated up to `allocated_end`; `full` says that more cannot be had now."""

    allocated_end: int
    full: bool


class ClosedSegment(NamedTuple):
    """A segment that the log has left behind: positions, and ms since that."""

    start: int
    end: int
    age_ms: int


@dataclass(frozen=True, slots=True)
class DiskMeasured:
    """A look at the store's disk and at the segments that the log has left behind, oldest first.

    `full`: the disk refused space since the last look. `hour`: of the wall clock, local time.
    `deletable_end`: only segments below this position may go. `events_projected`: how many control
    events the event store has, None if there is to be none.
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
    """A deletion of old segments has ended; the log now begins at `start`."""

    start: int


@dataclass(frozen=True, slots=True)
class HistoryAnswered:
    """The event database has answered a request's question, or could not: `error` says why."""

    received: Received
    found: Found | None = None
    error: KourouError | None = None


@dataclass(frozen=True, slots=True)
class Announced:
    """All name servers that can be reached know what was announced up to `number`."""

    number: int


@dataclass(frozen=True, slots=True)
class LeaderConnected:
    """A follower has a connection to its leader; its messages come from this peer.

    `address`: where clients find that leader, "" if nobody said so.
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
    """A majority of the Raft group holds everything below `position` for good."""

    position: int


@dataclass(frozen=True, slots=True)
class Fenced:
    """A name server knows this epoch of another member: what outdid a leader, or what a follower
    must outdo if it is promoted."""

    epoch: int


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
    | Written
    | HistoryAnswered
    | ClientAnswered
    | Announced
    | LeaderConnected
    | Copied
    | NotCopied
    | Confirmed
    | Fenced
)
