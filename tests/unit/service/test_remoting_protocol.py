"""RocketMQ's frames become inputs, answers become frames, and no byte of a stranger does harm."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator, Callable

import pytest

from kourou.clock import SystemClock
from kourou.errors import Code
from kourou.protocol.messages.groups import (
    GetConsumerRunningInfo,
    HeartBeat,
    NotifyConsumerIdsChanged,
    UnregisterClient,
)
from kourou.protocol.messages.pulls import GetMaxOffset, GetMaxOffsetResponse, PullMessage
from kourou.protocol.messages.quotas import FlowControlled
from kourou.protocol.messages.sends import SendMessage, SendResponse
from kourou.protocol.request import Answerer, Response
from kourou.protocol.wire.remoting import (
    FrameReader,
    HeaderType,
    Language,
    RemotingCommand,
    encode_command,
    frame_lengths,
)
from kourou.runtime import AskClient, ClientAnswered, Notify, Peer, Received, Reply, ReplyTo
from kourou.service.protocol_server import RequestObserver, TransportCallbacks
from kourou.service.remoting_protocol import RemotingProtocol
from kourou_rigs.waiting import until

TOPIC_FIELDS = {"topic": "orders", "queueId": "3"}


class Wire:
    """A client that speaks frames."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self._cutter = FrameReader()
        self._heard: list[RemotingCommand] = []

    def say(self, command: RemotingCommand) -> None:
        self.writer.write(encode_command(command))

    def say_header(self, header: str, body: bytes = b"") -> None:
        raw = header.encode()
        self.writer.write(frame_lengths(0, len(raw), len(body)) + raw + body)

    async def hear(self) -> RemotingCommand:
        while not self._heard:
            data = await self.reader.read(65_536)
            assert data, "the connection was closed"
            self._heard += self._cutter.feed(data)
        return self._heard.pop(0)


class Counting(RequestObserver):
    def __init__(self) -> None:
        self.bursts = 0
        self.refused: list[tuple[int, int]] = []

    def arrived(self) -> int:
        return 77

    def handled(self) -> None:
        self.bursts += 1

    def answered(self, to: ReplyTo, code: int) -> None:
        self.refused.append((getattr(to, "request_code", 0), code))


class Setup:
    def __init__(self) -> None:
        self.received: list[Received] = []
        self.lost: list[Peer] = []
        self.answers: list[ClientAnswered] = []
        self.observer = Counting()
        callbacks = TransportCallbacks(
            self.received.extend, self.lost.append, self.answers.append, self.observer
        )
        self.protocol = RemotingProtocol(Answerer.BROKER, callbacks, SystemClock())
        self.listening = self.protocol.listen({"internal": "127.0.0.1:0", "vip": "127.0.0.1:0"})
        self.wires: list[Wire] = []

    async def connect(self, listener: str = "internal") -> Wire:
        wire = Wire(*await asyncio.open_connection("127.0.0.1", self.protocol.port(listener)))
        self.wires.append(wire)
        return wire

    async def arrives(self, count: int = 1) -> list[Received]:
        await until(lambda: len(self.received) >= count)
        return self.received


@pytest.fixture
async def setup() -> AsyncIterator[Setup]:
    made = Setup()
    yield made
    for wire in made.wires:
        wire.writer.close()
    made.protocol.close()


def ask(code: int = 30, **fields: object) -> RemotingCommand:
    given = {"ext_fields": TOPIC_FIELDS, "language": Language.JAVA, "opaque": 27, **fields}
    return RemotingCommand(code, **given)  # type: ignore[arg-type]  # a test's shorthand


# -- requests and answers


@pytest.mark.feature("F038", "F039")
@pytest.mark.parametrize("header_type", HeaderType)
async def test_an_answer_has_the_number_and_the_header_type_of_its_request(
    setup: Setup, header_type: HeaderType
) -> None:
    wire = await setup.connect()
    wire.say(ask(opaque=-5, header_type=header_type, body=b"question", language=Language.GO))
    (it,) = await setup.arrives()
    assert it.request == GetMaxOffset(topic="orders", queue_id=3)
    assert [bytes(part) for part in it.body] == [b"question"]
    assert (it.to.language, it.to.version, it.to.oneway) == ("GO", 409, False)
    body = (b"in ", memoryview(b"three "), b"pieces")
    setup.protocol.reply(Reply(it.to, Code.SUCCESS, "", GetMaxOffsetResponse(offset=2**40), body))
    assert await wire.hear() == RemotingCommand(
        0,
        Language.JAVA,
        opaque=-5,
        flag=1,
        ext_fields={"offset": str(2**40)},
        body=b"in three pieces",
        header_type=header_type,
    )


async def test_what_an_answer_has_no_fields_for_is_left_out(setup: Setup) -> None:
    """An answer without fields has none; one with empty fields has an empty object."""
    wire = await setup.connect()
    wire.say(ask())
    wire.say(ask(opaque=28))
    first, second = await setup.arrives(2)
    setup.protocol.reply(Reply(first.to, Code.SYSTEM_ERROR, "no"))
    setup.protocol.reply(Reply(second.to, header=UnregisterClient(client_id="")))
    heard = await wire.hear()
    assert (heard.code, heard.remark, heard.ext_fields, heard.body) == (1, "no", None, b"")
    raw = (await wire.hear()).ext_fields
    assert raw == {"clientID": ""}


async def test_oneway_is_not_answered(setup: Setup) -> None:
    wire = await setup.connect()
    wire.say(ask(flag=2))
    wire.say(ask(99_999, flag=2))
    wire.say(ask(opaque=28))
    first, second = await setup.arrives(2)
    assert (first.to.oneway, second.to.oneway) == (True, False)
    setup.protocol.reply(Reply(first.to))
    setup.protocol.reply(Reply(second.to))
    assert (await wire.hear()).opaque == 28


async def test_every_burst_is_measured(setup: Setup) -> None:
    wire = await setup.connect()
    wire.say(ask())
    (it,) = await setup.arrives()
    assert getattr(it.to, "arrived_ns", 0) == 77
    assert getattr(it.to, "request_code", 0) == 30
    assert setup.observer.bursts == 1
    wire.say(ask(99_999))
    await wire.hear()
    assert setup.observer.refused == [(99_999, Code.REQUEST_CODE_NOT_SUPPORTED)]


# -- what is answered at the edge


@pytest.mark.parametrize(
    ("code", "why"),
    [(99_999, "nobody's"), (105, "a name server's"), (39, "a client's"), (30_001, "ZeroMQ's")],
)
async def test_what_this_service_does_not_answer(setup: Setup, code: int, why: str) -> None:
    wire = await setup.connect()
    wire.say(ask(code))
    heard = await wire.hear()
    assert (heard.code, heard.remark) == (3, f" request type {code} not supported"), why
    assert setup.received == []


async def test_the_second_port_refuses_pulls(setup: Setup) -> None:
    fields = {
        "consumerGroup": "g", "topic": "t", "queueId": "0", "queueOffset": "0", "maxMsgNums": "1",
    }  # fmt: skip
    vip, usual = await setup.connect("vip"), await setup.connect()
    vip.say(ask(PullMessage.code, ext_fields=fields))
    assert (await vip.hear()).code == Code.REQUEST_CODE_NOT_SUPPORTED
    vip.say(ask())
    usual.say(ask(PullMessage.code, ext_fields=fields))
    pulled = {type(it.request): it.to.peer.listener for it in await setup.arrives(2)}
    assert pulled == {GetMaxOffset: "vip", PullMessage: "internal"}


async def test_a_wrong_field_is_named_and_the_connection_goes_on(setup: Setup) -> None:
    wire = await setup.connect()
    wire.say(ask(ext_fields={"topic": "t"}))
    assert "queueId" in ((await wire.hear()).remark or "")
    wire.say_header('{"code":30,"opaque":9,"extFields":{"topic":["t"]}}')
    heard = await wire.hear()
    assert (heard.code, heard.opaque) == (1, 9)
    assert "topic" in (heard.remark or "")
    wire.say(ask())
    await setup.arrives()


@pytest.mark.parametrize("code", [10, 310, 320, 324, 325])
async def test_even_a_refused_send_has_the_fields_that_java_clients_break_without(
    setup: Setup, code: int
) -> None:
    wire = await setup.connect()
    wire.say(ask(code, ext_fields=None))
    heard = await wire.hear()
    assert heard.code == Code.SYSTEM_ERROR
    assert heard.ext_fields == {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true"}


@pytest.mark.parametrize(
    ("code", "header", "told"),
    [
        (
            Code.SUCCESS,
            SendResponse(msg_id="A", queue_id=0, queue_offset=5),
            {"msgId": "A", "queueId": "0", "queueOffset": "5"},
        ),
        (Code.FLOW_CONTROL, FlowControlled(retry_after_ms=70), {"retryAfterMs": "70"}),
    ],
    ids=["accepted", "over its quota"],
)
async def test_a_send_has_them_beside_those_of_its_answer(
    setup: Setup, code: Code, header: Response, told: dict[str, str]
) -> None:
    wire = await setup.connect()
    fields = {"a": "p", "b": "t", "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1", "h": "0"}
    wire.say(ask(310, ext_fields=fields, body=b"x"))
    (it,) = await setup.arrives()
    assert isinstance(it.request, SendMessage)
    setup.protocol.reply(Reply(it.to, code, "why", header))
    heard = await wire.hear()
    assert (heard.code, heard.remark) == (code, "why")
    assert heard.ext_fields == {**told, "MSG_REGION": "DefaultRegion", "TRACE_ON": "true"}


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (Code.DISK_FULL, 14),
        (Code.STORE_FAULTED, 14),
        (Code.POLLING_FULL, 19),
        (Code.DEADLINE_PASSED, 2),
        (Code.OUTCOME_UNKNOWN, 1),
        (Code.METADATA_UNAVAILABLE, 1),
        (Code.MESSAGE_CORRUPT, 1),
        (Code.FLOW_CONTROL, 215),
    ],
)
async def test_codes_of_ours_become_codes_that_clients_know(
    setup: Setup, ours: Code, theirs: int
) -> None:
    wire = await setup.connect()
    wire.say(ask())
    (it,) = await setup.arrives()
    setup.protocol.reply(Reply(it.to, ours, "why"))
    assert (await wire.hear()).code == theirs


SIGNED = {**TOPIC_FIELDS, "Signature": "s=", "AccessKey": "till"}
USUAL = '"language":"JAVA","opaque":1,"version":401'


@pytest.mark.parametrize(
    "said",
    [
        ask(ext_fields=SIGNED),
        ask(ext_fields=SIGNED, header_type=HeaderType.BINARY),
        f'{{"code":30,"extFields":{json.dumps(SIGNED)},{USUAL}}}',
        f'{{"extFields":{json.dumps(SIGNED)},"code":30,{USUAL}}}',
        f'{{"code":30,"extFields":{json.dumps({**SIGNED, "queueId": 3})},{USUAL}}}',
        f'{{"code":30,"extFields":{json.dumps({**SIGNED, "lo": None})},{USUAL}}}',
    ],
)
async def test_what_was_signed_does_not_depend_on_how_the_header_is_written(
    setup: Setup, said: RemotingCommand | str
) -> None:
    wire = await setup.connect()
    if isinstance(said, str):
        wire.say_header(said)
    else:
        wire.say(said)
    (it,) = await setup.arrives()
    assert it.request == GetMaxOffset(topic="orders", queue_id=3)
    signed = it.to.signed
    assert signed is not None
    assert (signed.access_key, signed.signature, signed.text) == ("till", b"s=", b"till3orders")
    assert signed.fields() == SIGNED
    it.to.drop_signed()
    assert it.to.signed is None


async def test_a_request_without_an_access_key_has_no_proof(setup: Setup) -> None:
    wire = await setup.connect()
    wire.say(ask())
    wire.say(ask(ext_fields={**TOPIC_FIELDS, "Signature": "s="}, header_type=HeaderType.BINARY))
    for it in await setup.arrives(2):
        assert it.to.signed is None


# -- spellings (R1, R2 and fact sheet §1.2)


@pytest.mark.feature("F038")
@pytest.mark.parametrize(
    "fields",
    [
        '{"topic":"orders","queueId":3}',
        '{"topic":"orders","queueId":"3","AccessKey":"","Signature":"x","OnsChannel":"ALIYUN"}',
        '{"topic":"orders","queueId":" 03 ","brokerName":"b","ns":null,"nsd":"false","lo":""}',
        "{'topic':'orders',queueId:3,}",
    ],
)
async def test_fields_in_every_spelling(setup: Setup, fields: str) -> None:
    wire = await setup.connect()
    wire.say_header(f'{{"code":30,"opaque":1,"extFields":{fields}}}')
    (it,) = await setup.arrives()
    assert it.request == GetMaxOffset(topic="orders", queue_id=3)


@pytest.mark.parametrize(
    ("spelling", "meaning"),
    [
        ("true", True), ('"true"', True), ('"TRUE"', True), ('"1"', True), ("1", True),
        ("false", False), ('"false"', False), ('"0"', False), ("0", False), ('"yes"', False),
        ("null", False), ('""', False),
    ],
)  # fmt: skip
async def test_booleans_in_every_spelling(setup: Setup, spelling: str, meaning: bool) -> None:
    """C++ clients write "1", JavaScript ones true; Java reads anything but "true" as false, and so
    stores a C++ client's batch as one message. We read "1" as what its sender meant (R5)."""
    wire = await setup.connect()
    fields = f'"producerGroup":"p","topic":"t","queueId":0,"bornTimestamp":"1","batch":{spelling}'
    wire.say_header(f'{{"code":10,"opaque":1,"extFields":{{{fields}}}}}')
    (it,) = await setup.arrives()
    assert isinstance(it.request, SendMessage)
    assert it.request.batch is meaning


async def test_a_header_may_lack_what_it_can(setup: Setup) -> None:
    wire = await setup.connect()
    wire.say_header('{"code":"34","opaque":"8"}', b"{}")
    (it,) = await setup.arrives()
    assert it.request == HeartBeat()
    assert (it.to.language, it.to.version, it.to.correlation) == ("OTHER", 0, 8)


# -- asking clients


async def test_notices_are_oneway_requests(setup: Setup) -> None:
    wire = await setup.connect()
    wire.say(ask())
    (it,) = await setup.arrives()
    setup.protocol.notify(Notify(it.to.peer, NotifyConsumerIdsChanged(consumer_group="g"), (b"x",)))
    heard = await wire.hear()
    assert (heard.code, heard.flag, heard.ext_fields) == (40, 2, {"consumerGroup": "g"})
    assert heard.body == b"x"
    assert heard.header_type is HeaderType.JSON


@pytest.mark.feature("F041")
async def test_a_client_is_asked_and_its_answer_is_matched_by_number(setup: Setup) -> None:
    """Both directions have numbers of their own: 27 is also the number of a request."""
    wire = await setup.connect()
    wire.say(ask(opaque=27))
    (it,) = await setup.arrives()
    peer = it.to.peer
    request = GetConsumerRunningInfo(consumer_group="g", client_id="c")
    setup.protocol.ask(AskClient(27, peer, request, (), 10_000))
    heard = await wire.hear()
    assert (heard.code, heard.flag, heard.opaque) == (307, 0, 27)
    assert heard.ext_fields == {"consumerGroup": "g", "clientId": "c", "jstackEnable": "false"}
    wire.say(RemotingCommand(1, opaque=27, flag=1, remark="no", ext_fields={"a": "b"}, body=b"{}"))
    await until(lambda: bool(setup.answers))
    (answer,) = setup.answers
    assert (answer.token, answer.peer, answer.code, answer.remark) == (27, peer, 1, "no")
    assert answer.fields == {"a": "b"}
    assert [bytes(part) for part in answer.body] == [b"{}"]
    setup.protocol.reply(Reply(it.to))
    assert (await wire.hear()).flag == 1


async def test_nothing_is_sent_to_a_closed_connection(setup: Setup) -> None:
    gone = Peer(10**9, "tcp", ("127.0.0.1", 1))
    elsewhere = Peer(10**9, "tcp", ("127.0.0.1", 1), "nowhere")
    notice = NotifyConsumerIdsChanged(consumer_group="g")
    for peer in (gone, elsewhere):
        setup.protocol.notify(Notify(peer, notice))
        setup.protocol.ask(AskClient(1, peer, notice, (), 1))


# -- damage


@pytest.mark.fault
@pytest.mark.parametrize(
    "header", [b"", b"{", b"[]", b"null", b'{"code":30,"opaque":"x"}', b"\xff\xfe", b'{"opaque":}']
)
async def test_a_header_without_an_opaque_number_closes_the_connection(
    setup: Setup, header: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    good = await setup.connect()
    wire = await setup.connect()
    wire.say(ask(opaque=1))
    wire.writer.write(frame_lengths(0, len(header), 0) + header)
    await until(lambda: bool(setup.lost))
    assert [it.to.correlation for it in setup.received] == [1], "what came before it is served"
    assert await wire.reader.read() == b""
    assert "closing the connection of tcp:127.0.0.1" in caplog.text
    good.say(ask(opaque=2))
    await setup.arrives(2)
    assert setup.protocol.statistics()["internal"].peers_cut == 1


@pytest.mark.fault
@pytest.mark.parametrize("header_type", HeaderType)
async def test_damaged_requests_are_served_refused_or_their_connection_is_closed(
    setup: Setup, header_type: HeaderType, rounds: Callable[[int], int]
) -> None:
    """Whatever is changed in a request: nothing but these three can come of it."""
    chance = random.Random(int(header_type))
    good = await setup.connect()
    fields = {"a": "p", "b": "t", "e": "0", "g": "1", "i": "KEYS\x01k\x02", "m": "false"}
    templates = [
        ask(310, ext_fields=fields, body=b"body", header_type=header_type),
        ask(34, ext_fields=None, body=b'{"clientID":"c"}', header_type=header_type),
        ask(header_type=header_type, remark="r"),
        RemotingCommand(0, flag=1, opaque=3, ext_fields={"k": "v"}, header_type=header_type),
    ]
    for number in range(rounds(300)):
        raw = bytearray(encode_command(chance.choice(templates)))
        for _ in range(chance.randrange(1, 5)):
            raw[chance.randrange(8, len(raw))] = chance.randrange(256)
        wire = await setup.connect()
        wire.writer.write(raw)
        wire.writer.write_eof()
        await wire.reader.read()
        wire.writer.close()
        if number % 25 == 0:
            setup.received.clear()
            good.say(ask(opaque=number))
            await until(lambda n=number: any(it.to.correlation == n for it in setup.received))


# -- life


async def test_the_listening_addresses_are_reported(setup: Setup) -> None:
    port = setup.protocol.port
    assert setup.listening == {
        "tcp": f"127.0.0.1:{port('internal')}",
        "tcp:vip": f"127.0.0.1:{port('vip')}",
    }


async def test_connections_are_counted(setup: Setup) -> None:
    wire = await setup.connect()
    wire.say(ask())
    await setup.arrives()
    families = {family.name: family for family in setup.protocol.families({"cluster": "c"})}
    peers = {labels["listener"]: count for labels, count in families["kourou_peers"].samples}
    assert peers == {"internal": 1, "vip": 0}
    for name in ("kourou_peers_tls", "kourou_tls_handshakes_failed_total"):
        samples = {labels["listener"]: count for labels, count in families[name].samples}
        assert samples == {"internal": 0, "vip": 0}
    labels, frames = families["kourou_frames_in_total"].samples[0]
    assert (dict(labels), frames) == ({"cluster": "c", "carrier": "remoting"}, 1)
    wire.writer.close()
    await until(lambda: bool(setup.lost))
    assert setup.lost == [setup.received[0].to.peer]
