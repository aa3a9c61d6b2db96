"""The protocol servers of a service (ZeroMQ, remoting): their interface, and all of them as one.

A protocol server converts frames to `Received`, and effects that have a peer to frames. Handlers do
not depend on the protocol: only `Peer.protocol` names it, and only the dispatch of replies reads
that.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Protocol

from kourou.errors import Code, ConfigError
from kourou.model.limits import PORT_MAX
from kourou.runtime import AskClient, ClientAnswered, Notify, Peer, Received, Reply, ReplyTo
from kourou.telemetry.metrics import Family

BUSY = "[REJECTREQUEST] too many requests wait here; nothing was done"


@dataclass(slots=True)
class TimedReplyTo(ReplyTo):
    """The reply address of a request, and when it arrived (monotonic, ns)."""

    request_code: int = 0
    arrived_ns: int = 0


class RequestObserver:
    """Callbacks around the handling of requests: no-ops here; a broker measures latency."""

    def arrived(self) -> int:
        """A burst of requests has arrived; returns the arrival time for each of them."""
        return 0

    def handled(self) -> None:
        """The immediate replies to the burst have been sent."""

    def answered(self, to: ReplyTo, code: int) -> None:
        """The protocol server itself replied to a request, with this code."""


@dataclass(frozen=True, slots=True)
class TransportCallbacks:
    """The callbacks of a protocol server.

    `arrived` gets each burst of requests; `disconnected` each lost connection, after its last
    requests; `answered` a client's reply to a request of this service.
    """

    arrived: Callable[[list[Received]], None]
    disconnected: Callable[[Peer], None]
    answered: Callable[[ClientAnswered], None] = lambda _answer: None
    observer: RequestObserver = RequestObserver()  # noqa: RUF009 - it has no state


class ProtocolServer(Protocol):
    """All listeners of one protocol."""

    @property
    def name(self) -> str:
        """The value of `Peer.protocol` for its peers."""
        ...

    def reply(self, reply: Reply) -> None:
        """Send a reply, unless the request is oneway or its peer is gone."""
        ...

    def notify(self, notice: Notify) -> None:
        """Send a notification to a client."""
        ...

    def ask(self, question: AskClient) -> None:
        """Send a request to a client; its reply arrives as ClientAnswered."""
        ...

    def pause(self) -> None:
        """Stop receiving; replies are still sent."""
        ...

    def close(self) -> None:
        """Close all listeners."""
        ...

    def statistics(self) -> Mapping[str, Any]:
        """Return a dataclass of counters per listener name."""
        ...

    def families(self, base: Mapping[str, str]) -> list[Family]:
        """Return the connection metrics; `base` are the labels that all samples get."""
        ...


class ProtocolServers:
    """A service's protocol servers; each effect goes to that of its peer."""

    def __init__(self, *protocols: ProtocolServer) -> None:
        self._protocols = {protocol.name: protocol for protocol in protocols}

    def add(self, protocol: ProtocolServer) -> None:
        """Add a protocol server; must be called before anything arrives."""
        self._protocols[protocol.name] = protocol

    def performers(self) -> dict[type[Any], Callable[[Any], None]]:
        """Return the executors of the effects that go to a peer, for the loop."""
        return {Reply: self.reply, Notify: self.notify, AskClient: self.ask}

    def reply(self, reply: Reply) -> None:
        """Send a reply, unless the request is oneway or its peer is gone."""
        self._protocols[reply.to.peer.protocol].reply(reply)

    def notify(self, notice: Notify) -> None:
        """Send a notification to a client."""
        self._protocols[notice.peer.protocol].notify(notice)

    def ask(self, question: AskClient) -> None:
        """Send a request to a client; its reply arrives as ClientAnswered."""
        self._protocols[question.peer.protocol].ask(question)

    def refuse(self, item: object) -> None:
        """Reply SYSTEM_BUSY to the sender of an input that was not admitted."""
        if isinstance(item, Received):
            self.reply(Reply(item.to, Code.SYSTEM_BUSY, BUSY))

    def pause(self) -> None:
        """Stop receiving; replies are still sent."""
        for protocol in self._protocols.values():
            protocol.pause()

    def close(self) -> None:
        """Close all listeners."""
        for protocol in self._protocols.values():
            protocol.close()

    def statistics(self) -> dict[str, dict[str, Any]]:
        """Return plain counters, by protocol and listener."""
        return {
            name: {listener: asdict(each) for listener, each in protocol.statistics().items()}
            for name, protocol in self._protocols.items()
        }

    def families(self, base: Mapping[str, str]) -> list[Family]:
        """Return the connection metrics: one family per name, with the samples of all protocols."""
        joined: dict[str, Family] = {}
        for protocol in self._protocols.values():
            for family in protocol.families(base):
                known = joined.get(family.name)
                joined[family.name] = (
                    replace(family, samples=(*known.samples, *family.samples)) if known else family
                )
        return list(joined.values())


def connection_families(
    base: Mapping[str, str], protocol: str, listeners: Mapping[str, Any]
) -> list[Family]:
    """Return the connection metrics of one protocol, from its listeners' counters by name."""
    labels = {**base, "carrier": protocol}
    all_of = list(listeners.values())
    peers = [({**labels, "listener": name}, each.peers) for name, each in listeners.items()]
    found = [Family.gauge("kourou_peers", samples=peers)]
    for name, counter in (
        ("kourou_frames_in_total", "frames_in"),
        ("kourou_frames_out_total", "frames_out"),
        ("kourou_bytes_in_total", "bytes_in"),
        ("kourou_bytes_out_total", "bytes_out"),
        ("kourou_frames_undecodable_total", "frames_undecodable"),
        ("kourou_peers_cut_total", "peers_cut"),
    ):
        total = sum(getattr(each, counter) for each in all_of)
        found.append(Family.counter(name, samples=[(labels, total)]))
    queued = sum(each.queued_bytes for each in all_of)
    return [*found, Family.gauge("kourou_peer_queue_bytes", samples=[(labels, queued)])]


# -- advertised addresses --------------------------------------------------------------------------


PROTOCOLS = ("zmq", "tcp")
_NAME = re.compile(r"[A-Za-z0-9._-]{1,127}")


def advertised(dial: Mapping[str, str], text: str) -> dict[str, str]:
    """Return `transport:listener` -> address. Raises ConfigError for an invalid entry.

    `dial` has the address of each enabled transport. `text` has entries separated by `;`:
    name=host:port for Kourou clients and tcp:name=host:port for RocketMQ clients.
    """
    found = {f"{transport}:internal": address for transport, address in dial.items()}
    for entry in text.split(";"):
        if not entry.strip():
            continue
        name, equals, address = entry.strip().partition("=")
        transport, colon, rest = name.partition(":")
        transport, listener = (transport, rest) if colon else ("zmq", name)
        if (
            not equals
            or transport not in PROTOCOLS
            or not _NAME.fullmatch(listener)
            or not _is_address(address)
        ):
            raise ConfigError(
                f"advertisedListeners: {entry.strip()!r} is refused",
                hint="name=host:port or tcp:name=host:port",
            )
        if transport in dial:
            found[f"{transport}:{listener}"] = address
    return found


def _is_address(text: str) -> bool:
    host, colon, port = text.rpartition(":")
    return bool(colon and host and re.fullmatch(r"[0-9]{1,5}", port) and int(port) <= PORT_MAX)
