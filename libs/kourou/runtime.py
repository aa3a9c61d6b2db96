"""The contract of a core: inputs go in, effects come out.

    effects = core.handle(now_ms, inputs)

An *input* is something that happened (requests received, disk flushed, clock ticked). An *effect*
is something to do (append, flush, send). The core has no asyncio, sockets, files, clock or
randomness; the loop (kourou.service.loop) has all of them and makes no decisions. One task calls
`handle` with everything that has arrived, then executes the effects in order. So there are no
locks, and a batch is the unit of work.

Inputs and effects that the cores of all services share are here; each service adds its own.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, TypeVar

import msgspec

from kourou.access.api_token import owner_of
from kourou.access.model import Door
from kourou.access.signature import SignedFields
from kourou.errors import Code, KourouError
from kourou.model.limits import ACTOR_LENGTH_MAX
from kourou.protocol.request import Request
from kourou.protocol.wire.remoting import VERSION_4_9_8

BUSY_POLL_US = 500
"""How long a loop looks for input before it sleeps: one round trip between processes of one
machine, including some work."""

Input = TypeVar("Input", contravariant=True)
Effect = TypeVar("Effect", covariant=True)


class Core(Protocol[Input, Effect]):
    """The decisions of a service, as a state machine without I/O."""

    def handle(self, now_ms: int, inputs: Sequence[Input]) -> Sequence[Effect]:
        """Process everything that happened since the last call, in order; return the effects, in
        order.

        `now_ms` is monotonic milliseconds for every timeout; inputs contain wall time where it is
        needed.
        """
        ...


MEMBERS = "members"
"""The listener for replicas of a log; it refuses clients."""

_ORIGIN_PARTS = "/"
"""Separates the parts of an Origin; no user's name has one."""


DOORS: Mapping[str, Door] = {"tcp": Door.REMOTING, "zmq": Door.ZEROMQ}
"""Protocols that clients use; a request that names a user comes through a console."""

OWN_LINKS = frozenset({"leader", "raft", "page"})
"""Protocols of connections that a process opened itself, and of its own pages: no listener has
them."""


@dataclass(frozen=True, slots=True)
class Peer:
    """The other end of one connection. `id` is unique within the process and never reused.

    `protocol` names the transport ("zmq", "tcp", "local"), for statistics and for the modes of
    doors. `listener` is the name of the listener that accepted the connection. `key` is the CURVE
    public key (Z85) that the other end proved to have, `subject` that of its TLS certificate
    (kourou.access.subject), which was verified; "" without.
    """

    id: int
    protocol: str
    address: tuple[str, int]
    listener: str = "internal"
    key: str = ""
    subject: str = ""

    def __str__(self) -> str:
        return f"{self.protocol}:{self.address[0]}:{self.address[1]}#{self.id}"


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
    def signed(self) -> SignedFields | None:
        """The fields of a request with an access key, as they were signed; None without one."""
        return None

    def drop_signed(self) -> None:
        """Drop what `signed` keeps: the request was decided, and waits."""

    @property
    def version(self) -> int:
        """The remoting version of the client.

        A client that uses Kourou's frames has the features of RocketMQ 4.9.8.
        """
        return VERSION_4_9_8


class Origin(NamedTuple):
    """From whom a replica has a request that it forwards to its leader.

    `sender` is the user who sent it, "" if that is not known, `named` the user on whose behalf, if
    the sender is a console, `address` the IP address that it came from, and `protocol` that of its
    connection. In a frame it is the text SENDER/NAMED/ADDRESS/PROTOCOL in place of a user.
    """

    sender: str = ""
    named: str = ""
    address: str = ""
    protocol: str = ""

    def __str__(self) -> str:
        return _ORIGIN_PARTS.join(self)

    @classmethod
    def parse(cls, text: str) -> Origin:
        """Read such a text; anything else is an empty Origin."""
        parts = text.split(_ORIGIN_PARTS)
        return cls(*parts) if len(parts) == len(cls._fields) else cls()


_USER, _THROUGH = "User:", " through User:"


def user_of_actor(actor: str) -> str:
    """Return the user that `Received.actor` names, a token's too; "" if no user caused it."""
    if not actor.startswith(_USER):
        return ""
    return owner_of(actor.removeprefix(_USER).partition(_THROUGH)[0])


@dataclass(slots=True)
class Received:
    """A request arrived.

    `wall_ms` is the wall clock at receipt; `deadline_ms` is monotonic and absolute, 0 for none;
    `trace` is the 25-byte trace context of the frame, empty if absent. `user` is who sends it, set
    when that is decided; "" where nothing is decided. `on_behalf_of` is the user whom the frame
    names, a claim; if it is accepted, that is the `user`, and `console` is who sent the frame. On
    the listener for replicas it is an Origin; `forwarded_from` is the address in it.
    """

    to: ReplyTo
    request: Request
    body: Sequence[Buffer]
    wall_ms: int
    deadline_ms: int = 0
    trace: bytes = b""
    user: str = ""
    on_behalf_of: str = ""
    console: str = ""
    forwarded_from: str = ""

    @property
    def actor(self) -> str:
        """Who causes what the request does, for the history: the user if known, else the peer."""
        if not self.user:
            return str(self.to.peer)
        return f"{_USER}{self.user}" + (f"{_THROUGH}{self.console}" if self.console else "")

    def actor_of_client(self, client_id: str) -> str:
        """Who causes what the request does, for the history: the user if known, else the client.

        A client chooses its ID, which must not be taken for a user.
        """
        return self.actor if self.user else f"client {client_id}"[:ACTOR_LENGTH_MAX]

    @property
    def address(self) -> str:
        """The IP address of the client, also of a request that a replica forwards."""
        return self.forwarded_from or self.to.peer.address[0]

    @property
    def source(self) -> str | None:
        """The IP address that the user's rights depend on; None if it is not known.

        The address of a console is not that of the user on whose behalf it sends.
        """
        return None if self.console else self.address

    @property
    def door(self) -> Door | None:
        """How the client sent it, also if a replica forwards it; None if clients have no such door.

        Not by a console if the frame names a user without a right to: such a request is refused.
        """
        named = self.on_behalf_of
        if self.to.peer.listener == MEMBERS:
            named = Origin.parse(named).named
        return Door.HTTP if named else self._own_door

    @property
    def noted_door(self) -> str:
        """The door for the audit, "" for none; http only if it was accepted as a console's."""
        return Door.HTTP if self.console else self._own_door or ""

    @property
    def _own_door(self) -> Door | None:
        """The door of the connection that the frame came by, whatever user the frame names."""
        peer = self.to.peer
        forwarded = peer.listener == MEMBERS
        return DOORS.get(Origin.parse(self.on_behalf_of).protocol if forwarded else peer.protocol)

    @property
    def origin(self) -> str:
        """The Origin of the request as a text, for a replica that forwards it."""
        sender, named = (self.console, self.user) if self.console else (self.user, "")
        return str(Origin(sender, named, self.address, self.to.peer.protocol))


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


@dataclass(slots=True)
class Reply:
    """Reply to one request."""

    to: ReplyTo
    code: int = Code.SUCCESS
    remark: str = ""
    header: msgspec.Struct | None = None
    body: Sequence[Buffer] = field(default=())


@dataclass(slots=True)
class Notify:
    """Send a client a notification; no reply is expected."""

    peer: Peer
    request: Request
    body: Sequence[Buffer] = field(default=())


@dataclass(slots=True)
class AskClient:
    """Send a client a request and return its reply as ClientAnswered with this token.

    engine.groups.client_requests creates it and handles the timeout; a transport only transmits it.
    """

    token: int
    peer: Peer
    request: Request
    body: Sequence[Buffer]
    timeout_ms: int


@dataclass(frozen=True, slots=True)
class LogWarning:
    """Write a warning to the log, for the operator.

    `text` is "event-name: sentence", with %(name)s for each field; see kourou.telemetry.logs.
    """

    text: str
    fields: Mapping[str, object] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.text % self.fields if self.fields else self.text

    @property
    def sentence(self) -> str:
        """The sentence with its values, without the event name."""
        return str(self).partition(": ")[2]

    def write(self, log: logging.Logger, level: int = logging.WARNING) -> None:
        """Write it to this log."""
        log.log(level, self.text, *([self.fields] if self.fields else []))
