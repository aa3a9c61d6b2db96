"""The connections of a broker: its listeners, the addresses that it advertises, and its leader.

A follower's connection to its leader is one more protocol server. For each new connection the
leader is a new peer, so messages of an earlier connection have no recipient. Messages that cannot
be sent immediately are dropped: the leader requests them again.

State: soft.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from kourou.broker.config import BrokerSettings
from kourou.clock import Clock
from kourou.errors import ConfigError, KourouError
from kourou.model.limits import PORT_MAX
from kourou.model.ports import ZMQ_PORT_SHIFT
from kourou.protocol.messages.replication import Attached, LogChunk
from kourou.protocol.request import Answerer
from kourou.protocol.wire.frames import Frame, decode_request
from kourou.runtime import MEMBERS, AskClient, Notify, Peer, Received, Reply
from kourou.service.protocol_server import (
    ProtocolServer,
    ProtocolServers,
    TimedReplyTo,
    TransportCallbacks,
)
from kourou.service.remoting_protocol import VIP, RemotingProtocol
from kourou.service.zmq_protocol import ZmqProtocol
from kourou.telemetry.metrics import Family
from kourou.transport.addresses import next_peer_id, split_address
from kourou.transport.curve_keys import ClientCurve
from kourou.transport.rate_limited_log import RateLimitedLog
from kourou.transport.zmq_client import ZmqClientStatistics, ZmqConnection
from kourou.transport.zmq_server import ZmqServer

_log = logging.getLogger("kourou.broker")

MILLISECONDS = 1_000
PAIRS_TRIED = 32


class Listeners:
    """A broker's listeners: for Kourou clients, for replicas, and two for RocketMQ clients."""

    def __init__(
        self,
        settings: BrokerSettings,
        callbacks: TransportCallbacks,
        clock: Clock,
        server_type: type[ZmqServer] = ZmqServer,
        *others: ProtocolServer,
    ) -> None:
        """`others` are protocol servers that have peers but no listeners."""
        self._settings = settings
        self.zmq = ZmqProtocol(
            Answerer.BROKER,
            callbacks,
            clock,
            insecure_network=settings.insecure_network,
            server_type=server_type,
            curve=settings.server_curve,
        )
        self.remoting = RemotingProtocol(
            Answerer.BROKER,
            callbacks,
            clock,
            insecure_network=settings.insecure_network,
            idle_ms=settings.idle_seconds * MILLISECONDS,
            tls=settings.server_tls,
        )
        self.protocols = ProtocolServers(self.zmq, self.remoting, *others)

    def listen(self) -> None:
        """Bind all listeners. Must be called on the running loop.

        Raises ConfigError if a port is in use; then the ports that were bound are released.
        """
        settings = self._settings
        try:
            if settings.replication_enabled:
                # Replicas of a Raft group forward client requests.
                also = Answerer.BROKER if settings.raft_enabled else None
                self.zmq.listen(
                    {MEMBERS: settings.members_bind_address},
                    Answerer.MEMBER,
                    also,
                    settings.members_curve,
                )
            if settings.listen_port or not settings.tcp_enabled:
                self.zmq.listen({"internal": settings.zmq_bind_address})
                self.remoting.listen(settings.tcp_listeners)
            elif settings.zmq_port:
                self.zmq.listen({"internal": settings.zmq_bind_address})
                self._listen_at_paired_port(settings.zmq_port)
            else:
                self._listen_anywhere()
        except BaseException:
            self.protocols.close()
            raise

    def _listen_anywhere(self) -> None:
        """Bind free ports that have the same distance as configured ones.

        A Kourou client knows the ZeroMQ port, while message ids contain the TCP port.
        """
        address = self._settings.zmq_address
        for _ in range(PAIRS_TRIED):
            self.remoting.listen(self._settings.tcp_listeners)
            port = self.remoting.port("internal") + ZMQ_PORT_SHIFT
            if port <= PORT_MAX and self._is_bound(self.zmq, address(port)):
                return
            self.remoting.close()
        self.remoting.listen(self._settings.tcp_listeners)
        self.zmq.listen({"internal": address(0)})

    def _listen_at_paired_port(self, zmq_port: int) -> None:
        port = zmq_port - ZMQ_PORT_SHIFT
        if port <= 0 or not self._is_bound(self.remoting, self._settings.tcp_address(port)):
            self.remoting.listen(self._settings.tcp_listeners)

    @staticmethod
    def _is_bound(protocol: ZmqProtocol | RemotingProtocol, address: str) -> bool:
        try:
            protocol.listen({"internal": address})
        except ConfigError:  # in use by another process; another port is tried
            return False
        return True

    def pause_clients(self) -> None:
        """Stop receiving from clients; replicas are still served."""
        self.zmq.pause(but=MEMBERS)
        self.remoting.pause()

    @property
    def dial(self) -> Mapping[str, str]:
        """The client addresses by transport: the advertised host and the bound port."""
        host = self._settings.broker_ip
        found = {"zmq": f"{host}:{self.zmq.server().port}"}
        if self._settings.tcp_enabled:
            found["tcp"] = f"{host}:{self.remoting.port('internal')}"
        return found

    @property
    def members_address(self) -> str:
        """The address for replicas of the log; "" if replication is off."""
        if not self._settings.replication_enabled:
            return ""
        return f"{self._settings.broker_ip}:{self.zmq.server(MEMBERS).port}"

    @property
    def store_port(self) -> int:
        """The port in stored records and message ids."""
        tcp_port = self.remoting.port("internal") if self._settings.tcp_enabled else None
        return self._settings.store_port(self.zmq.server().port, tcp_port)

    @property
    def addresses(self) -> dict[str, str]:
        """The listening addresses, for people and for the parent process."""
        dial = self.dial
        found = {"zmq": f"tcp://{dial['zmq']}"}
        if "tcp" in dial:
            found["tcp"] = dial["tcp"]
        if self.members_address:
            found["replication"] = f"tcp://{self.members_address}"
        if VIP in self._settings.tcp_listeners:
            found["tcp:vip"] = f"{self._settings.broker_ip}:{self.remoting.port(VIP)}"
        return found


# -- the connection to the leader ------------------------------------------------------------------


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
        self._on_connected = connected
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
        _log.info(
            "leader-connected: connected to the leader at %(address)s", {"address": self.address}
        )
        self._on_connected(self._peer, self.leader)

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
            self._complaints.warning(
                "leader-message-dropped: dropped a message from the leader: %(error)s",
                {"error": error},
            )
            return
        if not isinstance(request, LEADERS):
            kind = type(request).__name__
            self._complaints.warning(
                "leader-message-unexpected: dropped a message from the leader: unexpected type "
                "%(type)s",
                {"type": kind},
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
