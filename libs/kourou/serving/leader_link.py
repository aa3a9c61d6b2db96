"""A follower's connection to its leader, as one more protocol server.

For each new connection the leader is a new peer, so messages of an earlier connection have no
recipient. Messages that cannot be sent immediately are dropped: the leader requests them again.

State: soft.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from kourou.clock import Clock
from kourou.errors import KourouError
from kourou.protocol.messages.replication import Attached, LogChunk
from kourou.protocol.wire.frames import Frame, decode_request
from kourou.runtime.core import AskClient, Notify, Peer, Received, Reply
from kourou.service.protocol_server import TimedReplyTo, TransportCallbacks
from kourou.telemetry.metrics import Family
from kourou.transport.addresses import split_address
from kourou.transport.curve import ClientCurve
from kourou.transport.peer_ids import next_peer_id
from kourou.transport.rate_limited_log import RateLimitedLog
from kourou.transport.zmq_client import ZmqClientStatistics, ZmqConnection

_log = logging.getLogger("kourou.broker")

LEADERS = (Attached, LogChunk)
"""The messages of a leader; all others on this connection are dropped."""


class LeaderLink:
    """Connects to one leader. `connected` is called with each connection and the leader's address.

    `leader` is the leader's address for clients, if known. All calls must be made on the running
    loop.
    """

    name = "leader"

    def __init__(
        self,
        callbacks: TransportCallbacks,
        connected: Callable[[Peer, str], None],
        clock: Clock,
        curve: ClientCurve | None = None,
    ) -> None:
        self._callbacks = callbacks
        self._told = connected
        self._curve = curve
        self._clock = clock
        self._complaints = RateLimitedLog(_log, clock)
        self._connection: ZmqConnection | None = None
        self._peer: Peer | None = None
        self._paused = False
        self.address = ""
        self.leader = ""

    @property
    def connected(self) -> bool:
        """Is the connection established?"""
        return self._peer is not None

    def follow(self, address: str) -> None:
        """Connect to this leader, `host:port` of its listener for replicas, from now on.

        "" disconnects; the current address changes nothing.
        """
        if self._connection is not None and address == self.address:
            return
        self.part()
        self.address = address
        if address and not self._paused:
            connection = ZmqConnection(
                address, on_notify=self._heard, clock=self._clock, curve=self._curve
            )
            connection.on_connected, connection.on_lost = self._connected, self._lost
            self._connection = connection

    def part(self) -> None:
        """Close the connection; `follow` opens one again."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
        self._lost()

    def _connected(self) -> None:
        self._lost()
        self._peer = Peer(next_peer_id(), self.name, split_address(self.address), self.name)
        _log.info("connected to the leader at %s", self.address)
        self._told(self._peer, self.leader)

    def _lost(self) -> None:
        peer, self._peer = self._peer, None
        if peer is not None:
            self._callbacks.disconnected(peer)

    def _heard(self, frame: Frame) -> None:
        if self._peer is None:
            return
        try:
            request = decode_request(frame)
        except KourouError as error:
            self._complaints.warning("bad", "dropped a message from the leader: %s", error)
            return
        if not isinstance(request, LEADERS):
            kind = type(request).__name__
            self._complaints.warning(
                "kind", "dropped a message from the leader: unexpected type %s", kind
            )
            return
        to = TimedReplyTo(self._peer, 0, oneway=True, request_code=request.code)
        self._callbacks.arrived([Received(to, request, frame.body, self._clock.now_ms())])

    # -- as a protocol server ---------------------------------------------------------------------

    def reply(self, reply: Reply) -> None:
        """Do nothing: a leader's messages require no reply."""

    def notify(self, notice: Notify) -> None:
        """Send a message to the leader, if that connection is still open."""
        if notice.peer == self._peer and self._connection is not None:
            self._connection.oneway(notice.request, body=notice.body)

    def ask(self, question: AskClient) -> None:
        """Do nothing: a leader is never sent requests as a client is."""

    def pause(self) -> None:
        """Disconnect, and stop receiving."""
        self._paused = True
        self.part()

    def close(self) -> None:
        """Disconnect; there is no listener."""
        self.pause()

    def statistics(self) -> Mapping[str, ZmqClientStatistics]:
        """Return the counters of the current connection."""
        return {} if self._connection is None else {self.address: self._connection.statistics()}

    def families(self, base: Mapping[str, str]) -> list[Family]:
        """Return nothing: the leader's listeners count this connection."""
        del base
        return []
