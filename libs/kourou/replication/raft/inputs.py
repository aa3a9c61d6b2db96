"""What may happen to a member of a Raft group.

The shell hands these over in the order in which they happened; above all, `Appended` comes before
any message that arrived after the append.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from kourou.protocol.messages.replication import (
    AskVote,
    ChunkAck,
    FetchLogResponse,
    LogChunk,
    StandNow,
    Vote,
)

Message: TypeAlias = LogChunk | ChunkAck | AskVote | Vote | StandNow
Buffer: TypeAlias = bytes | bytearray | memoryview


@dataclass(frozen=True, slots=True)
class Received:
    """A message of another member; `body` belongs to a LogChunk."""

    message: Message
    body: Buffer = b""


@dataclass(frozen=True, slots=True)
class Appended:
    """This member, leading `epoch`, has appended to its log, which now ends at `end`."""

    epoch: int
    end: int


@dataclass(frozen=True, slots=True)
class Flushed:
    """All bytes below `end` that were written before the flush began are on disk.

    A flush that began before a cut is not reported after it.
    """

    end: int


@dataclass(frozen=True, slots=True)
class VoteSaved:
    """The oldest SaveVote that was not answered yet is done: it survives a power loss."""


@dataclass(frozen=True, slots=True)
class LogCut:
    """The CutLog is done: nothing of what lay beyond comes back, whatever happens."""


@dataclass(frozen=True, slots=True)
class LogBegun:
    """The BeginLog is done: the log is empty and starts where it was told to.

    Or at `position`, if that is above: others have deleted more of theirs meanwhile, and the byte
    before it was of `epoch`.
    """

    position: int = -1
    epoch: int = 0


@dataclass(frozen=True, slots=True)
class WriteFailed:
    """The chunk for `position` was not written, nor any after it: its bytes are bad, or no room."""

    position: int


@dataclass(frozen=True, slots=True)
class Fetched:
    """The answer to a Fetch."""

    serial: int
    answer: FetchLogResponse
    body: Buffer


@dataclass(frozen=True, slots=True)
class FetchFailed:
    """A Fetch came to nothing."""

    serial: int


@dataclass(frozen=True, slots=True)
class Discarded:
    """This member's log begins at `first_position` now: retention took what was before.

    All of that was confirmed, and on this member's own disk.
    """

    first_position: int


@dataclass(frozen=True, slots=True)
class HandOver:
    """An operator wants `target` to lead; the member furthest ahead, if it is ""."""

    target: str = ""


@dataclass(frozen=True, slots=True)
class StoreFailed:
    """The disk failed: this member takes part in nothing any more."""

    reason: str


Input: TypeAlias = (
    Received
    | Appended
    | Flushed
    | VoteSaved
    | LogCut
    | LogBegun
    | WriteFailed
    | Fetched
    | FetchFailed
    | Discarded
    | HandOver
    | StoreFailed
)
