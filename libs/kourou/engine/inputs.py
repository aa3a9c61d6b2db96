"""What can happen to a broker: the inputs of its core.

Lives here: one value for each thing that can happen.
May not live here: where it comes from (transport, timers, threads).

Everything that other systems do with listeners and back-references comes in again here, at the top
of the loop, as a value.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kourou.engine.peer import Peer
from kourou.protocol.request import Request

Buffer = bytes | bytearray | memoryview


@dataclass(frozen=True, slots=True)
class ReplyTo:
    """Where an answer goes: the peer, its correlation id, and whether it wants one at all."""

    peer: Peer
    correlation: int
    oneway: bool = False


@dataclass(slots=True)
class Received:
    """A request arrived.

    `wall_ms` is the wall clock at receipt; `deadline_ms` is monotonic and absolute, 0 for none;
    `trace` is the 25-byte trace context of the frame, empty when absent.
    """

    to: ReplyTo
    request: Request
    body: Sequence[Buffer]
    wall_ms: int
    deadline_ms: int = 0
    trace: bytes = b""


@dataclass(frozen=True, slots=True)
class Disconnected:
    """A connection is gone, with everything that hung on it."""

    peer: Peer


@dataclass(frozen=True, slots=True)
class Dispatched:
    """The projections have caught up: (topic, queue id, new maximum offset) that grew."""

    queues: Sequence[tuple[str, int, int]]


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


@dataclass(frozen=True, slots=True)
class Tick:
    """Time passed; sent several times a second. `wall_ms` is the wall clock."""

    wall_ms: int


Input = Received | Disconnected | Dispatched | Flushed | StoreFailed | SpaceChanged | Tick
