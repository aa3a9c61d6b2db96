"""A broker's listeners: all or none, and the addresses that are reported."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kourou.broker.config import BrokerSettings
from kourou.broker.network.connections import LeaderLink, Listeners
from kourou.clock import SystemClock
from kourou.errors import ConfigError
from kourou.protocol.messages.broker_admin import DeleteTopicInBroker
from kourou.protocol.messages.replication import Attach, Attached, LogChunk
from kourou.protocol.request import Request
from kourou.protocol.wire.frames import FrameKind, decode_request, encode_request
from kourou.runtime import Notify, Peer, Received
from kourou.service.processes import free_port
from kourou.service.protocol_server import ProtocolServers, TransportCallbacks
from kourou.transport.zmq_server import Inbound, ZmqServer
from kourou_rigs.waiting import until


def listeners(folder: Path, **keys: object) -> Listeners:
    settings = BrokerSettings(store_root=folder, **{"listen_port": 0, **keys})  # type: ignore[arg-type]  # shorthand
    return Listeners(settings, TransportCallbacks(print, print), SystemClock())


@contextmanager
def listening(folder: Path, **keys: object) -> Iterator[Listeners]:
    made = listeners(folder, **keys)
    made.listen()
    try:
        yield made
    finally:
        made.protocols.close()


def port_of(made: Listeners, protocol: str) -> int:
    return int(made.dial[protocol].rpartition(":")[2])


def is_free(port: int) -> bool:
    try:
        socket.create_server(("127.0.0.1", port)).close()
    except OSError:
        return False
    return True


async def test_free_ports_are_reported(tmp_path: Path) -> None:
    with listening(tmp_path) as made:
        assert set(made.addresses) == {"zmq", "tcp", "replication"}
        assert made.addresses["zmq"] == f"tcp://{made.dial['zmq']}"
        assert made.addresses["tcp"] == made.dial["tcp"]
        assert made.store_port == port_of(made, "tcp") == port_of(made, "zmq") - 10_000


async def test_the_other_port_has_its_usual_distance_to_a_configured_one(
    tmp_path: Path,
) -> None:
    """A broker that was started again with its former port keeps the host of its message ids."""
    with listening(tmp_path) as first:
        zmq_port, tcp_port = port_of(first, "zmq"), port_of(first, "tcp")
    while not is_free(zmq_port):  # noqa: ASYNC110 - the library closes in a thread of its own
        await asyncio.sleep(0)
    with listening(tmp_path, zmq_port=zmq_port) as again:
        assert port_of(again, "tcp") == tcp_port
    with socket.create_server(("127.0.0.1", tcp_port)):
        while not is_free(zmq_port):  # noqa: ASYNC110 - as above
            await asyncio.sleep(0)
        with listening(tmp_path, zmq_port=zmq_port) as elsewhere:
            assert port_of(elsewhere, "tcp") not in (0, tcp_port)


async def test_where_no_pair_is_free_any_will_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kourou.broker.network.connections.PORT_MAX", 1)
    with listening(tmp_path) as made:
        assert 0 not in (port_of(made, "zmq"), port_of(made, "tcp"))
        assert made.store_port == port_of(made, "tcp")


async def test_the_second_port_is_two_below(tmp_path: Path) -> None:
    port = free_port(-2)
    with listening(tmp_path, listen_port=port, zmq_port=0, replication_port=0) as made:
        assert made.addresses["tcp"] == f"127.0.0.1:{port}"
        assert made.addresses["tcp:vip"] == f"127.0.0.1:{port - 2}"
        assert made.store_port == port


@pytest.mark.parametrize(
    ("off", "left"),
    [("tcp_enabled", {"zmq", "replication"}), ("replication_enabled", {"zmq", "tcp"})],
)
async def test_what_is_switched_off_does_not_listen(
    tmp_path: Path, off: str, left: set[str]
) -> None:
    with listening(tmp_path, **{off: False}) as made:
        assert set(made.addresses) == left
        assert set(made.dial) == left - {"replication"}


async def test_a_taken_port_frees_the_others(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        made = listeners(tmp_path, listen_port=port, zmq_port=0, replication_port=0)
        with pytest.raises(ConfigError, match="is taken"):
            made.listen()
        zmq_port = made.zmq.server().port
    while not is_free(zmq_port):  # noqa: ASYNC110 - the library closes in a thread of its own
        await asyncio.sleep(0)


async def test_with_an_advertised_host_that_is_what_is_dialled(tmp_path: Path) -> None:
    with listening(tmp_path, broker_ip1="10.1.2.3") as made:
        assert {address.rpartition(":")[0] for address in made.dial.values()} == {"10.1.2.3"}


# -- A follower's connection to its leader, over a real wire; the leader is this test --------------


ATTACH = Attach(cluster="c", broker_name="b", broker_id=1)
ATTACHED = Attached(broker_name="b", broker_id=1, epoch=64, common=7)


class Leader:
    """A listener for members that a test speaks through."""

    def __init__(self, port: int = 0) -> None:
        self.heard: list[Inbound] = []
        self.server = ZmqServer(f"127.0.0.1:{port}", self.heard.extend, lambda _peer: None)
        self.server.start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server.port}"

    def say(self, request: Request, body: bytes = b"") -> None:
        head = encode_request(request, correlation=0, deadline_ms=0, kind=FrameKind.NOTIFY)
        assert self.server.send(self.heard[-1].peer, (head, body) if body else (head,))

    def say_bytes(self, head: bytes) -> None:
        assert self.server.send(self.heard[-1].peer, (head,))


class Bench:
    """A link, and what it tells."""

    def __init__(self) -> None:
        self.received: list[Received] = []
        self.lost: list[Peer] = []
        self.found: list[tuple[Peer, str]] = []
        callbacks = TransportCallbacks(self.received.extend, self.lost.append)
        self.link = LeaderLink(
            callbacks, lambda *connected: self.found.append(connected), SystemClock()
        )

    async def connected(self, times: int) -> Peer:
        await until(lambda: len(self.found) == times)
        return self.found[-1][0]

    async def hello(self, leader: Leader, peer: Peer) -> None:
        """What is said goes through the carriers, as the effects of a core do."""
        ProtocolServers(self.link).notify(Notify(peer, ATTACH))
        await until(lambda: bool(leader.heard))


@pytest.fixture
def leaders() -> Iterator[list[Leader]]:
    made: list[Leader] = []
    yield made
    for leader in made:
        leader.server.close()


async def test_what_either_says_arrives(leaders) -> None:
    leaders.append(leader := Leader())
    bench = Bench()
    bench.link.leader = "127.0.0.1:10911"
    bench.link.follow(leader.address)
    peer = await bench.connected(1)
    assert bench.link.connected
    assert (peer.protocol, bench.found[0][1]) == ("leader", "127.0.0.1:10911")
    await bench.hello(leader, peer)
    assert decode_request(leader.heard[0].frame) == ATTACH
    chunk = LogChunk(
        group="b", epoch=64, leader="b/0", position=7, end=10, previous_epoch=0, data_epoch=64,
        confirmed=0, leader_end=10, first_position=0, round=1,
    )  # fmt: skip
    leader.say(ATTACHED)
    leader.say(chunk, b"abc")
    await until(lambda: len(bench.received) == 2)
    attached, copied = bench.received
    assert (attached.request, copied.request) == (ATTACHED, chunk)
    assert attached.to.peer == copied.to.peer == peer
    assert attached.to.oneway
    assert b"".join(copied.body) == b"abc"
    bench.link.close()
    assert (bench.lost, bench.link.connected) == ([peer], False)


async def test_a_leader_has_no_say_in_anything_else(leaders, caplog) -> None:
    leaders.append(leader := Leader())
    bench = Bench()
    bench.link.follow(leader.address)
    await bench.hello(leader, await bench.connected(1))
    leader.say(DeleteTopicInBroker(topic="orders"))
    leader.say(Attach(cluster="c", broker_name="b", broker_id=2))
    bad = bytearray(encode_request(ATTACHED, correlation=0, deadline_ms=0, kind=FrameKind.NOTIFY))
    bad[-6:] = b"\xc1" * 6  # no such type in MessagePack
    leader.say_bytes(bytes(bad))
    leader.say(ATTACHED)
    await until(lambda: bool(bench.received))
    assert [one.request for one in bench.received] == [ATTACHED]
    assert "unexpected type DeleteTopicInBroker" in caplog.text
    assert "dropped a message from the leader" in caplog.text
    bench.link.close()


async def test_a_connection_that_comes_back_is_another_peer(leaders) -> None:
    leaders.append(first := Leader())
    bench = Bench()
    bench.link.follow(first.address)
    peer = await bench.connected(1)
    port = first.server.port
    first.server.close()
    await until(lambda: bench.lost == [peer])
    assert not bench.link.connected
    late = Attach(cluster="c", broker_name="b", broker_id=9)
    ProtocolServers(bench.link).notify(Notify(peer, late))
    leaders.append(again := Leader(port))
    other = await bench.connected(2)
    assert other != peer
    ProtocolServers(bench.link).notify(Notify(peer, late))
    await bench.hello(again, other)
    heard = decode_request(again.heard[0].frame)
    assert heard == ATTACH, "what was meant for the former connection did not arrive"
    bench.link.close()


async def test_another_leader_takes_the_place_of_the_first(leaders) -> None:
    leaders += [one := Leader(), other := Leader()]
    bench = Bench()
    bench.link.follow(one.address)
    peer = await bench.connected(1)
    bench.link.follow(one.address)
    assert bench.lost == [], "it is followed already"
    bench.link.follow(other.address)
    assert bench.lost == [peer]
    await bench.hello(other, await bench.connected(2))
    bench.link.part()
    assert len(bench.lost) == 2
    bench.link.follow(other.address)
    await bench.connected(3)
    bench.link.pause()
    bench.link.follow(one.address)
    assert not bench.link.statistics(), "a paused link does not connect"
