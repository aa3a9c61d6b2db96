"""Frames become inputs, replies become frames, and what cannot be answered is answered so."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from kourou.clock import SystemClock
from kourou.errors import Code, DecodeError
from kourou.protocol.messages.namesrv import GetKvConfig, GetKvConfigResponse, GetNamesrvConfig
from kourou.protocol.request import Answerer, Request
from kourou.protocol.wire.frames import NO_TRACE, Frame, FrameKind, encode_reply, encode_request
from kourou.runtime import AskClient, ClientAnswered, Notify, Peer, Received, Reply
from kourou.service.protocol_server import TransportCallbacks
from kourou.service.zmq_protocol import ZmqProtocol
from kourou.transport.zmq_client import ZmqConnection
from kourou_rigs.waiting import until

TIMEOUT_MS = 20_000
ASK = GetKvConfig(namespace="n", key="k")


class Setup:
    def __init__(self) -> None:
        self.received: list[Received] = []
        self.lost: list[Peer] = []
        self.answers: list[ClientAnswered] = []
        self.protocol = ZmqProtocol(
            Answerer.NAMESRV,
            TransportCallbacks(self.received.extend, self.lost.append, self.answers.append),
            SystemClock(),
        )
        self.listening = self.protocol.listen({"internal": "127.0.0.1:0", "host": "127.0.0.1:0"})
        self.opened: list[ZmqConnection] = []

    def connect(self, name: str = "zmq", **options: object) -> ZmqConnection:
        address = self.listening[name].removeprefix("tcp://")
        connection = ZmqConnection(address, **options)  # type: ignore[arg-type]  # a shorthand
        self.opened.append(connection)
        return connection

    def close(self) -> None:
        for connection in self.opened:
            connection.close()
        self.protocol.close()


@pytest.fixture
async def setup() -> AsyncIterator[Setup]:
    made = Setup()
    yield made
    made.close()


async def test_a_request_and_its_reply(setup: Setup) -> None:
    asked = asyncio.ensure_future(
        setup.connect().request(ASK, body=(b"body",), timeout_ms=TIMEOUT_MS)
    )
    await until(lambda: bool(setup.received))
    it = setup.received[0]
    assert (it.request, [bytes(part) for part in it.body], it.trace) == (ASK, [b"body"], NO_TRACE)
    now_ms = SystemClock().monotonic_ms()
    assert now_ms - TIMEOUT_MS < it.deadline_ms <= now_ms + TIMEOUT_MS
    assert not it.to.oneway
    setup.protocol.reply(Reply(it.to, Code.SUCCESS, "r", GetKvConfigResponse(value="v"), (b"x",)))
    reply = await asked
    assert (reply.remark, reply.header) == ("r", GetKvConfigResponse(value="v"))
    assert bytes(reply.body[0]) == b"x"


async def test_a_reply_carries_the_trace_of_its_request(setup: Setup) -> None:
    trace, outcomes = bytes(range(1, 26)), []
    head = encode_request(ASK, correlation=1, deadline_ms=9_000, trace=trace)
    deadline_ms = SystemClock().monotonic_ms() + TIMEOUT_MS
    setup.connect().submit([head], 1, outcomes.append, deadline_ms)
    await until(lambda: bool(setup.received))
    setup.protocol.reply(Reply(setup.received[0].to))
    await until(lambda: bool(outcomes))
    assert outcomes[0].trace == trace


async def test_each_listener_is_named_and_answers_its_own_peers(setup: Setup) -> None:
    assert set(setup.listening) == {"zmq", "zmq:host"}
    asked = [
        asyncio.ensure_future(setup.connect(name).request(ASK, timeout_ms=TIMEOUT_MS))
        for name in setup.listening
    ]
    await until(lambda: len(setup.received) == 2)
    assert {it.to.peer.listener for it in setup.received} == {"internal", "host"}
    for it in setup.received:
        setup.protocol.reply(Reply(it.to, remark=it.to.peer.listener))
    assert [(await reply).remark for reply in asked] == ["internal", "host"]


async def test_oneway_and_notices(setup: Setup) -> None:
    heard: list[Frame] = []
    connection = setup.connect(on_notify=heard.append)
    connection.oneway(ASK)
    await until(lambda: bool(setup.received))
    it = setup.received[0]
    assert it.to.oneway
    setup.protocol.reply(Reply(it.to))  # nobody wants it
    setup.protocol.notify(Notify(it.to.peer, GetNamesrvConfig()))
    await until(lambda: bool(heard))
    assert [(one.kind, one.code) for one in heard] == [(FrameKind.NOTIFY, GetNamesrvConfig.code)]
    assert setup.protocol.statistics()["internal"].frames_out == 1, "the notice alone"


async def test_a_client_is_asked_and_its_answer_comes_in(setup: Setup) -> None:
    heard: list[Frame] = []
    connection = setup.connect(on_notify=heard.append)
    connection.oneway(ASK)
    await until(lambda: bool(setup.received))
    peer = setup.received[0].to.peer
    setup.protocol.ask(AskClient(7, peer, GetNamesrvConfig(), (b"q",), 9_000))
    await until(lambda: bool(heard))
    (asked,) = heard
    assert (asked.kind, asked.correlation, asked.deadline_ms) == (FrameKind.REQUEST, 7, 9_000)
    assert [bytes(part) for part in asked.body] == [b"q"]
    connection.send_parts([encode_reply(7, 1, "no", GetKvConfigResponse(value="v")), b"x"])
    connection.send_parts([encode_reply(8, 0)[:45] + b"\x93"])
    await until(lambda: len(setup.answers) == 2)
    answer, malformed = setup.answers
    assert (answer.token, answer.peer, answer.code, answer.remark) == (7, peer, 1, "no")
    assert (answer.fields, [bytes(part) for part in answer.body]) == ({"value": "v"}, [b"x"])
    assert answer.error is None
    assert (malformed.token, type(malformed.error)) == (8, DecodeError)


class Heartbeat(Request):
    code = 34


@pytest.mark.parametrize(
    ("head", "code"),
    [
        (
            encode_request(Heartbeat(), correlation=1, deadline_ms=9),
            Code.REQUEST_CODE_NOT_SUPPORTED,
        ),
        (encode_request(ASK, correlation=1, deadline_ms=9)[:45] + b"\x80", Code.SYSTEM_ERROR),
    ],
    ids=["not for this service", "a field is missing"],
)
async def test_what_cannot_be_answered_is_answered_so(
    setup: Setup, head: bytes, code: Code
) -> None:
    outcomes: list[object] = []
    deadline_ms = SystemClock().monotonic_ms() + TIMEOUT_MS
    setup.connect().submit([head], 1, outcomes.append, deadline_ms)
    await until(lambda: bool(outcomes))
    frame = outcomes[0]
    assert isinstance(frame, Frame)
    assert frame.code == code
    assert setup.received == []


async def test_the_lost_are_reported_and_counted(setup: Setup) -> None:
    connection = setup.connect()
    connection.oneway(ASK)
    await until(lambda: bool(setup.received))
    assert setup.protocol.statistics()["internal"].peers == 1
    families = {family.name: family for family in setup.protocol.families({"cluster": "c"})}
    labels, value = families["kourou_peers"].samples[0]
    assert dict(labels) == {"cluster": "c", "carrier": "zmq", "listener": "internal"}
    assert value == 1
    connection.close()
    await until(lambda: bool(setup.lost))
    assert setup.lost == [setup.received[0].to.peer]


async def test_a_paused_server_still_replies(setup: Setup) -> None:
    asked = asyncio.ensure_future(setup.connect().request(ASK, timeout_ms=TIMEOUT_MS))
    await until(lambda: bool(setup.received))
    setup.protocol.pause()
    setup.protocol.reply(Reply(setup.received[0].to))
    assert (await asked).code == Code.SUCCESS


async def test_the_user_that_a_frame_names_comes_with_the_request(setup: Setup) -> None:
    setup.connect(on_behalf_of="till").oneway(ASK)
    setup.connect().oneway(ASK)
    await until(lambda: len(setup.received) == 2)
    assert sorted(one.on_behalf_of for one in setup.received) == ["", "till"]
    assert {one.console for one in setup.received} == {""}
