"""The RocketMQ remoting (TCP) server of a service: converts between commands and the loop's inputs.

A command with an invalid header, or with a code that this service does not support, gets its reply
here and never reaches the core. If the header cannot be decoded at all, the connection is closed,
because there is no opaque number for a reply.

A reply has the opaque number and the header type of its request; its other header fields are those
of RocketMQ 4.9.8. Codes that only Kourou has are mapped to the closest code that RocketMQ clients
handle.

State: soft.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from kourou.access.signature import ACCESS_KEY, SignedFields
from kourou.clock import Clock
from kourou.errors import BadRequest, Code, DecodeError, KourouError
from kourou.protocol.messages.pulls import PullMessage
from kourou.protocol.messages.sends import SendRefusal
from kourou.protocol.request import Answerer, Header, Request
from kourou.protocol.table import REQUESTS, not_supported
from kourou.protocol.wire.ext_fields import (
    decode_ext_fields,
    decode_usual_header,
    encode_ext_fields,
)
from kourou.protocol.wire.remoting import (
    FLAG_ONEWAY,
    FLAG_RESPONSE,
    NAME_OF_LANGUAGE,
    HeaderType,
    Language,
    RemotingCommand,
    decode_header,
    encode_head,
)
from kourou.runtime import AskClient, ClientAnswered, Notify, Peer, Received, Reply
from kourou.service.protocol_server import TimedReplyTo, TransportCallbacks, connection_families
from kourou.telemetry.metrics import Family
from kourou.transport.remoting_server import IDLE_MS, InboundFrame, RemotingServer
from kourou.transport.tcp_server import TcpServerStatistics
from kourou.transport.tls import ServerTls

VIP = "vip"
"""The name of a broker's second listener, to which clients send; pulls are refused there."""

NO_TOKEN = 0
"""The opaque number of a notification: a reply to it is ignored."""

OWN_CODES_FROM = 30_000
_CODES = {
    Code.DISK_FULL: Code.SERVICE_NOT_AVAILABLE,  # upon this code, clients try another broker
    Code.STORE_FAULTED: Code.SERVICE_NOT_AVAILABLE,
    Code.POLLING_FULL: Code.PULL_NOT_FOUND,
    Code.DEADLINE_PASSED: Code.SYSTEM_BUSY,
}
_SENDS = frozenset({10, 310, 320, 324, 325})
_REGION = encode_ext_fields(SendRefusal())


@dataclass(slots=True)
class RemotingReplyTo(TimedReplyTo):
    """The reply address of a request, and the header format of the reply."""

    header_type: HeaderType = HeaderType.JSON
    language: str = Language.JAVA.name
    version: int = 0
    signed: SignedFields | None = field(default=None, repr=False)

    def drop_signed(self) -> None:
        """Drop what `signed` keeps: the request was decided, and waits."""
        self.signed = None


class RemotingProtocol:
    """All TCP listeners of a service."""

    name = "tcp"

    def __init__(
        self,
        role: Answerer,
        callbacks: TransportCallbacks,
        clock: Clock,
        *,
        insecure_network: bool = False,
        idle_ms: int = IDLE_MS,
        tls: ServerTls | None = None,
    ) -> None:
        self._role = role
        self._callbacks = callbacks
        self._clock = clock
        self._insecure_network = insecure_network
        self._idle_ms = idle_ms
        self._tls = tls
        self._servers: dict[str, RemotingServer] = {}

    def listen(self, listeners: Mapping[str, str]) -> dict[str, str]:
        """Bind each listener's `host:port`; returns the listening addresses by display name.

        Raises ConfigError if an address is in use, or is open to the network without
        insecureNetwork.
        """
        for name, address in listeners.items():
            server = RemotingServer(
                address,
                self._arrived,
                self._callbacks.disconnected,
                listener=name,
                insecure_network=self._insecure_network,
                idle_ms=self._idle_ms,
                tls=self._tls,
                clock=self._clock,
            )
            server.start()
            self._servers[name] = server
        return {
            f"tcp:{name}" if number else "tcp": server.address
            for number, (name, server) in enumerate(self._servers.items())
        }

    def port(self, name: str) -> int:
        """Return the port that a listener is bound to."""
        return self._servers[name].port

    def pause(self) -> None:
        """Stop receiving; replies are still sent."""
        for server in self._servers.values():
            server.pause()

    def close(self) -> None:
        """Close all listeners."""
        for server in self._servers.values():
            server.close()

    # -- receive ----------------------------------------------------------------------------------

    def _arrived(self, frames: list[InboundFrame]) -> None:
        wall_ms = self._clock.now_ms()
        observer = self._callbacks.observer
        arrived_ns = observer.arrived()
        received: list[Received] = []
        closed: set[Peer] = set()
        for inbound in frames:
            peer, frame = inbound.peer, inbound.frame
            if closed and peer in closed:  # what follows such a frame is not trusted
                continue
            header = bytes(frame.header)
            command = decode_usual_header(header) if frame.header_type == HeaderType.JSON else None
            if command is None:
                try:
                    command = decode_header(frame.header_type, header)
                except DecodeError as error:
                    self._servers[peer.listener].cut(peer, str(error))
                    closed.add(peer)
                    continue
            body = (frame.body,) if frame.body else ()
            if command.flag & FLAG_RESPONSE:
                self._callbacks.answered(
                    ClientAnswered(
                        command.opaque,
                        peer,
                        command.code,
                        command.remark or "",
                        command.ext_fields or {},
                        body,
                    )
                )
                continue
            signed, fields = command.signed, command.ext_fields
            if signed is None and fields is not None and ACCESS_KEY in fields:
                signed = SignedFields.of(fields)
            to = RemotingReplyTo(
                peer,
                command.opaque,
                bool(command.flag & FLAG_ONEWAY),
                b"",
                command.code,
                arrived_ns,
                command.header_type,
                NAME_OF_LANGUAGE[command.language],
                command.version,
                signed,
            )
            try:
                request = self._decoded(command, peer.listener)
            except KourouError as error:
                self.reply(Reply(to, error.wire_code, str(error)))
                observer.answered(to, error.wire_code)
                continue
            received.append(Received(to, request, body, wall_ms))
        if received:
            self._callbacks.arrived(received)
        observer.handled()

    def _decoded(self, command: RemotingCommand, listener: str) -> Request:
        command.check()
        spec = REQUESTS.get(command.code)
        if (
            spec is None
            or not spec.remoting
            or self._role not in spec.answered_by
            or (listener == VIP and command.code == PullMessage.code)
        ):
            raise BadRequest(not_supported(command.code), code=Code.REQUEST_CODE_NOT_SUPPORTED)
        if command.request is not None:
            return command.request
        return decode_ext_fields(command.code, command.ext_fields)

    # -- send -------------------------------------------------------------------------------------

    def reply(self, reply: Reply) -> None:
        """Send a reply, unless the request is oneway or its peer is gone."""
        to = reply.to
        server = self._servers.get(to.peer.listener)
        if server is None or to.oneway:
            return
        assert isinstance(to, RemotingReplyTo)
        header = reply.header
        fields = encode_ext_fields(header) if isinstance(header, Header) else None
        code = reply.code
        if to.request_code in _SENDS and (fields is None or code == Code.FLOW_CONTROL):
            # Java clients fail on a reply to a send without them.
            fields = {**_REGION, **(fields or {})}
        if code >= OWN_CODES_FROM:
            code = _CODES.get(Code(code), Code.SYSTEM_ERROR)
        command = RemotingCommand(
            code,
            Language.JAVA,
            opaque=to.correlation,
            flag=FLAG_RESPONSE,
            remark=reply.remark or None,
            ext_fields=fields,
            header_type=to.header_type,
        )
        body = reply.body
        server.send(to.peer, (encode_head(command, _size(body)), *body))

    def notify(self, notice: Notify) -> None:
        """Send a notification to a client."""
        self._send_request(notice, NO_TOKEN, FLAG_ONEWAY)

    def ask(self, question: AskClient) -> None:
        """Send a request to a client; its reply arrives as ClientAnswered."""
        self._send_request(question, question.token, 0)

    def _send_request(self, message: Notify | AskClient, opaque: int, flag: int) -> None:
        server = self._servers.get(message.peer.listener)
        if server is None:
            return
        command = RemotingCommand(
            message.request.code,
            Language.JAVA,
            opaque=opaque,
            flag=flag,
            ext_fields=encode_ext_fields(message.request),
        )
        server.send(message.peer, (encode_head(command, _size(message.body)), *message.body))

    # -- metrics ----------------------------------------------------------------------------------

    def statistics(self) -> dict[str, TcpServerStatistics]:
        """Return the counters per listener name."""
        return {name: server.statistics() for name, server in self._servers.items()}

    def families(self, base: Mapping[str, str]) -> list[Family]:
        """Return the connection metrics; `base` are the labels that all samples get."""
        counted = self.statistics()
        labels = [{**base, "carrier": "remoting", "listener": name} for name in counted]
        over_tls = [each.peers_tls for each in counted.values()]
        failed = [each.tls_handshakes_failed for each in counted.values()]
        return [
            *connection_families(base, "remoting", counted),
            Family.gauge("kourou_peers_tls", samples=list(zip(labels, over_tls, strict=True))),
            Family.counter(
                "kourou_tls_handshakes_failed_total",
                samples=list(zip(labels, failed, strict=True)),
            ),
        ]


def _size(body: Sequence[bytes | bytearray | memoryview]) -> int:
    return sum(map(len, body))
