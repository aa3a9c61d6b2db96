"""Sockets that are closed when a test is over."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import zmq

from kourou.transport.zmq_context import process_context


@pytest.fixture
def make_socket() -> Iterator[Callable[[int], zmq.Socket[bytes]]]:
    opened: list[zmq.Socket[bytes]] = []

    def make(kind: int) -> zmq.Socket[bytes]:
        socket = process_context().socket(kind)
        socket.set(zmq.LINGER, 0)
        opened.append(socket)
        return socket

    yield make
    for socket in opened:
        socket.close()


@pytest.fixture
def pair(
    make_socket: Callable[[int], zmq.Socket[bytes]],
) -> tuple[zmq.Socket[bytes], zmq.Socket[bytes]]:
    """Two ends of one TCP connection."""
    first, second = make_socket(zmq.PAIR), make_socket(zmq.PAIR)
    port = first.bind_to_random_port("tcp://127.0.0.1")
    second.connect(f"tcp://127.0.0.1:{port}")
    return first, second
