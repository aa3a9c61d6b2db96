"""The ZeroMQ server of a service: converts between frames and the loop's inputs.

A frame with an invalid header, or with a code that this service does not support, gets its reply
here and never reaches the core. A reply is sent through the listener of its peer.

State: soft.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from kourou.clock import Clock
from kourou.errors import BadRequest, Code, DecodeError, KourouError
from kourou.protocol.request import Answerer, Request
from kourou.protocol.table import REQUESTS, not_supported
from kourou.protocol.wire.frames import (
    NO_TRACE,
    Frame,
    FrameKind,
    decode_request,
    encode_reply,
    encode_request,
)
from kourou.runtime import AskClient, ClientAnswered, Notify, Received, Reply
from kourou.service.protocol_server import TimedReplyTo, TransportCallbacks, connection_families
from kourou.telemetry.metrics import Family
from kourou.transport.curve_keys import ServerCurve
from kourou.transport.tcp_server import TcpServerStatistics
from kourou.transport.zmq_server import Inbound, ZmqServer

if TYPE_CHECKING:
    from kourou.transport.curve_server import CurveServer


class ZmqProtocol:
    """All ZeroMQ listeners of a service."""

    name = "zmq"

    def __init__(
        self,
        role: Answerer,
        callbacks: TransportCallbacks,
        clock: Clock,
        *,
        insecure_network: bool = False,
        server_type: type[ZmqServer] = ZmqServer,
        curve: ServerCurve | None = None,
    ) -> None:
        self._role = role
        self._callbacks = callbacks
        self._clock = clock
        self._insecure_network = insecure_network
        self._server_type = server_type
        self._curve = curve
        self._servers: dict[str, ZmqServer | CurveServer] = {}

    def listen(
        self,
        listeners: Mapping[str, str],
        role: Answerer | None = None,
        also: Answerer | None = None,
        curve: ServerCurve | None = None,
    ) -> dict[str, str]:
        """Bind each listener's `host:port`; returns the listening addresses by display name.

        `role`: the service role of these listeners, if it differs from the default; `also`: a
        second role; `curve`: keys and allowed clients, if they differ from the default. Raises
        ConfigError if an address is in use, or is open to the network without insecureNetwork.
        """
        for name, address in listeners.items():
            arrived = partial(self._arrived, role=role, also=also) if role else self._arrived
            gone = self._callbacks.disconnected
            server: ZmqServer | CurveServer
            if (keys := curve or self._curve) is not None:
                from kourou.transport.curve_server import CurveServer  # only keys need libzmq

                server = CurveServer(
                    address, arrived, gone, listener=name, clock=self._clock, curve=keys
                )
            else:
                server = self._server_type(
                    address,
                    arrived,
                    gone,
                    listener=name,
                    insecure_network=self._insecure_network,
                    clock=self._clock,
                )
            server.start()
            self._servers[name] = server
        return {
            f"zmq:{name}" if number else "zmq": f"tcp://{server.address}"
            for number, (name, server) in enumerate(self._servers.items())
        }

    def server(self, name: str = "internal") -> ZmqServer | CurveServer:
        """Return the listener of that name."""
        assert name in self._servers, f"nothing listens as {name}"
        return self._servers[name]

    def pause(self, *, but: str = "") -> None:
        """Stop receiving, except on the listener named `but`; replies are still sent."""
        for name, server in self._servers.items():
            if name != but:
                server.pause()

    def close(self) -> None:
        """Close all listeners."""
        for server in self._servers.values():
            server.close()

    # -- receive ----------------------------------------------------------------------------------

    def _arrived(
        self, frames: list[Inbound], role: Answerer | None = None, also: Answerer | None = None
    ) -> None:
        role = role or self._role
        now_ms, wall_ms = self._clock.monotonic_ms(), self._clock.now_ms()
        observer = self._callbacks.observer
        arrived_ns = observer.arrived()
        received: list[Received] = []
        for inbound in frames:
            frame = inbound.frame
            if frame.kind is FrameKind.REPLY:
                self._callbacks.answered(_answer(inbound))
                continue
            oneway = frame.kind is not FrameKind.REQUEST
            to = TimedReplyTo(
                inbound.peer, frame.correlation, oneway, frame.trace, frame.code, arrived_ns
            )
            try:
                request = _decoded(role, frame, also)
            except KourouError as error:
                self.reply(Reply(to, error.wire_code, str(error)))
                observer.answered(to, error.wire_code)
                continue
            deadline_ms = now_ms + frame.deadline_ms if frame.deadline_ms else 0
            arrival = Received(to, request, frame.body, wall_ms, deadline_ms, frame.trace)
            arrival.on_behalf_of = frame.on_behalf_of
            received.append(arrival)
        if received:
            self._callbacks.arrived(received)
        observer.handled()

    # -- send -------------------------------------------------------------------------------------

    def reply(self, reply: Reply) -> None:
        """Send a reply, unless the request is oneway or its peer is gone."""
        to = reply.to
        server = self._servers.get(to.peer.listener)
        if server is not None and not to.oneway:
            trace = to.trace or NO_TRACE
            head = encode_reply(to.correlation, reply.code, reply.remark, reply.header, trace)
            server.send(to.peer, (head, *reply.body))

    def notify(self, notice: Notify) -> None:
        """Send a notification to a client."""
        server = self._servers.get(notice.peer.listener)
        if server is not None:
            head = encode_request(
                notice.request, correlation=0, deadline_ms=0, kind=FrameKind.NOTIFY
            )
            server.send(notice.peer, (head, *notice.body))

    def ask(self, question: AskClient) -> None:
        """Send a request to a client; its reply arrives as ClientAnswered."""
        server = self._servers.get(question.peer.listener)
        if server is not None:
            head = encode_request(
                question.request, correlation=question.token, deadline_ms=question.timeout_ms
            )
            server.send(question.peer, (head, *question.body))

    # -- metrics ----------------------------------------------------------------------------------

    def statistics(self) -> dict[str, TcpServerStatistics]:
        """Return the counters per listener name."""
        return {name: server.statistics() for name, server in self._servers.items()}

    def families(self, base: Mapping[str, str]) -> list[Family]:
        """Return the connection metrics; `base` are the labels that all samples get."""
        return connection_families(base, self.name, self.statistics())


def _decoded(role: Answerer, frame: Frame, also: Answerer | None) -> Request:
    request = decode_request(frame)
    answered_by = REQUESTS[request.code].answered_by
    if role not in answered_by and also not in answered_by:
        raise BadRequest(not_supported(request.code), code=Code.REQUEST_CODE_NOT_SUPPORTED)
    return request


_decode_answer = msgspec.msgpack.Decoder(tuple[str, dict[str, object] | None]).decode


def _answer(inbound: Inbound) -> ClientAnswered:
    """Decode a client's reply to a request of this service."""
    frame, peer = inbound.frame, inbound.peer
    try:
        remark, fields = _decode_answer(frame.header)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        wrong = DecodeError(f"the answer of {peer} is malformed: {error}")
        return ClientAnswered(frame.correlation, peer, error=wrong)
    return ClientAnswered(frame.correlation, peer, frame.code, remark, fields or {}, frame.body)
