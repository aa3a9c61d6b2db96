"""What a member of a Raft group may ask for. They are performed in their order."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from kourou.replication.raft.inputs import Buffer, Message


class Role(Enum):
    """What a member is at a moment."""

    FOLLOWER = "follower"
    PRE_CANDIDATE = "pre-candidate"
    CANDIDATE = "candidate"
    LEADER = "leader"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True)
class Send:
    """A message to another member; it may be lost. `body` belongs to a LogChunk."""

    member: str
    message: Message
    body: Buffer = b""


@dataclass(frozen=True, slots=True)
class SaveVote:
    """Write epoch and vote ("" for none) to disk, then say VoteSaved; who cannot must exit.

    `joining` and `lived` stand with it (ballot.py).
    """

    epoch: int
    voted_for: str
    joining: bool = False
    lived: bool = True


@dataclass(frozen=True, slots=True)
class WriteChunk:
    """Append bytes of a leader, which begin `epoch` if the log's epoch is another one."""

    position: int
    end: int
    epoch: int
    body: Buffer


@dataclass(frozen=True, slots=True)
class FlushLog:
    """Flush what was written, then say Flushed; flushes may be joined."""


@dataclass(frozen=True, slots=True)
class CutLog:
    """Save aside and remove what lies from `position` on, durably, then say LogCut.

    Nothing below `confirmed` may go: the store refuses to.
    """

    position: int
    confirmed: int


@dataclass(frozen=True, slots=True)
class BeginLog:
    """The leader has no byte below `position` any more, and this log ends before.

    Find out from another member what came before, then ask `Member.may_begin`: if it is still
    wanted, throw the log away and begin an empty one there, durably, then say LogBegun. Until then
    the log stays what it is. `epoch` is that of the byte before.
    """

    position: int
    epoch: int


@dataclass(frozen=True, slots=True)
class RoleChanged:
    """What this member is now. A leader's first append is EpochOpened(epoch, start).

    `start` is where its log ends, -1 for all other roles; `leader` is "" while none is known.
    """

    role: Role
    epoch: int
    leader: str
    start: int = -1


@dataclass(frozen=True, slots=True)
class Confirmed:
    """Positions below `position` are held by a majority for good: they may be read."""

    position: int


@dataclass(frozen=True, slots=True)
class Fetch:
    """Ask `member` for the log from `position` on, then say Fetched or FetchFailed."""

    serial: int
    member: str
    position: int
    max_bytes: int


@dataclass(frozen=True, slots=True)
class NeedsRepair:
    """What lies from `position` on is damaged here and is to be fetched from another member."""

    position: int
    reason: str


@dataclass(frozen=True, slots=True)
class HandOverFailed:
    """The leader stays, because `target` did not take over."""

    target: str
    reason: str


@dataclass(frozen=True, slots=True)
class Halt:
    """Stop and alarm: what this member was told contradicts what is confirmed."""

    reason: str


Effect: TypeAlias = (
    Send
    | SaveVote
    | WriteChunk
    | FlushLog
    | CutLog
    | BeginLog
    | RoleChanged
    | Confirmed
    | Fetch
    | NeedsRepair
    | HandOverFailed
    | Halt
)
