"""The inputs that the cores of all services share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from kourou.errors import KourouError
from kourou.protocol.request import Request
from kourou.protocol.wire.remoting import VERSION_4_9_8
from kourou.runtime.peer import Peer

Buffer = bytes | bytearray | memoryview
TRACE_BYTES = 25


@dataclass(slots=True)
class ReplyTo:
    """The destination of a reply: the peer, its correlation ID, and whether it expects a reply.

    `trace` is the trace context of the request, which its reply repeats; empty if absent.
    """

    peer: Peer
    correlation: int
    oneway: bool = False
    trace: bytes = b""

    @property
    def traced(self) -> bool:
        """True if the request belongs to a recorded trace, by the last bit of its context."""
        return len(self.trace) == TRACE_BYTES and bool(self.trace[-1] & 1)

    @property
    def language(self) -> str:
        """The language of the client, as RocketMQ names it; clients that use Kourou's frames are
        Python.
        """
        return "PYTHON"

    @property
    def version(self) -> int:
        """The remoting version of the client.

        A client that uses Kourou's frames has the features of RocketMQ 4.9.8.
        """
        return VERSION_4_9_8


@dataclass(slots=True)
class Received:
    """A request arrived.

    `wall_ms` is the wall clock at receipt; `deadline_ms` is monotonic and absolute, 0 for none;
    `trace` is the 25-byte trace context of the frame, empty if absent.
    """

    to: ReplyTo
    request: Request
    body: Sequence[Buffer]
    wall_ms: int
    deadline_ms: int = 0
    trace: bytes = b""


@dataclass(frozen=True, slots=True)
class Disconnected:
    """A connection is closed."""

    peer: Peer


@dataclass(frozen=True, slots=True)
class Tick:
    """Time passed; sent several times a second. `wall_ms` is the wall clock.

    `monotonic_ms` is monotonic time, read together with it; 0 if it is that of the `handle` call.
    """

    wall_ms: int
    monotonic_ms: int = 0


@dataclass(frozen=True, slots=True)
class ClientAnswered:
    """A client replied to this broker's request, or could not be reached: `error` says why.

    `fields` are the fields of the reply's header by their RocketMQ names; texts if the client uses
    remoting.
    """

    token: int
    peer: Peer
    code: int = 0
    remark: str = ""
    fields: Mapping[str, object] = field(default_factory=dict)
    body: Sequence[Buffer] = ()
    error: KourouError | None = None
