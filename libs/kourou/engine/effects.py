"""What a broker's core asks of the world, in the order in which it must be done.

Lives here: one value for each thing a core may ask for.
May not live here: how it is done (the service's hands).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec

from kourou.engine.history import Question
from kourou.engine.inputs import Buffer, Received, ReplyTo
from kourou.engine.peer import Peer
from kourou.engine.placement import Blank
from kourou.errors import Code
from kourou.protocol.record_columns import RecordColumns
from kourou.protocol.request import Request


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
class Flush:
    """Somebody waits for the disk: flush now (one flush serves all that was appended before it)."""


@dataclass(slots=True)
class Reply:
    """Answer one request."""

    to: ReplyTo
    code: int = Code.SUCCESS
    remark: str = ""
    header: msgspec.Struct | None = None
    body: Sequence[Buffer] = field(default=())


@dataclass(slots=True)
class Notify:
    """Tell a client something it did not ask for; no answer is expected."""

    peer: Peer
    request: Request
    body: Sequence[Buffer] = field(default=())


@dataclass(slots=True)
class AskClient:
    """Ask a client something and bring its answer back as ClientAnswered with this token.

    Made by engine.asking, which also knows when waiting ends: a carrier only transmits.
    """

    token: int
    peer: Peer
    request: Request
    body: Sequence[Buffer]
    timeout_ms: int


@dataclass(frozen=True, slots=True)
class ConfigChanged:
    """A table that `config/*.json` mirrors has changed: topics, groups, offsets or settings."""

    table: str


@dataclass(slots=True)
class Announce:
    """Topics or permissions changed: register with every name server now.

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
class LogWarning:
    """Tell the operator, in the log."""

    text: str


Effect = (
    Append
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
    | LogWarning
)
