"""A peer's queue is bounded, a descriptor has one owner, and only the right connection is cut."""

from __future__ import annotations

import socket as socketlib
from collections.abc import Iterator

import pytest

from kourou.model import limits
from kourou.runtime import Peer
from kourou.transport.addresses import next_peer_id
from kourou.transport.curve_server import Link, LinkTable, cut, far_end

Connection = tuple[socketlib.socket, socketlib.socket]


@pytest.fixture
def connection() -> Iterator[Connection]:
    with socketlib.create_server(("127.0.0.1", 0)) as listener:
        client = socketlib.create_connection(listener.getsockname())
        server, _ = listener.accept()
        with client, server:
            yield client, server


def link(number: int, descriptor: int = 5) -> Link:
    routing_id = b"\0" + number.to_bytes(4, "big")
    return Link(routing_id, descriptor, Peer(next_peer_id(), "zmq", ("127.0.0.1", number)))


def test_the_queue_is_bounded_by_count_and_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SOCKET_HWM_MESSAGES", 3)
    monkeypatch.setattr(limits, "PEER_QUEUE_BYTES_MAX", 100)
    one = link(1)
    assert one.enqueue([b"x"], 60, 7)
    assert not one.enqueue([b"x"], 41, 8)
    assert one.enqueue([b"x"], 40, 9)
    assert one.stuck_since_ms == 7
    one.sent_first(20)
    assert (one.queued_bytes, one.stuck_since_ms) == (40, 20)
    assert one.enqueue([b"x"], 0, 21)
    assert one.enqueue([b"x"], 0, 22)
    assert not one.enqueue([b"x"], 0, 23)
    for _ in range(3):
        one.sent_first(30)
    assert (one.queued_bytes, one.stuck_since_ms) == (0, 0)


def test_a_new_link_takes_over_a_descriptor() -> None:
    table = LinkTable()
    old, new = link(1), link(2)
    assert table.add(old) is None
    assert table.add(new) is old
    assert table.remove(old)
    assert not table.remove(old)
    assert table.on_descriptor(5) is new
    assert list(table) == [new]
    assert table.by_routing_id == {new.routing_id: new}
    assert table.remove(new)
    assert (len(table), table.on_descriptor(5)) == (0, None)


def test_the_table_says_when_it_is_full(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "PEERS_MAX", 1)
    table = LinkTable()
    assert not table.full
    table.add(link(1))
    assert table.full


def test_the_far_end_of_a_descriptor(connection: Connection) -> None:
    client, server = connection
    assert far_end(server.fileno()) == client.getsockname()
    with socketlib.socket() as unconnected:
        assert far_end(unconnected.fileno()) is None
    with open("/dev/null", "rb") as file:  # noqa: PTH123 - a descriptor that is no socket
        assert far_end(file.fileno()) is None
    assert far_end(10**6) is None


def test_only_the_connection_that_is_meant_is_cut(connection: Connection) -> None:
    client, server = connection
    assert not cut(server.fileno(), ("127.0.0.1", 1))
    client.sendall(b"still open")
    assert server.recv(100) == b"still open"
    assert cut(server.fileno(), client.getsockname())
    assert client.recv(100) == b""
