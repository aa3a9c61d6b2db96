"""The effects that a broker's core returns, in the order in which they must be executed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from kourou.authorization.access_uses import UsesCounted
from kourou.authorization.audit import AccessDecided
from kourou.protocol.request import Request
from kourou.replication.epochs import TruncateLog
from kourou.replication.raft.inputs import TransferLeadership
from kourou.replication.static_follower import RestartAt
from kourou.runtime import AskClient, Buffer, LogWarning, Notify, Received, Reply, ReplyTo

if TYPE_CHECKING:
    from kourou.engine.admin.history import Question
    from kourou.protocol.record.columns import RecordColumns


class SegmentFiller(NamedTuple):
    """A filler: `size` bytes from `position` to the end of its segment."""

    position: int
    size: int


@dataclass(slots=True)
class Append:
    """Write these bytes at the end of the log and project them.

    `pieces` are (position, bytes) in log order, each inside one segment; `blanks` fill the rest of
    full segments. `end` is the end of the log afterwards. `records` has the records of a single
    piece as columns, if known. `to` is the request that the records come from, if it is traced.
    """

    pieces: list[tuple[int, Buffer]]
    blanks: list[SegmentFiller]
    end: int
    records: RecordColumns | None = None
    to: ReplyTo | None = None


@dataclass(frozen=True, slots=True)
class Project:
    """Project appended messages once the replies have left, because a reader waits for them.

    Without it, appended records are projected a little later, together with those that follow.
    """


@dataclass(frozen=True, slots=True)
class Flush:
    """Flush now, because a reply waits for the disk; one flush covers all earlier appends."""


@dataclass(frozen=True, slots=True)
class ConfigChanged:
    """A table that a file mirrors has changed: topics, groups, offsets, filters; or settings."""

    table: str


@dataclass(slots=True)
class Announce:
    """Register with every name server now: topics, permissions or filter servers changed.

    The executor returns RegistrationDone(number) when all reachable name servers know it.
    """

    number: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class DropTopic:
    """Delete the queues of a deleted topic; its records stay in the log until they expire."""

    topic: str


@dataclass(frozen=True, slots=True)
class DeleteLogBefore:
    """Delete the segments below `position` and files that refer only to them.

    The executor flushes first, and returns LogShrunk afterwards.
    """

    position: int


@dataclass(frozen=True, slots=True)
class CleanProjections:
    """Delete files of queues and index that refer only to deleted records."""


@dataclass(frozen=True, slots=True)
class DiskStarving:
    """Stop (or resume) dispensable disk usage, because the disk is almost full (or no longer)."""

    starving: bool


@dataclass(frozen=True, slots=True)
class AskHistory:
    """Query the event database, off the loop, and return HistoryAnswered in any case.

    The database must have the events below offset `upto` first. `wait_ms` limits that wait.
    """

    received: Received
    question: Question
    upto: int
    wait_ms: int


@dataclass(frozen=True, slots=True)
class Wake:
    """Return a Tick after this many ms, although none is due; 0: after other inputs had a turn.

    A later one replaces it.
    """

    after_ms: int


@dataclass(frozen=True, slots=True)
class CopyChunk:
    """Append a leader's bytes, from `position` to `end`, and project them.

    The executor returns Copied(end) or NotCopied. `damage`: why the bytes are not readable records.
    """

    position: int
    end: int
    data: Buffer
    damage: str = ""


@dataclass(frozen=True, slots=True)
class SaveEpochs:
    """Store durably that the log has these epochs, (epoch, start), before a byte is shipped.

    From then on, a start recovers the log as one that other brokers have, too.
    """

    pairs: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class CopyCompleted:
    """Store durably that this follower has had all of its leader's log."""


@dataclass(frozen=True, slots=True)
class ChangeRole:
    """Recreate the core from the same store, as a leader or a follower; the old core ends.

    A leader opens `epoch` first and registers as brokerId 0. A follower follows the leader of
    `epoch`.
    """

    leads: bool
    epoch: int


@dataclass(frozen=True, slots=True)
class Forward:
    """Forward a request to the leader of the group, and give its reply to the requester.

    `deadline_ms` is monotonic and absolute, 0 for none. `origin` names the user, for the leader. If
    no reply comes, the requester gets OUTCOME_UNKNOWN if the request may have been executed, and
    NotLeader if it was not.
    """

    member: str
    to: ReplyTo
    request: Request
    body: Sequence[Buffer]
    deadline_ms: int = 0
    origin: str = ""


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
    | CopyCompleted
    | TruncateLog
    | RestartAt
    | ChangeRole
    | Forward
    | TransferLeadership
    | LogWarning
    | AccessDecided
    | UsesCounted
)
