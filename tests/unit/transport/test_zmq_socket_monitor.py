"""What happens to connections is told in order, with the descriptor that tells them apart."""

from __future__ import annotations

from collections.abc import Callable

import zmq

from kourou.transport.wire import Happening
from kourou.transport.zmq_socket import ConnectionEvent, ZmqMonitor


def read_until(monitor: ZmqMonitor, kind: Happening) -> list[ConnectionEvent]:
    found: list[ConnectionEvent] = []
    while not any(event.kind is kind for event in found):
        monitor.socket.poll()
        found += monitor.read()
    return found


def test_a_connection_comes_and_goes(make_socket: Callable[[int], zmq.Socket[bytes]]) -> None:
    server, client = make_socket(zmq.ROUTER), make_socket(zmq.DEALER)
    monitor = ZmqMonitor(server)
    assert monitor.read() == []
    port = server.bind_to_random_port("tcp://127.0.0.1")
    client.connect(f"tcp://127.0.0.1:{port}")
    came = read_until(monitor, Happening.READY)
    assert [event.kind for event in came] == [Happening.ACCEPTED, Happening.READY]
    client.close()
    gone = read_until(monitor, Happening.LOST)
    assert gone[-1] == ConnectionEvent(Happening.LOST, came[0].descriptor)
    monitor.close()


def test_a_refusal_is_reported(make_socket: Callable[[int], zmq.Socket[bytes]]) -> None:
    client = make_socket(zmq.DEALER)
    monitor = ZmqMonitor(client)
    client.connect("tcp://127.0.0.1:1")
    assert read_until(monitor, Happening.REFUSED)[-1].kind is Happening.REFUSED
    monitor.close()
