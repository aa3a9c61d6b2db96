"""The listeners of a broker, and the addresses that it advertises.

State: soft.
"""

from __future__ import annotations

from collections.abc import Mapping

from kourou.clock import Clock
from kourou.errors import ConfigError
from kourou.model.limits import PORT_MAX
from kourou.protocol.request import Answerer
from kourou.runtime.core import MEMBERS
from kourou.service.protocol_server import ProtocolServer, ProtocolServers, TransportCallbacks
from kourou.service.remoting_protocol import VIP, RemotingProtocol
from kourou.service.zmq_protocol import ZmqProtocol
from kourou.serving.config import BrokerSettings
from kourou.serving.network_keys import ZMQ_PORT_SHIFT
from kourou.transport.zmq_server import ZmqServer

MILLISECONDS = 1_000
PAIRS_TRIED = 32


class Listening:
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
                self._listen_beside(settings.zmq_port)
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

    def _listen_beside(self, zmq_port: int) -> None:
        port = zmq_port - ZMQ_PORT_SHIFT
        if port <= 0 or not self._is_bound(self.remoting, self._settings.tcp_address(port)):
            self.remoting.listen(self._settings.tcp_listeners)

    @staticmethod
    def _is_bound(carrier: ZmqProtocol | RemotingProtocol, address: str) -> bool:
        try:
            carrier.listen({"internal": address})
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
    def told(self) -> dict[str, str]:
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
