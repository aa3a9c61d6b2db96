"""A connection to a remoting server: every request has exactly one end."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from kourou.errors import DecodeError, TimedOut, Unavailable, UnknownOutcome
from kourou.protocol.messages.groups import NotifyConsumerIdsChanged
from kourou.protocol.messages.namesrv import GetKvConfig, GetKvConfigResponse
from kourou.protocol.messages.pulls import GetMaxOffset
from kourou.protocol.messages.sends import SendMessage
from kourou.protocol.wire.remoting import (
    FrameReader,
    HeaderType,
    Language,
    RemotingCommand,
    encode_command,
)
from kourou.transport.remoting_client import RemotingConnection

Until = Callable[[Callable[[], bool]], Awaitable[None]]
ASK = GetKvConfig(namespace="n", key="k")
PATIENT_MS = 20_000


class Server:
    """Answers as the test says; what it was asked is kept."""

    def __init__(self) -> None:
        self.heard: list[RemotingCommand] = []
        self.connections = 0
        self.writers: list[asyncio.StreamWriter] = []
        self.respond: Callable[[RemotingCommand], bytes] = lambda asked: encode_command(
            RemotingCommand(0, opaque=asked.opaque, flag=1, ext_fields={"value": "v"}, body=b"b")
        )

    async def start(self) -> None:
        self.server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.address = f"127.0.0.1:{self.server.sockets[0].getsockname()[1]}"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.writers.append(writer)
        cutter = FrameReader()
        while data := await reader.read(65_536):
            for command in cutter.feed(data):
                self.heard.append(command)
                writer.write(self.respond(command))
        writer.close()


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    made = Server()
    await made.start()
    yield made
    for writer in made.writers:
        writer.close()
    made.server.close()
    await made.server.wait_closed()


@pytest.fixture
async def connect(server: Server) -> AsyncIterator[Callable[..., RemotingConnection]]:
    opened: list[RemotingConnection] = []

    def make(address: str = server.address, **options: object) -> RemotingConnection:
        opened.append(RemotingConnection(address, **options))  # type: ignore[arg-type]  # shorthand
        return opened[-1]

    yield make
    for connection in opened:
        connection.close()


Connect = Callable[..., RemotingConnection]


@pytest.mark.parametrize("header_type", HeaderType)
async def test_a_question_and_its_answer(
    server: Server, connect: Connect, header_type: HeaderType
) -> None:
    connection = connect(header_type=header_type, language=Language.JAVA)
    assert not connection.connected
    reply = await connection.request(ASK, body=(b"q", b"!"), timeout_ms=PATIENT_MS)
    assert (reply.code, reply.remark, reply.header) == (0, "", GetKvConfigResponse(value="v"))
    assert [bytes(part) for part in reply.body] == [b"b"]
    assert connection.connected
    (asked,) = server.heard
    assert (asked.code, asked.ext_fields) == (101, {"namespace": "n", "key": "k"})
    assert (asked.body, asked.language, asked.header_type) == (b"q!", Language.JAVA, header_type)


@pytest.mark.feature("F041")
async def test_many_share_a_connection_and_answers_come_in_any_order(
    server: Server, connect: Connect
) -> None:
    kept: list[RemotingCommand] = []

    def late(asked: RemotingCommand) -> bytes:
        kept.append(asked)
        if len(kept) < 50:
            return b""
        return b"".join(
            encode_command(
                RemotingCommand(0, opaque=one.opaque, flag=1, ext_fields={"value": one.body.hex()})
            )
            for one in reversed(kept)
        )

    server.respond = late
    connection = connect()
    bodies = [bytes([number]) for number in range(50)]
    replies = await asyncio.gather(
        *(connection.request(ASK, body=(body,), timeout_ms=PATIENT_MS) for body in bodies)
    )
    assert [reply.header for reply in replies] == [
        GetKvConfigResponse(value=body.hex()) for body in bodies
    ]
    assert server.connections == 1


async def test_short_names_are_for_requests_that_have_them(
    server: Server, connect: Connect
) -> None:
    server.respond = lambda asked: encode_command(
        RemotingCommand(13, opaque=asked.opaque, flag=1, remark="too large", ext_fields={"x": "y"})
    )
    send = SendMessage(producer_group="p", topic="t", queue_id=0, born_timestamp=1)
    reply = await connect().request(send, timeout_ms=PATIENT_MS)
    assert (reply.code, reply.remark, reply.header) == (13, "too large", None)
    assert (server.heard[0].ext_fields or {})["producerGroup"] == "p"


async def test_an_answer_that_is_none(server: Server, connect: Connect) -> None:
    server.respond = lambda asked: encode_command(
        RemotingCommand(0, opaque=asked.opaque, flag=1, ext_fields={"offset": "x"})
    )
    with pytest.raises(DecodeError):
        await connect().request(GetMaxOffset(topic="t", queue_id=0), timeout_ms=PATIENT_MS)


async def test_silence_ends_at_the_deadline_and_late_answers_are_dropped(
    server: Server, connect: Connect, until: Until
) -> None:
    usual = server.respond
    connection = connect()
    await connection.request(ASK, timeout_ms=PATIENT_MS)  # the deadline below has no dial in it
    server.heard.clear()
    server.respond = lambda _: b""
    with pytest.raises(TimedOut):
        await connection.request(ASK, timeout_ms=1)
    await until(lambda: bool(server.heard))
    server.writers[0].write(usual(server.heard[0]))
    server.respond = usual
    assert (await connection.request(ASK, timeout_ms=PATIENT_MS)).code == 0


async def test_nobody_there(server: Server, connect: Connect) -> None:
    server.server.close()
    with pytest.raises(Unavailable, match="cannot reach"):
        await connect().request(ASK, timeout_ms=PATIENT_MS)


async def test_a_lost_connection_ends_what_was_under_way_and_is_dialled_anew(
    server: Server, connect: Connect, until: Until
) -> None:
    usual, server.respond = server.respond, lambda _: b""
    connection = connect()
    asked = asyncio.ensure_future(connection.request(ASK, timeout_ms=PATIENT_MS))
    await until(lambda: bool(server.heard))
    server.writers[0].close()
    with pytest.raises(UnknownOutcome, match="lost"):
        await asked
    server.respond = usual
    assert (await connection.request(ASK, timeout_ms=PATIENT_MS)).code == 0
    assert server.connections == 2


@pytest.mark.fault
async def test_what_is_no_frame_ends_the_connection(server: Server, connect: Connect) -> None:
    server.respond = lambda _: struct.pack(">II", 2**31, 0)
    with pytest.raises(UnknownOutcome, match="invalid frame"):
        await connect().request(ASK, timeout_ms=PATIENT_MS)


async def test_what_the_server_asks_is_heard_and_answered(
    server: Server, connect: Connect, until: Until
) -> None:
    asked: list[RemotingCommand] = []
    connection = connect(on_request=asked.append)
    await connection.request(ASK, timeout_ms=PATIENT_MS)
    server.writers[0].write(encode_command(RemotingCommand(307, opaque=5, body=b"?")))
    await until(lambda: bool(asked))
    server.heard.clear()
    server.respond = lambda _: b""
    connection.answer(asked[0], RemotingCommand(206, remark="no", body=b"{}"))
    await until(lambda: bool(server.heard))
    (answer,) = server.heard
    assert (answer.code, answer.opaque, answer.flag, answer.body) == (206, 5, 1, b"{}")


async def test_oneway(server: Server, connect: Connect, until: Until) -> None:
    await connect().oneway(NotifyConsumerIdsChanged(consumer_group="g"))
    await until(lambda: bool(server.heard))
    assert server.heard[0].is_oneway


async def test_closed_is_closed(server: Server, connect: Connect, until: Until) -> None:
    server.respond = lambda _: b""
    connection = connect()
    asked = asyncio.ensure_future(connection.request(ASK, timeout_ms=PATIENT_MS))
    await until(lambda: bool(server.heard))
    connection.close()
    with pytest.raises(UnknownOutcome, match="closed"):
        await asked
    with pytest.raises(Unavailable, match="closed"):
        await connection.request(ASK, timeout_ms=PATIENT_MS)
