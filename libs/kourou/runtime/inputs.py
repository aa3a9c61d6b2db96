"""What can happen to any service: the inputs that all cores share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from kourou.errors import KourouError
from kourou.protocol.remoting import VERSION_4_9_8
from kourou.protocol.request import Request
from kourou.runtime.peer import Peer

Buffer = bytes | bytearray | memoryview
TRACE_BYTES = 25


@dataclass(slots=True)
class ReplyTo:
    """Where an answer goes: the peer, its correlation id, and whether it wants one at all.

    `trace` is the trace context of the request, which its answer repeats; empty when absent.
    """

    peer: Peer
    correlation: int
    oneway: bool = False
    trace: bytes = b""

    @property
    def traced(self) -> bool:
        """Does the request belong to a trace that is recorded? The last bit of its context says."""
        return len(self.trace) == TRACE_BYTES and bool(self.trace[-1] & 1)

    @property
    def language(self) -> str:
        """What the asker is written in, in RocketMQ's words; frames of ours come from Python."""
        return "PYTHON"

    @property
    def version(self) -> int:
        """The remoting version that the asker states (fact sheet §1.5).

        Whoever speaks frames of ours can do what a RocketMQ 4.9.8 can.
        """
        return VERSION_4_9_8


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
class Tick:
    """Time passed; sent several times a second. `wall_ms` is the wall clock.

    `monotonic_ms` is monotonic time, read together with it; 0 where it is that of the turn.
    """

    wall_ms: int
    monotonic_ms: int = 0


@dataclass(frozen=True, slots=True)
class ClientAnswered:
    """A client has answered what this broker asked it, or could not: `error` says why.

    `fields` are the fields of the answer's header by their RocketMQ names; texts where the client
    came in over remoting.
    """

    token: int
    peer: Peer
    code: int = 0
    remark: str = ""
    fields: Mapping[str, object] = field(default_factory=dict)
    body: Sequence[Buffer] = ()
    error: KourouError | None = None
