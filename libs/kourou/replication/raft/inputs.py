"""The inputs of a replica of a Raft group.

The caller passes them in the order in which they happened; in particular, `Appended` comes before
any message that arrived after the append.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, TypeAlias

from kourou.protocol.messages.replication import (
    AskVote,
    ChunkAck,
    FetchLogResponse,
    LogChunk,
    StandNow,
    Vote,
)


class Chance(Protocol):
    """A source of random numbers, seeded by the caller (`random.Random`)."""

    def randint(self, a: int, b: int) -> int:
        """An integer from `a` to `b`, both included."""
        ...


class LogPiece(Protocol):
    """Bytes of the log that are sent together, such as `kourou.store.replica.chunks.Chunk`."""

    @property
    def data(self) -> bytes | memoryview:
        """Whole records and fillers, as they are in the log."""
        ...

    @property
    def end(self) -> int:
        """The position after them: beyond the last byte if a filler closes a segment."""
        ...

    @property
    def damage(self) -> str:
        """Why these bytes may not be sent; "" for good ones."""
        ...


class PieceSource(Protocol):
    """The log as a leader reads it."""

    def read_chunk(self, position: int, limit: int, max_bytes: int) -> LogPiece:
        """Whole records from `position`, a record boundary, up to `limit`, at most `max_bytes`.

        One record is returned whatever its size. An empty piece has `position` as its end.
        """
        ...


Message: TypeAlias = LogChunk | ChunkAck | AskVote | Vote | StandNow
Buffer: TypeAlias = bytes | bytearray | memoryview


@dataclass(frozen=True, slots=True)
class MessageReceived:
    """A message of another replica; `body` belongs to a LogChunk."""

    message: Message
    body: Buffer = b""


@dataclass(frozen=True, slots=True)
class Appended:
    """This replica, leading `epoch`, has appended to its log, which now ends at `end`."""

    epoch: int
    end: int


@dataclass(frozen=True, slots=True)
class LogFlushed:
    """All bytes below `end` that were written before the flush began are on disk.

    A flush that began before a truncation is not reported after it.
    """

    end: int


@dataclass(frozen=True, slots=True)
class VoteSaved:
    """The oldest unconfirmed SaveVote is done: it survives a power loss."""


@dataclass(frozen=True, slots=True)
class LogTruncated:
    """The TruncateLog is done: none of the removed data can come back."""


@dataclass(frozen=True, slots=True)
class LogRestarted:
    """The DiscardLog is done: the log is empty and starts at the requested position.

    Or at `position`, if that is higher, because others have deleted more of theirs in the meantime;
    the byte before it was of `epoch`.
    """

    position: int = -1
    epoch: int = 0


@dataclass(frozen=True, slots=True)
class WriteFailed:
    """The chunk for `position` and all later ones were not written: bad bytes, or no space."""

    position: int


@dataclass(frozen=True, slots=True)
class Fetched:
    """The reply to a Fetch."""

    serial: int
    answer: FetchLogResponse
    body: Buffer


@dataclass(frozen=True, slots=True)
class FetchFailed:
    """A Fetch had no result."""

    serial: int


@dataclass(frozen=True, slots=True)
class SegmentsDeleted:
    """This replica's log now starts at `first_position`: retention deleted the data before.

    All of that was committed, and on this replica's own disk.
    """

    first_position: int


@dataclass(frozen=True, slots=True)
class TransferLeadership:
    """An operator wants `target` to lead; "" selects the most up-to-date replica."""

    target: str = ""


@dataclass(frozen=True, slots=True)
class DiskFailed:
    """The disk failed: this replica stops participating."""

    reason: str


Input: TypeAlias = (
    MessageReceived
    | Appended
    | LogFlushed
    | VoteSaved
    | LogTruncated
    | LogRestarted
    | WriteFailed
    | Fetched
    | FetchFailed
    | SegmentsDeleted
    | TransferLeadership
    | DiskFailed
)
