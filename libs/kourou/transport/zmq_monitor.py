"""Connection events of a libzmq socket: accepted, ready, refused, lost.

The library reconnects, performs handshakes and drops connections by itself; its monitor is the only
source of these events. An event carries the file descriptor of its connection, by which a server
finds the peer whose connection ended.

State: soft.
"""

from __future__ import annotations

from dataclasses import dataclass

import zmq
from zmq.utils.monitor import parse_monitor_message

from kourou.transport.wire import Happening

_HAPPENINGS: dict[int, Happening] = {
    zmq.EVENT_ACCEPTED: Happening.ACCEPTED,
    zmq.EVENT_HANDSHAKE_SUCCEEDED: Happening.READY,
    zmq.EVENT_CONNECT_RETRIED: Happening.REFUSED,
    zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL: Happening.BAD_GREETING,
    zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL: Happening.BAD_GREETING,
    zmq.EVENT_HANDSHAKE_FAILED_AUTH: Happening.NOT_LET_IN,
    zmq.EVENT_DISCONNECTED: Happening.LOST,
}


MECHANISM_MISMATCH = 0x11000002
"""Event value if the peer uses another mechanism (zmq.h); pyzmq has no name for it.

One side has CURVE keys and the other has none.
"""


@dataclass(frozen=True, slots=True)
class ConnectionEvent:
    """`descriptor` is the connection's file descriptor; meaningless for REFUSED and FAILED."""

    kind: Happening
    descriptor: int


class ZmqMonitor:
    """The event stream of one socket; `socket` is readable when there are events."""

    def __init__(self, watched: zmq.Socket[bytes]) -> None:
        mask = 0
        for event in _HAPPENINGS:
            mask |= event
        self._watched = watched
        self.socket: zmq.Socket[bytes] = watched.get_monitor_socket(mask)

    def read(self) -> list[ConnectionEvent]:
        """Return all events since the last call, oldest first; never blocks."""
        found: list[ConnectionEvent] = []
        while True:
            try:
                parts = self.socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return found
            event = parse_monitor_message(parts)
            kind = _HAPPENINGS.get(int(event["event"]))
            if kind is Happening.BAD_GREETING and int(event["value"]) == MECHANISM_MISMATCH:
                kind = Happening.OTHER_MECHANISM
            if kind is not None:
                found.append(ConnectionEvent(kind, int(event["value"])))

    def close(self) -> None:
        """Stop monitoring; must be called before the monitored socket is closed."""
        self._watched.disable_monitor()
        self.socket.close(linger=0)
