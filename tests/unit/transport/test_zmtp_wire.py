"""A client's clear connection: names, servers that greet late or fall silent, full pipes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from kourou.errors import Unavailable
from kourou.protocol.messages.namesrv import GetKvConfig
from kourou.transport.busy_poll import BusyPoll
from kourou.transport.wire import WireTimeouts
from kourou.transport.zmq_client import ZmqConnection
from kourou.transport.zmtp import ZmtpLink

ASK = GetKvConfig(namespace="n", key="k")
PATIENT_MS = 20_000
GREETING = (b"\xff" + bytes(8) + b"\x7f\x03\x01NULL").ljust(64, b"\0")
READY = b"\x04\x1c\x05READY\x0bSocket-Type\0\0\0\x06ROUTER"

Connect = Callable[..., ZmqConnection]
Host = Any  # tests/unit/transport/conftest.py
Until = Callable[[Callable[[], bool]], Awaitable[None]]


class Bare:
    """A TCP server that says a few bytes and then does not even read."""

    def __init__(self, says: bytes) -> None:
        self.says = says
        self.writers: list[asyncio.StreamWriter] = []

    async def start(self) -> str:
        self.server = await asyncio.start_server(self._met, "127.0.0.1", 0, limit=1)
        return f"127.0.0.1:{self.server.sockets[0].getsockname()[1]}"

    async def _met(self, _reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writers.append(writer)
        writer.write(self.says)

    async def stop(self) -> None:
        self.server.close()
        for writer in self.writers:
            writer.transport.abort()
        await self.server.wait_closed()


@pytest.fixture
async def bare() -> AsyncIterator[Callable[[bytes], Bare]]:
    made: list[Bare] = []

    def make(says: bytes) -> Bare:
        made.append(Bare(says))
        return made[-1]

    yield make
    for one in made:
        await one.stop()


async def test_a_server_may_have_a_name(host: Host, connect: Connect) -> None:
    connection = connect(f"localhost:{host.server.port}")
    assert (await connection.request(ASK, timeout_ms=PATIENT_MS)).code == 0


@pytest.mark.parametrize("host", ["no-such-host.invalid", "a" * 64 + ".invalid"])
async def test_a_name_that_cannot_be_resolved_is_tried_again(
    connect: Connect, monkeypatch: pytest.MonkeyPatch, until: Until, host: str
) -> None:
    loop = asyncio.get_running_loop()
    resolve, asked = loop.getaddrinfo, 0

    async def counted(*arguments: Any, **options: Any) -> Any:
        nonlocal asked
        asked += 1
        return await resolve(*arguments, **options)

    monkeypatch.setattr(loop, "getaddrinfo", counted)
    connection = connect(f"{host}:1", connect_wait_ms=60)
    await until(lambda: asked >= 2)
    with pytest.raises(Unavailable, match="its host name cannot be resolved"):
        await connection.request(ASK, timeout_ms=PATIENT_MS)


@pytest.mark.fault
@pytest.mark.parametrize(
    "says",
    [b"", GREETING[:10], GREETING, b"HTTP/1.1 400 Bad Request\r\n"],
    ids=["nothing", "part", "no READY", "HTTP"],
)
async def test_a_server_that_does_not_finish_the_handshake_is_dialled_again(
    bare: Callable[[bytes], Bare], connect: Connect, until: Until, says: bytes
) -> None:
    server = bare(says)
    connection = connect(await server.start(), timeouts=WireTimeouts(greeting_ms=20))
    await until(lambda: len(server.writers) >= 2)
    with pytest.raises(Unavailable) as caught:
        await connection.request(ASK, timeout_ms=60)
    assert "does not use ZeroMQ, or refused this client" in str(caught.value)


@pytest.mark.fault
async def test_a_server_that_falls_silent_is_lost(
    bare: Callable[[bytes], Bare], connect: Connect, until: Until
) -> None:
    server = bare(GREETING + READY)
    connection = connect(await server.start(), timeouts=WireTimeouts(probe_ms=5, silence_ms=20))
    heard: list[str] = []
    connection.on_connected = lambda: heard.append("connected")
    connection.on_lost = lambda: heard.append("lost")
    await until(lambda: heard[:2] == ["connected", "lost"])


@pytest.mark.fault
async def test_what_a_server_does_not_read_is_refused_beyond_its_pipe(
    bare: Callable[[bytes], Bare], connect: Connect, until: Until
) -> None:
    server = bare(GREETING + READY)
    connection = connect(await server.start(), timeouts=WireTimeouts(pipe_messages=3))
    await until(lambda: connection.connected)
    server.writers[0].transport.pause_reading()  # type: ignore[attr-defined]  # it is a TCP one
    sent = 0
    while connection.send_parts([bytes(1_000_000)]):
        sent += 1
        assert sent < 100, "the buffers of both systems are smaller"
    server.writers[0].transport.resume_reading()  # type: ignore[attr-defined]  # the same
    connection.oneway(ASK, timeout_ms=PATIENT_MS)
    await until(lambda: connection.statistics().waiting == 0)
    assert connection.statistics().sent == sent + 1


async def test_what_was_sent_in_the_turn_of_the_close_still_leaves(
    host: Host, connect: Connect, until: Until
) -> None:
    connection = connect(host.address)
    await connection.request(ASK, timeout_ms=PATIENT_MS)
    for _ in range(3):
        connection.oneway(ASK, timeout_ms=PATIENT_MS)
    connection.close()
    await until(lambda: bool(host.lost))
    assert len(host.frames) == 4


@pytest.mark.parametrize(("gathered", "writes"), [(False, 2), (True, 1)])
async def test_what_is_gathered_leaves_in_one_write(
    host: Host,
    connect: Connect,
    until: Until,
    monkeypatch: pytest.MonkeyPatch,
    gathered: bool,
    writes: int,
) -> None:
    connection = connect(host.address)
    await connection.request(ASK, timeout_ms=PATIENT_MS)
    written: list[ZmtpLink] = []
    write = ZmtpLink.write
    port = int(host.address.rpartition(":")[2])

    def counted(link: ZmtpLink, now_ms: int) -> int:
        if link.socket.getpeername()[1] == port:  # other tests' links may still be open
            written.append(link)
        return write(link, now_ms)

    monkeypatch.setattr(ZmtpLink, "write", counted)
    if gathered:
        connection.gather()
    for _ in range(3):
        connection.oneway(ASK, timeout_ms=PATIENT_MS)
    await until(lambda: len(host.frames) == 4)
    assert len(written) == writes


@pytest.mark.parametrize(("window_us", "looks"), [(0, False), (10_000_000, True)])
async def test_it_looks_for_the_reply_if_it_may(
    host: Host, connect: Connect, monkeypatch: pytest.MonkeyPatch, window_us: int, looks: bool
) -> None:
    looked: list[BusyPoll] = []
    look = BusyPoll._look
    monkeypatch.setattr(BusyPoll, "_look", lambda poll: (looked.append(poll), look(poll)))
    connection = connect(host.address, timeouts=WireTimeouts(busy_poll_us=window_us))
    for _ in range(2):
        await connection.request(ASK, timeout_ms=PATIENT_MS)
    assert bool(looked) is looks
    looked.clear()
    for _ in range(3):
        await asyncio.sleep(0)
    assert looked == [], "the reply is here"
