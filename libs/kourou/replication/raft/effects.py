"""The effects of a replica of a Raft group. They must be executed in order."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from kourou.replication.epochs import TruncateLog
from kourou.replication.raft.inputs import Buffer, Message


class RaftRole(Enum):
    """The current role of a replica."""

    FOLLOWER = "follower"
    PRE_CANDIDATE = "pre-candidate"
    CANDIDATE = "candidate"
    LEADER = "leader"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True)
class Send:
    """A message to another replica; it may be lost. `body` belongs to a LogChunk."""

    member: str
    message: Message
    body: Buffer = b""


@dataclass(frozen=True, slots=True)
class SaveVote:
    """Write epoch and vote ("" for none) to disk, then report VoteSaved; on failure, exit.

    `joining` and `lived` are stored with them (class Ballot).
    """

    epoch: int
    voted_for: str
    joining: bool = False
    lived: bool = True


@dataclass(frozen=True, slots=True)
class WriteChunk:
    """Append bytes of a leader; they open `epoch` if the log's epoch is another one."""

    position: int
    end: int
    epoch: int
    body: Buffer


@dataclass(frozen=True, slots=True)
class FlushLog:
    """Flush written bytes, then report LogFlushed; flushes may be combined."""


@dataclass(frozen=True, slots=True)
class DiscardLog:
    """The leader has no data below `position` any more, and this log ends before it.

    Request the state at the position from another replica, then call `RaftNode.may_begin`. If that
    returns True, discard the log and start an empty one there, durably, then report LogRestarted.
    Until then the log stays unchanged. `epoch` is that of the byte before.
    """

    position: int
    epoch: int


@dataclass(frozen=True, slots=True)
class RoleChanged:
    """The new role of this replica. A leader must first append EpochOpened(epoch, start).

    `start` is the end of its log, -1 for all other roles; `leader` is "" while none is known.
    """

    role: RaftRole
    epoch: int
    leader: str
    start: int = -1


@dataclass(frozen=True, slots=True)
class Committed:
    """Everything below `position` is committed: a majority has it, so it may be read."""

    position: int


@dataclass(frozen=True, slots=True)
class Fetch:
    """Request the log from `position` on from `member`, then report Fetched or FetchFailed."""

    serial: int
    member: str
    position: int
    max_bytes: int


@dataclass(frozen=True, slots=True)
class NeedsRepair:
    """The data at `position` is damaged here and must be fetched from another replica."""

    position: int
    reason: str


@dataclass(frozen=True, slots=True)
class TransferFailed:
    """The leader stays, because `target` did not take over."""

    target: str
    reason: str


@dataclass(frozen=True, slots=True)
class Halt:
    """Stop and raise an alarm: a message contradicts what is committed."""

    reason: str


Effect: TypeAlias = (
    Send
    | SaveVote
    | WriteChunk
    | FlushLog
    | TruncateLog
    | DiscardLog
    | RoleChanged
    | Committed
    | Fetch
    | NeedsRepair
    | TransferFailed
    | Halt
)
