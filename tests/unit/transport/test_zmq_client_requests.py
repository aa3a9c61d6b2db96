"""The promises of the ZeroMQ server and client to each other, and to a socket of libzmq."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import uvloop
import zmq

from kourou.errors import UnknownOutcome
from kourou.model.limits import FRAME_PARTS_MAX
from kourou.protocol.messages.namesrv import GetKvConfig, GetKvConfigResponse
from kourou.protocol.wire.frames import (
    decode_frame,
    decode_reply,
    decode_request,
    encode_request,
)
from kourou.transport.zmq_client import ZmqConnection

Host = Any  # tests/unit/transport/conftest.py
Connect = Callable[..., ZmqConnection]
Until = Callable[[Callable[[], bool]], Awaitable[None]]

ASK = GetKvConfig(namespace="n", key="k")
PATIENT_MS = 20_000


@pytest.mark.feature("F041")
async def test_many_requests_share_a_connection(host: Host, connect: Connect) -> None:
    connection = connect(host.address)
    bodies = [str(number).encode() for number in range(500)]
    replies = await asyncio.gather(
        *(connection.request(ASK, body=(body,), timeout_ms=PATIENT_MS) for body in bodies)
    )
    assert [bytes(reply.body[0]) for reply in replies] == bodies
    assert len({inbound.peer.id for inbound in host.frames}) == 1


@pytest.mark.parametrize("encrypted", [False, True])
@pytest.mark.parametrize("size", [0, 1, 8_192, 131_072, 4 * 1024 * 1024])
async def test_bodies_of_any_size_arrive_unchanged(
    make_host: Callable[..., Host], connect: Connect, keys: Any, size: int, encrypted: bool
) -> None:
    host = make_host(curve=keys.server) if encrypted else make_host()
    connection = connect(host.address, curve=keys.client if encrypted else None)
    bodies = (bytes(range(256)) * (size // 256) + bytes(size % 256), b"more")
    reply = await connection.request(ASK, body=bodies, timeout_ms=PATIENT_MS)
    assert tuple(map(bytes, reply.body)) == bodies


def test_everything_works_on_uvloop(make_host: Callable[[], Host], until: Until) -> None:
    async def talk() -> int:
        host = make_host()
        connection = ZmqConnection(host.address)
        replies = await asyncio.gather(
            *(connection.request(ASK, timeout_ms=PATIENT_MS) for _ in range(100))
        )
        connection.close()
        await until(lambda: bool(host.lost))
        host.server.close()
        return len(replies)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert runner.run(talk()) == 100


async def test_the_peer_is_distinguished_by_id_and_address(host: Host, connect: Connect) -> None:
    for _ in range(3):
        await connect(host.address).request(ASK, timeout_ms=PATIENT_MS)
    peers = [inbound.peer for inbound in host.frames]
    assert len({peer.id for peer in peers}) == 3
    assert len({peer.address for peer in peers}) == 3
    assert all(peer.address[0] == "127.0.0.1" and peer.address[1] > 0 for peer in peers)
    assert {(peer.protocol, peer.listener) for peer in peers} == {("zmq", "internal")}


@pytest.mark.feature("F044")
async def test_a_plain_zeromq_socket_is_answered(host: Host, until: Until) -> None:
    """A DEALER of pyzmq's own, without any of our transport."""
    with zmq.Context() as context, context.socket(zmq.DEALER) as plain:
        plain.set(zmq.LINGER, 0)
        plain.connect(f"tcp://{host.address}")
        plain.send_multipart([encode_request(ASK, correlation=7, deadline_ms=PATIENT_MS)])
        await until(lambda: bool(plain.poll(0)))
        reply = decode_frame(plain.recv_multipart())
    assert reply.correlation == 7
    assert decode_reply(reply, GetKvConfigResponse)[2] == GetKvConfigResponse(value="v")


async def test_every_request_of_a_console_names_its_user(
    host: Host, connect: Connect, until: Until
) -> None:
    """Also one that waits for the connection, and one that was encoded elsewhere."""
    connection = connect(host.address, on_behalf_of="till")
    await connection.request(ASK, timeout_ms=PATIENT_MS)
    connection.oneway(ASK, timeout_ms=PATIENT_MS)
    number = connection.next_correlation()
    head = encode_request(ASK, correlation=number, deadline_ms=PATIENT_MS)
    ended: list[object] = []
    connection.submit([head, b"body"], number, ended.append, 1 << 60)
    await until(lambda: bool(ended))
    frames = [inbound.frame for inbound in host.frames]
    assert [one.on_behalf_of for one in frames] == ["till"] * 3
    assert [decode_request(one) for one in frames] == [ASK] * 3
    await connect(host.address).request(ASK, timeout_ms=PATIENT_MS)
    assert host.frames[-1].frame.on_behalf_of == ""


async def test_an_encrypted_connection_that_is_closed_ends_after_what_it_has_taken(
    make_host: Callable[..., Host], connect: Connect, keys: Any, until: Until
) -> None:
    """One that ends amid a message can abort its process, in libzmq 4.3.5."""
    host = make_host(curve=keys.server)
    host.answering = False
    connection = connect(host.address, curve=keys.client)
    body = [bytes(2_000_000)] * (FRAME_PARTS_MAX - 1)
    asked = asyncio.ensure_future(connection.request(ASK, body=body, timeout_ms=PATIENT_MS))
    await until(lambda: connection.statistics().sent == 1)
    connection.close()
    with pytest.raises(UnknownOutcome):
        await asked
    await until(lambda: len(host.frames) == 1)
    assert sum(map(len, host.frames[0].frame.body)) == 14_000_000
    await until(lambda: len(host.lost) == 1)
