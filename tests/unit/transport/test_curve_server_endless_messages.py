"""Messages without an end on an encrypted listener: libzmq keeps all their parts.

The parts come through a proxy that stops in the middle, so that the message never becomes whole.
"""

from __future__ import annotations

import asyncio
import socket as socketlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import zmq

from kourou.model import limits
from kourou.protocol.messages.namesrv import GetKvConfig
from kourou.protocol.wire.frames import encode_request
from kourou.transport import curve_server
from kourou.transport.curve_server import (
    COUNTED_BYTES_MIN,
    HEARTBEAT_BYTES_S,
    Inflow,
    bytes_received,
)
from kourou.transport.zmq_client import ZmqConnection
from kourou.transport.zmq_socket import arm_dealer, process_context
from kourou_rigs.clock import ManualClock
from kourou_rigs.tcp_proxy import TcpProxy

Host = Any  # tests/unit/transport/conftest.py
Until = Callable[[Callable[[], bool]], Awaitable[None]]

ASK = GetKvConfig(namespace="n", key="k")
ASK_MS = 20_000
MIB = 1 << 20
PARTS = [bytes(MIB)] * 48
ADDRESS = ("127.0.0.1", 1)


# -- counting


def test_the_system_counts_what_a_connection_has_received() -> None:
    with socketlib.create_server(("127.0.0.1", 0)) as listener:
        client = socketlib.create_connection(listener.getsockname())
        server, _ = listener.accept()
        with client, server:
            assert bytes_received(server.fileno()) == 0
            client.sendall(bytes(5_000))
            assert len(server.recv(9_999)) == 5_000
            client.sendall(bytes(7))
            assert len(server.recv(9_999)) == 7
            assert bytes_received(server.fileno()) == 5_007
            assert bytes_received(client.fileno()) == 0
    with Path("/dev/null").open("rb") as no_socket:
        assert bytes_received(no_socket.fileno()) is None


def test_heartbeats_are_no_message_however_long() -> None:
    inflow = Inflow(ADDRESS, 500, 0)
    received = 500
    for second in range(1, 100_000):
        received += 200
        inflow.note(received, 1_000 * second)
        assert inflow.counted == 0
    inflow.note(received + 10 * MIB, 100_000_000)
    assert inflow.counted > 9 * MIB, "and silence is no credit for later"


def test_a_message_counts_from_its_first_part_until_it_is_whole() -> None:
    inflow = Inflow(ADDRESS, 0, 0)
    inflow.note(10, 1_000)
    inflow.note(COUNTED_BYTES_MIN // 2, 2_000)
    assert inflow.counted == 0
    began_ms = inflow.began_ms
    for second in range(3, 60):
        inflow.note(second * MIB, 1_000 * second)
        allowed = HEARTBEAT_BYTES_S * (second - began_ms // 1_000)
        assert abs(inflow.counted - (second * MIB - allowed)) < 100
        assert inflow.began_ms == began_ms
    inflow.restart(60 * MIB, 60_000)
    assert (inflow.counted, inflow.began_ms) == (0, 60_000)


# -- a listener


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def host(
    make_host: Callable[..., Host], keys: Any, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> Host:
    monkeypatch.setattr(curve_server, "SWEEP_S", 0.0)
    return make_host(curve=keys.server, clock=clock)


@pytest.fixture
async def wire(host: Host) -> AsyncIterator[TcpProxy]:
    made = await TcpProxy("127.0.0.1", 0, host.server.host, host.server.port).open()
    yield made
    await made.close()


@pytest.fixture
def endless(host: Host, wire: TcpProxy, keys: Any) -> Iterator[zmq.Socket[bytes]]:
    """A client's socket behind the proxy.

    It closes with a linger period. Without one, libzmq 4.3.5 aborts the process (session_base.cpp,
    line 233) if the connection of a message that is sent in part ends just after the close.
    """
    socket = process_context().socket(zmq.DEALER)
    socket.set(zmq.LINGER, 1_000)
    socket.set(zmq.RECONNECT_IVL, -1)
    arm_dealer(socket, keys.client.own.pair, *keys.client.servers.of(host.address))
    socket.connect(f"tcp://{wire.address}")
    yield socket
    socket.close()


def ask_frame(correlation: int) -> bytes:
    return encode_request(ASK, correlation=correlation, deadline_ms=ASK_MS)


async def begin(host: Host, wire: TcpProxy, socket: zmq.Socket[bytes], until: Until) -> None:
    """Send a whole message, and then one of many parts; stop in the middle of that."""
    host.batches.clear()
    socket.send(ask_frame(1))
    await until(lambda: len(host.frames) == 1)
    socket.send_multipart([ask_frame(2), *PARTS])
    await until(lambda: host.server.statistics().unfinished_bytes > 8 * MIB)
    wire.hold(answers=False)
    assert (len(host.frames), host.lost) == (1, [])


@pytest.mark.fault
async def test_above_the_limit_the_oldest_unfinished_message_ends_its_connection(
    host: Host,
    wire: TcpProxy,
    endless: zmq.Socket[bytes],
    connect: Callable[..., ZmqConnection],
    keys: Any,
    until: Until,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    good = connect(host.address, curve=keys.client)
    assert (await good.request(ASK, timeout_ms=ASK_MS)).code == 0
    await begin(host, wire, endless, until)
    monkeypatch.setattr(limits, "UNFINISHED_BYTES_MAX", 4 * MIB)
    await until(lambda: bool(host.lost))
    assert host.server.statistics().peers_cut == 1
    assert "messages that are not whole yet take" in caplog.text
    await until(lambda: host.server.statistics().unfinished_bytes == 0)
    assert (await good.request(ASK, timeout_ms=ASK_MS)).code == 0
    assert good.statistics().reopened == 0, "it was not the one"
    assert host.server.statistics().frames_undecodable == 0


@pytest.mark.fault
async def test_a_message_that_is_not_whole_in_time_ends_its_connection(
    host: Host,
    wire: TcpProxy,
    endless: zmq.Socket[bytes],
    clock: ManualClock,
    until: Until,
    caplog: pytest.LogCaptureFixture,
) -> None:
    await begin(host, wire, endless, until)
    clock.advance(limits.DEADLINE_MS_MAX)
    await until(lambda: bool(host.lost))
    assert host.server.statistics().peers_cut == 1
    assert f"its message is not whole after {limits.DEADLINE_MS_MAX} ms" in caplog.text


@pytest.mark.fault
async def test_large_messages_that_become_whole_are_received(
    host: Host, endless: zmq.Socket[bytes], until: Until
) -> None:
    host.answering = False
    bodies = [bytes(2 * MIB)] * (limits.FRAME_PARTS_MAX - 1)
    for number in range(1, 5):
        endless.send_multipart([ask_frame(number), *bodies])
        await until(lambda sent=number: len(host.frames) == sent)
    assert [len(one.frame.body) for one in host.frames] == [len(bodies)] * 4
    await until(lambda: host.server.statistics().unfinished_bytes == 0)
    assert (host.lost, host.server.statistics().peers_cut) == ([], 0)


@pytest.mark.fault
async def test_connections_are_looked_at_in_small_groups(
    host: Host,
    connect: Callable[..., ZmqConnection],
    keys: Any,
    until: Until,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A look at thousands must not hold up all others."""
    monkeypatch.setattr(curve_server, "SWEPT_A_TURN", 2)
    looked_at: list[int] = []
    whole = bytes_received

    def note(descriptor: int) -> int | None:
        looked_at.append(descriptor)
        return whole(descriptor)

    for _ in range(5):
        one = connect(host.address, curve=keys.client)
        assert (await one.request(ASK, timeout_ms=ASK_MS)).code == 0
    monkeypatch.setattr(curve_server, "bytes_received", note)
    await until(lambda: len(set(looked_at)) == 5)
    most = 0
    for _ in range(50):
        looked_at.clear()
        await asyncio.sleep(0)
        most = max(most, len(looked_at))
    assert most == 2
