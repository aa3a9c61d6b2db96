"""A server that tests can look into, connections to it, and sockets closed when a test is over."""

from __future__ import annotations

import asyncio
import ssl
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import zmq

from kourou.protocol.messages.namesrv import GetKvConfigResponse
from kourou.protocol.wire.frames import FrameKind, encode_reply
from kourou.protocol.wire.remoting import decode_header
from kourou.runtime import Peer
from kourou.transport import tcp_server
from kourou.transport.curve_keys import (
    AllowedKeys,
    ClientCurve,
    PairFile,
    ServerCurve,
    ServerKeys,
    make_pair,
)
from kourou.transport.curve_server import CurveServer
from kourou.transport.remoting_server import InboundFrame, RemotingServer
from kourou.transport.zmq_client import ZmqConnection
from kourou.transport.zmq_server import Inbound, ZmqServer
from kourou.transport.zmq_socket import process_context
from kourou_rigs.clock import ManualClock


@dataclass(frozen=True)
class Keys:
    """Of a server, a client that it lets in, and a stranger; each knows the server's."""

    folder: Path
    server: ServerCurve
    client: ClientCurve
    stranger: ClientCurve


@pytest.fixture
def keys(tmp_path: Path) -> Keys:
    pairs = {
        name: PairFile(make_pair(tmp_path / name, name)[1])
        for name in ("server", "client", "stranger")
    }
    servers = ServerKeys(tmp_path / "server" / "server.key")
    allowed = AllowedKeys(tmp_path / "client")
    return Keys(
        tmp_path,
        ServerCurve(pairs["server"], allowed),
        ClientCurve(pairs["client"], servers),
        ClientCurve(pairs["stranger"], servers),
    )


class Host:
    """A server that records what it is told and answers as it is told."""

    def __init__(self, **options: object) -> None:
        self.batches: list[list[Inbound]] = []
        self.lost: list[Peer] = []
        self.answering = True
        kind: Any = CurveServer if "curve" in options else ZmqServer
        self.server = kind(
            options.pop("bind", "127.0.0.1:0"), self._frames, self.lost.append, **options
        )
        self.server.start()

    @property
    def frames(self) -> list[Inbound]:
        return [inbound for batch in self.batches for inbound in batch]

    @property
    def address(self) -> str:
        return self.server.address

    def _frames(self, batch: list[Inbound]) -> None:
        self.batches.append(batch)
        if self.answering:
            for inbound in batch:
                if inbound.frame.kind is FrameKind.REQUEST:
                    self.answer(inbound)

    def answer(self, inbound: Inbound) -> None:
        header = GetKvConfigResponse(value="v")
        head = encode_reply(inbound.frame.correlation, 0, "well", header)
        self.server.send(inbound.peer, [head, *inbound.frame.body])


@pytest.fixture
def make_host() -> Iterator[Callable[..., Host]]:
    made: list[Host] = []

    def make(**options: object) -> Host:
        made.append(Host(**options))
        return made[-1]

    yield make
    for each in made:
        each.server.close()


@pytest.fixture
async def host(make_host: Callable[..., Host]) -> Host:
    """Made inside the test's loop, hence a coroutine."""
    return make_host()


@pytest.fixture
def until() -> Callable[[Callable[[], bool]], Awaitable[None]]:
    """Let the loop run until something is so; the test's own timeout ends it otherwise."""

    async def wait(condition: Callable[[], bool]) -> None:
        while not condition():  # noqa: ASYNC110 - what is waited for has no event to wait on
            await asyncio.sleep(0)

    return wait


@pytest.fixture
async def connect() -> AsyncIterator[Callable[..., ZmqConnection]]:
    opened: list[ZmqConnection] = []

    def make(address: str, **options: object) -> ZmqConnection:
        connection = ZmqConnection(address, **options)  # type: ignore[arg-type]  # see Host
        opened.append(connection)
        return connection

    yield make
    for connection in opened:
        connection.close()


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


# -- RocketMQ's frames


class RemotingHost:
    """A listener that notes what it is told, on a clock that only the test moves."""

    def __init__(self, **options: object) -> None:
        self.clock = ManualClock()
        self.batches: list[list[InboundFrame]] = []
        self.lost: list[Peer] = []
        self.order: list[str] = []
        self.echo = False
        self.server = RemotingServer(
            "127.0.0.1:0",
            self._frames,
            self._gone,
            clock=self.clock,
            **options,  # type: ignore[arg-type]  # a test's shorthand
        )
        self.server.start()
        self.writers: list[asyncio.StreamWriter] = []

    def _frames(self, batch: list[InboundFrame]) -> None:
        self.batches.append(batch)
        self.order.append("frames")
        if self.echo:
            for inbound in batch:
                self.server.send(inbound.peer, (self.whole(inbound),))

    def _gone(self, peer: Peer) -> None:
        self.lost.append(peer)
        self.order.append("lost")

    @property
    def frames(self) -> list[InboundFrame]:
        return [inbound for batch in self.batches for inbound in batch]

    @staticmethod
    def whole(inbound: InboundFrame) -> bytes:
        """A frame as it was sent."""
        header, body = inbound.frame.header, inbound.frame.body
        word = inbound.frame.header_type << 24 | len(header)
        return struct.pack(">II", 4 + len(header) + len(body), word) + header + body

    @property
    def opaques(self) -> list[int]:
        return [
            decode_header(one.frame.header_type, bytes(one.frame.header)).opaque
            for one in self.frames
        ]

    async def connect(
        self, trust: ssl.SSLContext | None = None
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """In clear text, or over TLS by a client that trusts so."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.server.port, ssl=trust)
        self.writers.append(writer)
        return reader, writer

    async def close(self) -> None:
        for writer in self.writers:
            writer.transport.abort()  # closing TLS waits 30 s for a client that does not read
        self.server.close()
        for writer in self.writers:
            try:
                await writer.wait_closed()
            except OSError:
                continue  # the server was faster


@pytest.fixture
async def remoting_host() -> AsyncIterator[RemotingHost]:
    made = RemotingHost()
    yield made
    await made.close()


@pytest.fixture
async def make_remoting_host() -> AsyncIterator[Callable[..., RemotingHost]]:
    made: list[RemotingHost] = []

    def make(**options: object) -> RemotingHost:
        made.append(RemotingHost(**options))
        return made[-1]

    yield make
    for each in made:
        await each.close()


@pytest.fixture
def sweeping(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tcp_server, "SWEEP_S", 0.0)
