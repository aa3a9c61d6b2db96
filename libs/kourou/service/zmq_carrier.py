"""Requests in and answers out over ZeroMQ, for a service's single-writer loop.

Lives here: the listeners of one service, frames to inputs, replies to frames.
May not live here: what requests mean; other carriers.

A frame whose header is wrong, or whose code this service does not answer, is answered here and
never reaches the core. An answer goes out by the listener that its peer came in on.

State: soft.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kourou.clock import Clock
from kourou.engine.effects import Notify, Reply
from kourou.engine.inputs import Received, ReplyTo
from kourou.engine.peer import Peer
from kourou.errors import BadRequest, Code, KourouError
from kourou.protocol.frames import (
    NO_TRACE,
    Frame,
    Kind,
    decode_request,
    encode_reply,
    encode_request,
)
from kourou.protocol.request import Answerer, Request
from kourou.protocol.table import REQUESTS
from kourou.telemetry.metrics import Family
from kourou.transport.zmq_server import Inbound, ZmqServer, ZmqServerStatistics

BUSY = "[REJECTREQUEST] too many requests wait here; nothing was done"


class ZmqCarrier:
    """All ZeroMQ listeners of a service. `arrived` gets each burst of requests as inputs."""

    def __init__(
        self,
        role: Answerer,
        arrived: Callable[[list[Received]], None],
        disconnected: Callable[[Peer], None],
        clock: Clock,
        *,
        insecure_network: bool = False,
    ) -> None:
        self._role = role
        self._take = arrived
        self._lost = disconnected
        self._clock = clock
        self._insecure_network = insecure_network
        self._servers: dict[str, ZmqServer] = {}

    def listen(self, listeners: Mapping[str, str]) -> dict[str, str]:
        """Bind each listener name's `host:port`; returns what listens where, for people.

        Raises ConfigError if an address is taken, or open to the network without leave.
        """
        for name, address in listeners.items():
            server = ZmqServer(
                address,
                self._arrived,
                self._lost,
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

    def pause(self) -> None:
        """Receive nothing more; answers still leave."""
        for server in self._servers.values():
            server.pause()

    def close(self) -> None:
        """Unbind everything."""
        for server in self._servers.values():
            server.close()

    # -- in ---------------------------------------------------------------------------------------

    def _arrived(self, frames: list[Inbound]) -> None:
        now_ms, wall_ms = self._clock.monotonic_ms(), self._clock.now_ms()
        received = []
        for inbound in frames:
            frame = inbound.frame
            if frame.kind is Kind.REPLY:
                continue  # an answer to a notice; nobody waits for it
            oneway = frame.kind is not Kind.REQUEST
            to = ReplyTo(inbound.peer, frame.correlation, oneway, frame.trace)
            try:
                request = self._decoded(frame)
            except KourouError as error:
                self.reply(Reply(to, error.wire_code, str(error)))
                continue
            deadline_ms = now_ms + frame.deadline_ms if frame.deadline_ms else 0
            received.append(Received(to, request, frame.body, wall_ms, deadline_ms, frame.trace))
        if received:
            self._take(received)

    def _decoded(self, frame: Frame) -> Request:
        request = decode_request(frame)
        if self._role not in REQUESTS[request.code].answered_by:
            raise BadRequest(
                f"request type {request.code} not supported",
                code=Code.REQUEST_CODE_NOT_SUPPORTED,
            )
        return request

    # -- out --------------------------------------------------------------------------------------

    def reply(self, reply: Reply) -> None:
        """Answer a request, if it wants an answer and its peer is still there."""
        to = reply.to
        server = self._servers.get(to.peer.listener)
        if server is not None and not to.oneway:
            trace = to.trace or NO_TRACE
            head = encode_reply(to.correlation, reply.code, reply.remark, reply.header, trace)
            server.send(to.peer, (head, *reply.body))

    def notify(self, notice: Notify) -> None:
        """Tell a client something it did not ask for."""
        server = self._servers.get(notice.peer.listener)
        if server is not None:
            head = encode_request(notice.request, correlation=0, deadline_ms=0, kind=Kind.NOTIFY)
            server.send(notice.peer, (head, *notice.body))

    def refuse(self, item: object) -> None:
        """Tell the sender of an input that was not admitted that the service is busy."""
        if isinstance(item, Received):
            self.reply(Reply(item.to, Code.SYSTEM_BUSY, BUSY))

    # -- figures ----------------------------------------------------------------------------------

    def statistics(self) -> dict[str, ZmqServerStatistics]:
        """By listener name."""
        return {name: server.statistics() for name, server in self._servers.items()}

    def families(self, base: Mapping[str, str]) -> list[Family]:
        """The connections' metrics; `base` are the labels that go with all."""
        labels = {**base, "carrier": "zmq"}
        by_listener = self.statistics()
        all_of = list(by_listener.values())

        def total(
            pick: Callable[[ZmqServerStatistics], int],
        ) -> list[tuple[Mapping[str, str], float]]:
            return [(labels, sum(map(pick, all_of)))]

        return [
            Family.gauge(
                "kourou_peers",
                samples=[
                    ({**labels, "listener": name}, one.peers) for name, one in by_listener.items()
                ],
            ),
            Family.counter("kourou_frames_in_total", samples=total(lambda s: s.frames_in)),
            Family.counter("kourou_frames_out_total", samples=total(lambda s: s.frames_out)),
            Family.counter("kourou_bytes_in_total", samples=total(lambda s: s.bytes_in)),
            Family.counter("kourou_bytes_out_total", samples=total(lambda s: s.bytes_out)),
            Family.counter(
                "kourou_frames_undecodable_total",
                samples=total(lambda s: s.frames_undecodable),
            ),
            Family.counter("kourou_peers_cut_total", samples=total(lambda s: s.peers_cut)),
            Family.gauge("kourou_peer_queue_bytes", samples=total(lambda s: s.queued_bytes)),
        ]
