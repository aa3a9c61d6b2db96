"""What every carrier of requests can do, and all of a service's carriers as one.

A carrier turns frames into `Received`, and effects that have a peer back into frames. Handlers
never learn which one it was: only `Peer.carrier` names it, and only the way back looks at that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Protocol

from kourou.errors import Code
from kourou.runtime.effects import AskClient, Notify, Reply
from kourou.runtime.inputs import ClientAnswered, Received, ReplyTo
from kourou.runtime.peer import Peer
from kourou.telemetry.metrics import Family

BUSY = "[REJECTREQUEST] too many requests wait here; nothing was done"


@dataclass(slots=True)
class TimedReplyTo(ReplyTo):
    """Where an answer goes, to which request, and when that arrived (monotonic, nanoseconds)."""

    request_code: int = 0
    arrived_ns: int = 0


class Watch:
    """Sees requests come and go; this one looks away, a broker's measures them."""

    def arrived(self) -> int:
        """A burst of requests is here: the time that goes with each of them."""
        return 0

    def handled(self) -> None:
        """What could be answered of the burst at once is answered."""

    def answered(self, to: ReplyTo, code: int) -> None:
        """A request was answered by its carrier alone, with this code."""


@dataclass(frozen=True, slots=True)
class Ears:
    """Whom a carrier tells what has come.

    `arrived` gets each burst of requests; `disconnected` each lost connection, after its last
    requests; `answered` what a client says to a question of this service.
    """

    arrived: Callable[[list[Received]], None]
    disconnected: Callable[[Peer], None]
    answered: Callable[[ClientAnswered], None] = lambda _answer: None
    watch: Watch = Watch()  # noqa: RUF009 - it has no state


class Carrier(Protocol):
    """All listeners of one kind."""

    @property
    def name(self) -> str:
        """What `Peer.carrier` says of its peers."""
        ...

    def reply(self, reply: Reply) -> None:
        """Answer a request, if it wants an answer and its peer is still there."""
        ...

    def notify(self, notice: Notify) -> None:
        """Tell a client something it did not ask for."""
        ...

    def ask(self, question: AskClient) -> None:
        """Ask a client; its answer comes in as ClientAnswered."""
        ...

    def pause(self) -> None:
        """Receive nothing more; answers still leave."""
        ...

    def close(self) -> None:
        """Unbind everything."""
        ...

    def statistics(self) -> Mapping[str, Any]:
        """A dataclass of counters by listener name."""
        ...

    def families(self, base: Mapping[str, str]) -> list[Family]:
        """The connections' metrics; `base` are the labels that go with all."""
        ...


class Carriers:
    """A service's carriers; each effect goes to that of its peer."""

    def __init__(self, *carriers: Carrier) -> None:
        self._carriers = {carrier.name: carrier for carrier in carriers}

    def add(self, carrier: Carrier) -> None:
        """One more, before anything arrives."""
        self._carriers[carrier.name] = carrier

    def performers(self) -> dict[type[Any], Callable[[Any], None]]:
        """What the loop calls for the effects that carriers perform."""
        return {Reply: self.reply, Notify: self.notify, AskClient: self.ask}

    def reply(self, reply: Reply) -> None:
        """Answer a request, if it wants an answer and its peer is still there."""
        self._carriers[reply.to.peer.carrier].reply(reply)

    def notify(self, notice: Notify) -> None:
        """Tell a client something it did not ask for."""
        self._carriers[notice.peer.carrier].notify(notice)

    def ask(self, question: AskClient) -> None:
        """Ask a client; its answer comes in as ClientAnswered."""
        self._carriers[question.peer.carrier].ask(question)

    def refuse(self, item: object) -> None:
        """Tell the sender of an input that was not admitted that the service is busy."""
        if isinstance(item, Received):
            self.reply(Reply(item.to, Code.SYSTEM_BUSY, BUSY))

    def pause(self) -> None:
        """Receive nothing more; answers still leave."""
        for carrier in self._carriers.values():
            carrier.pause()

    def close(self) -> None:
        """Unbind everything."""
        for carrier in self._carriers.values():
            carrier.close()

    def statistics(self) -> dict[str, dict[str, Any]]:
        """Plain counters, by carrier and listener."""
        return {
            name: {listener: asdict(each) for listener, each in carrier.statistics().items()}
            for name, carrier in self._carriers.items()
        }

    def families(self, base: Mapping[str, str]) -> list[Family]:
        """The connections' metrics: one family a name, with the samples of all carriers."""
        joined: dict[str, Family] = {}
        for carrier in self._carriers.values():
            for family in carrier.families(base):
                known = joined.get(family.name)
                joined[family.name] = (
                    replace(family, samples=(*known.samples, *family.samples)) if known else family
                )
        return list(joined.values())


def connection_families(
    base: Mapping[str, str], carrier: str, listeners: Mapping[str, Any]
) -> list[Family]:
    """The connections' metrics of one carrier, from the counters of its listeners by name."""
    labels = {**base, "carrier": carrier}
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
