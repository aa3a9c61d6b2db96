"""All carriers of a service as one: each effect goes to that of its peer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from kourou.errors import Code, ConfigError
from kourou.protocol.messages.groups import HeartBeat, NotifyConsumerIdsChanged
from kourou.runtime import AskClient, Notify, Peer, Received, Reply, ReplyTo
from kourou.service.protocol_server import (
    BUSY,
    ProtocolServers,
    advertised,
    connection_families,
)
from kourou.telemetry.metrics import Family

NOTICE = NotifyConsumerIdsChanged(consumer_group="g")


@dataclass
class Counters:
    peers: int = 1
    frames_in: int = 2
    frames_out: int = 3
    bytes_in: int = 4
    bytes_out: int = 5
    frames_undecodable: int = 6
    peers_cut: int = 7
    queued_bytes: int = 8


class Noting:
    """A protocol server that records its calls."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.calls: list[object] = []

    def reply(self, reply: Reply) -> None:
        self.calls.append(reply)

    def notify(self, notice: Notify) -> None:
        self.calls.append(notice)

    def ask(self, question: AskClient) -> None:
        self.calls.append(question)

    def pause(self) -> None:
        self.calls.append("pause")

    def close(self) -> None:
        self.calls.append("close")

    def statistics(self) -> Mapping[str, Any]:
        return {"internal": Counters(), "host": Counters(peers=9)}

    def families(self, base: Mapping[str, str]) -> list[Family]:
        return connection_families(base, self.name, self.statistics())


def peer(protocol: str) -> Peer:
    return Peer(1, protocol, ("127.0.0.1", 1))


def test_each_effect_goes_to_the_protocol_of_its_peer() -> None:
    zmq, tcp = Noting("zmq"), Noting("tcp")
    protocols = ProtocolServers(zmq, tcp)
    for protocol, noted in (("zmq", zmq), ("tcp", tcp)):
        effects = [
            Reply(ReplyTo(peer(protocol), 1)),
            Notify(peer(protocol), NOTICE),
            AskClient(1, peer(protocol), NOTICE, (), 9),
        ]
        performers = protocols.performers()
        for effect in effects:
            performers[type(effect)](effect)
        assert noted.calls == effects


def test_a_request_that_is_not_admitted_is_refused() -> None:
    zmq = Noting("zmq")
    protocols = ProtocolServers(zmq)
    to = ReplyTo(peer("zmq"), 1)
    protocols.refuse(Received(to, HeartBeat(), (), 1))
    protocols.refuse("something that nobody waits for")
    assert zmq.calls == [Reply(to, Code.SYSTEM_BUSY, BUSY)]


def test_figures_are_put_together() -> None:
    protocols = ProtocolServers(Noting("zmq"), Noting("tcp"))
    assert protocols.statistics()["tcp"]["host"]["peers"] == 9
    families = {family.name: family for family in protocols.families({"cluster": "c"})}
    peers = {
        (labels["carrier"], labels["listener"]): value
        for labels, value in families["kourou_peers"].samples
    }
    assert peers == {
        ("zmq", "internal"): 1, ("zmq", "host"): 9, ("tcp", "internal"): 1, ("tcp", "host"): 9,
    }  # fmt: skip
    frames = [(dict(labels), value) for labels, value in families["kourou_frames_in_total"].samples]
    assert frames == [
        ({"cluster": "c", "carrier": "zmq"}, 4),
        ({"cluster": "c", "carrier": "tcp"}, 4),
    ]


# -- advertised ------------------------------------------------------------------------------------


DIAL = {"zmq": "127.0.0.1:20911", "tcp": "127.0.0.1:10911"}


def test_named_listeners_are_advertised_with_the_bound_ones() -> None:
    assert advertised(DIAL, " host=h:1 ; tcp:host=h:2; ") == {
        "zmq:internal": "127.0.0.1:20911",
        "tcp:internal": "127.0.0.1:10911",
        "zmq:host": "h:1",
        "tcp:host": "h:2",
    }


def test_a_transport_that_does_not_listen_is_not_advertised() -> None:
    assert advertised({"zmq": "a:1"}, "tcp:host=h:2") == {"zmq:internal": "a:1"}


@pytest.mark.parametrize("text", ["x", "x=", "x=h", "x=h:99999", "udp:x=h:1", "a b=h:1", "=h:1"])
def test_what_is_no_entry_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="advertisedListeners"):
        advertised(DIAL, text)
