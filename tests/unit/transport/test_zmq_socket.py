"""Addresses as people write them, and options that keep sockets honest."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import zmq

from kourou.errors import ConfigError
from kourou.model import limits
from kourou.transport.zmq_socket import (
    bindable,
    endpoint_of,
    has_input,
    is_loopback,
    open_dealer,
    open_router,
    receive_rest,
    send_parts,
    split_address,
)


@pytest.mark.parametrize(
    ("text", "parts", "endpoint"),
    [
        ("127.0.0.1:9876", ("127.0.0.1", 9876), "tcp://127.0.0.1:9876"),
        ("tcp://broker-1:0", ("broker-1", 0), "tcp://broker-1:0"),
        ("[::1]:65535", ("::1", 65535), "tcp://[::1]:65535"),
    ],
)
def test_addresses(text: str, parts: tuple[str, int], endpoint: str) -> None:
    assert split_address(text) == parts
    assert endpoint_of(text) == endpoint


@pytest.mark.parametrize("text", ["", "host", "host:", ":1", "host:x", "host:-1", "h:65536", "h:²"])
def test_no_address(text: str) -> None:
    with pytest.raises(ConfigError, match=r"not an address|above 65535"):
        split_address(text)


@pytest.mark.parametrize(
    ("host", "found", "loopback"),
    [
        ("localhost", "127.0.0.1", True),
        ("127.3.2.1", "127.3.2.1", True),
        ("::1", "::1", True),
        ("*", "0.0.0.0", False),
        ("192.0.2.1", "192.0.2.1", False),
    ],
)
def test_what_can_be_bound(host: str, found: str, loopback: bool) -> None:
    assert bindable(host) == found
    assert is_loopback(found) is loopback


def test_a_name_without_address() -> None:
    with pytest.raises(ConfigError, match="cannot listen on 'no such host'"):
        bindable("no such host")


@pytest.mark.parametrize("make", [open_router, open_dealer])
def test_no_queue_is_endless_and_no_frame_unlimited(
    make: Callable[[], zmq.Socket[bytes]],
) -> None:
    with make() as socket:
        assert 0 < int(socket.get(zmq.SNDHWM)) <= 1_000
        assert 0 < int(socket.get(zmq.RCVHWM)) <= 1_000
        assert socket.get(zmq.MAXMSGSIZE) == limits.FRAME_SIZE_BYTES_MAX
        assert int(socket.get(zmq.LINGER)) >= 0
        assert 0 < int(socket.get(zmq.HEARTBEAT_IVL)) < int(socket.get(zmq.HEARTBEAT_TIMEOUT))


@pytest.mark.parametrize("size", [0, 10, 200_000])
def test_a_message_out_and_in(pair: tuple[zmq.Socket[bytes], zmq.Socket[bytes]], size: int) -> None:
    second, first = pair  # the connecting end can send before the connection stands
    body = memoryview(bytes(size))
    assert not has_input(second)
    send_parts(first.send, [b"head", body, bytearray(b"tail")], zmq.NOBLOCK)
    second.poll()
    assert has_input(second)
    parts, total = receive_rest(second.recv, second.recv(zmq.NOBLOCK, False))
    assert [bytes(part) for part in parts] == [b"head", bytes(body), b"tail"]
    assert total == size + 8


def test_a_message_of_too_many_parts_is_taken_whole_but_not_kept(
    pair: tuple[zmq.Socket[bytes], zmq.Socket[bytes]],
) -> None:
    first, second = pair
    first.send_multipart([b"x"] * 100)
    first.send(b"next")
    second.poll()
    parts, total = receive_rest(second.recv, second.recv(zmq.NOBLOCK, False))
    assert len(parts) == limits.FRAME_PARTS_MAX + 1
    assert total == 100
    assert second.recv() == b"next"
