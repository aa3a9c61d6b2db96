"""The interface between a client connection and the socket under it, in clear text or encrypted."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from kourou.model import limits
from kourou.transport.tcp_link import Buffer


class WireEvent(enum.Enum):
    """An event of a connection.

    Each except ACCEPTED and READY ends it, or comes just before its end. REFUSED, UNKNOWN_HOST: it
    could not be opened. BAD_GREETING, OTHER_MECHANISM, NOT_LET_IN: it was opened, but the handshake
    failed. LOST: it closed.
    """

    ACCEPTED = enum.auto()
    READY = enum.auto()
    REFUSED = enum.auto()
    UNKNOWN_HOST = enum.auto()
    BAD_GREETING = enum.auto()
    OTHER_MECHANISM = enum.auto()
    NOT_LET_IN = enum.auto()
    LOST = enum.auto()


FAILED = (WireEvent.BAD_GREETING, WireEvent.OTHER_MECHANISM, WireEvent.NOT_LET_IN)
"""Failed handshakes; LOST follows."""


UNOPENED = {
    WireEvent.REFUSED: "connection refused or unreachable",
    WireEvent.UNKNOWN_HOST: "its host name cannot be resolved",
}
"""Why a connection could not be opened."""


@dataclass(frozen=True, slots=True)
class WireTimeouts:
    """Timeouts (in ms) and limits of a client connection.

    `reconnect_ms_max`: longest pause between two attempts. `connect_ms`: limit of one attempt to
    connect; 0 uses the system's limit. `unread_ms`: limit for the remote machine to acknowledge
    sent bytes; 0 uses the system's limit. `greeting_ms`: limit for the server's handshake.
    `probe_ms`: heartbeat interval. `silence_ms`: silence after which the connection is lost.
    `pipe_messages`: messages that may be queued for the socket. `busy_poll_us`: how long the loop
    polls for a reply before it sleeps (transport.busy_poll).
    """

    reconnect_ms_max: int = 2_000
    connect_ms: int = 0
    unread_ms: int = 0
    greeting_ms: int = limits.HANDSHAKE_MS_MAX
    probe_ms: int = 2_000
    silence_ms: int = 6_000
    pipe_messages: int = limits.SOCKET_HWM_MESSAGES
    busy_poll_us: int = 0


PATIENT = WireTimeouts()
"""The values of clients."""


class WireOwner(Protocol):
    """Receives the events of its wires on their loop; it may close a wire in any of these calls."""

    def arrived(self, wire: Wire, parts: list[Buffer]) -> None:
        """A message arrived."""

    def room(self) -> None:
        """A send queue is empty again: messages that were refused may be sent now."""

    def happened(self, wire: Wire, kind: WireEvent) -> None:
        """READY: messages may be sent. After LOST and REFUSED the wire is closed."""


class Wire(Protocol):
    """One connection, from the first attempt to its end; never reused."""

    @property
    def is_outdated(self) -> bool:
        """Has its own key pair changed since it was opened?"""
        ...

    def open(self) -> None:
        """Start to connect. Raises ConfigError if a key is missing."""

    def send(self, parts: Sequence[Buffer]) -> bool:
        """Send a message; False if the queue is full. The parts must not be changed afterwards."""

    def gather(self) -> None:
        """Batch the messages sent until the end of the loop iteration."""

    def close(self) -> None:
        """Close it; the owner gets no further events. May be called twice."""
