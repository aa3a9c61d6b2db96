"""What a broker's core asks of the world, in the order in which it must be done."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from kourou.protocol.request import Request
from kourou.runtime.effects import AskClient, LogWarning, Notify, Reply
from kourou.runtime.inputs import Buffer, Received, ReplyTo

if TYPE_CHECKING:
    from kourou.engine.history import Question
    from kourou.protocol.record_columns import RecordColumns


class Blank(NamedTuple):
    """A filler: `size` bytes from `position` to the end of its segment."""

    position: int
    size: int


@dataclass(slots=True)
class Append:
    """Write these bytes at the log's end and project them.

    `pieces` are (position, bytes) in log order, each inside one segment; `blanks` close the
    segments that were left. `end` is the log's end afterwards. `records` are those of a single
    piece as columns, where they are known. `to` is whose records they are, if that request is
    traced.
    """

    pieces: list[tuple[int, Buffer]]
    blanks: list[Blank]
    end: int
    records: RecordColumns | None = None
    to: ReplyTo | None = None


@dataclass(frozen=True, slots=True)
class Project:
    """Somebody waits for messages that were appended: project them once the replies have left.

    Without it, what was appended is projected a little later, together with what comes meanwhile.
    """


@dataclass(frozen=True, slots=True)
class Flush:
    """Somebody waits for the disk: flush now (one flush serves all that was appended before it)."""


@dataclass(frozen=True, slots=True)
class ConfigChanged:
    """A table that a file mirrors has changed: topics, groups, offsets, filters; or settings."""

    table: str


@dataclass(slots=True)
class Announce:
    """Topics, permissions or filter servers changed: register with every name server now.

    Come back with Announced(number) when all that can be reached know it.
    """

    number: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class DropTopic:
    """A topic was deleted: its queues go; its records stay in the log until they expire."""

    topic: str


@dataclass(frozen=True, slots=True)
class DeleteLogBefore:
    """Delete the segments below `position` and what only names them; flush first, then say so."""

    position: int


@dataclass(frozen=True, slots=True)
class CleanProjections:
    """Delete files of queues and index that name only what the log no longer has."""


@dataclass(frozen=True, slots=True)
class DiskStarving:
    """The disk is all but full (or no longer): spare it what can be spared (or no longer)."""

    starving: bool


@dataclass(frozen=True, slots=True)
class AskHistory:
    """Ask the event database, off the loop, and come back with HistoryAnswered, whatever happens.

    It must have the events below offset `upto` first. `wait_ms` is how long that may take.
    """

    received: Received
    question: Question
    upto: int
    wait_ms: int


@dataclass(frozen=True, slots=True)
class Wake:
    """Come back with a Tick in so many ms, though none is due yet; 0: as soon as others had a turn.

    A later one replaces it.
    """

    after_ms: int


@dataclass(frozen=True, slots=True)
class CopyChunk:
    """Append a leader's bytes, which reach from `position` to `end`, and project them.

    Come back with Copied(end), or with NotCopied. `damage`: why they are no readable records.
    """

    position: int
    end: int
    data: Buffer
    damage: str = ""


@dataclass(frozen=True, slots=True)
class SaveEpochs:
    """Write down durably that the log has these epochs: (epoch, start); before a byte is shipped.

    From then on a start recovers the log as one that others have, too.
    """

    pairs: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class CutLog:
    """What lies from `position` on is not the leader's: cut it, and start the core anew.

    Nothing below `confirmed` may be cut: then stop, and tell the operator.
    """

    position: int
    confirmed: int


@dataclass(frozen=True, slots=True)
class BeginLog:
    """The leader's log begins at `position`, above what this one has: begin an empty one there.

    Ask the leader what was decided before it, then start the core anew; if that fails, it is asked
    for again. What lies from `common` on was no leader's: it is kept for the operator.
    """

    position: int
    common: int


@dataclass(frozen=True, slots=True)
class ChangeRole:
    """Make the core anew, from the same store, as a leader or as a follower; it says nothing more.

    A leader opens `epoch` first and registers as brokerId 0; a follower follows who opened `epoch`.
    """

    leads: bool
    epoch: int


@dataclass(frozen=True, slots=True)
class Forward:
    """Have a request done by the member that leads, and give its answer to who asked.

    `deadline_ms` is monotonic and absolute, 0 for none. What may have been done when no answer
    comes is answered OUTCOME_UNKNOWN, what surely was not NotLeader.
    """

    member: str
    to: ReplyTo
    request: Request
    body: Sequence[Buffer]
    deadline_ms: int = 0


@dataclass(frozen=True, slots=True)
class HandOver:
    """Let another member of the Raft group lead; the one that is furthest if `target` is ""."""

    target: str = ""


Effect = (
    Append
    | Project
    | Flush
    | Reply
    | Notify
    | ConfigChanged
    | Announce
    | DropTopic
    | DeleteLogBefore
    | CleanProjections
    | DiskStarving
    | AskHistory
    | AskClient
    | Wake
    | CopyChunk
    | SaveEpochs
    | CutLog
    | BeginLog
    | ChangeRole
    | Forward
    | HandOver
    | LogWarning
)
