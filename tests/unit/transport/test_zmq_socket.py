"""Options that keep sockets honest."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import zmq

from kourou.model import limits
from kourou.transport.addresses import split_address
from kourou.transport.wire import PATIENT, WireTimeouts
from kourou.transport.zmq_socket import (
    endpoint_of,
    has_input,
    open_dealer,
    open_router,
    receive_rest,
    send_parts,
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


@pytest.mark.parametrize(
    "timeouts",
    [PATIENT, WireTimeouts(100, 500, 1_000, 700, 500, 5_000, 32)],
    ids=["clients", "other"],
)
def test_a_dealer_has_the_timeouts_of_its_owner(timeouts: WireTimeouts) -> None:
    with open_dealer(timeouts) as socket:
        found = [
            int(socket.get(option))
            for option in (
                *(zmq.CONNECT_TIMEOUT, zmq.TCP_MAXRT, zmq.HANDSHAKE_IVL),
                *(zmq.HEARTBEAT_IVL, zmq.HEARTBEAT_TIMEOUT, zmq.SNDHWM),
            )
        ]
    assert found == [
        timeouts.connect_ms,
        timeouts.unread_ms,
        timeouts.greeting_ms,
        timeouts.probe_ms,
        timeouts.silence_ms,
        timeouts.pipe_messages,
    ]


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
