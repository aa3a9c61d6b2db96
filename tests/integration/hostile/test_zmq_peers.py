"""What a peer of a ZeroMQ listener claims to be, and streams that are none of ZeroMQ's."""

from __future__ import annotations

import struct
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest
import zmq

from kourou.errors import Code
from kourou.model import limits
from kourou.protocol.bodies.access_bodies import UserChange, encode_user_change, parse_role
from kourou.protocol.messages.access import AuthCreateUser, AuthListUser, AuthUpdateUser
from kourou.protocol.messages.pulls import GetMinOffset
from kourou.protocol.messages.replication import Attach, Attached, FetchLog, GetLogBeginning
from kourou.protocol.messages.sends import SendMessage
from kourou.protocol.request import Request
from kourou.protocol.wire.frames import (
    Frame,
    FrameKind,
    decode_frame,
    decode_reply,
    decode_request,
    encode_reply,
    encode_request,
)
from kourou.transport import curve_server
from kourou.transport.curve_keys import ClientCurve, PairFile, ServerKeys, make_pair, read_pair
from kourou.transport.zmq_client import ZmqConnection
from kourou.transport.zmq_socket import arm_dealer, process_context
from kourou_rigs.attacked import ASK_MS, ROOT, Attacked, broker_with_users, key_pairs
from kourou_rigs.tcp_proxy import TcpProxy
from kourou_rigs.waiting import until

GREETING = (b"\xff" + bytes(8) + b"\x7f\x03\x01NULL").ljust(64, b"\0")
GREETING_BYTES, READY_OF_SERVER_BYTES = 64, 43


def ready(**properties: bytes) -> bytes:
    """A READY command with these properties, `_` in their names standing for `-`."""
    data = b"\x05READY"
    for name, value in {"Socket_Type": b"DEALER", **properties}.items():
        text = name.replace("_", "-").encode()
        data += bytes((len(text),)) + text + struct.pack(">I", len(value)) + value
    return b"\x04" + bytes((len(data),)) + data


def message(*parts: bytes) -> bytes:
    last = len(parts) - 1
    return b"".join(
        bytes((2 | (number < last),)) + struct.pack(">Q", len(part)) + part
        for number, part in enumerate(parts)
    )


def ask(request: Request, correlation: int = 1) -> bytes:
    return message(encode_request(request, correlation=correlation, deadline_ms=ASK_MS))


def send_to(topic: str) -> SendMessage:
    return SendMessage(
        producer_group="p", topic=topic, queue_id=0, born_timestamp=1, default_topic="TBW102",
        default_topic_queue_nums=1,
    )  # fmt: skip


@pytest.mark.fault
@pytest.mark.parametrize("name", ["User_Id", "user_id", "X_User", "Identity", "Peer_Address"])
async def test_a_peer_in_clear_text_cannot_say_who_it_is(secured: Attacked, name: str) -> None:
    """libzmq passes on a User-Id that the peer wrote itself if there is no authentication."""
    key = next(iter(secured.view.control.access.users))
    reader, writer = await secured.connect("zmq")
    writer.write(GREETING + ready(**{name: key.encode()}) + ask(AuthListUser()))
    await reader.readexactly(GREETING_BYTES + READY_OF_SERVER_BYTES)
    flags, size = await reader.readexactly(2)
    assert flags == 0
    reply = decode_frame([await reader.readexactly(size)])
    assert reply.code == Code.NO_PERMISSION
    _, remark, _ = decode_reply(reply, None)
    assert "anonymous" in remark
    assert root_is_alone(secured)
    await secured.serves(ROOT)


def root_is_alone(broker: Attacked) -> bool:
    administrators: list[str] = broker.view.control.access.table.administrators
    return administrators == [ROOT]


STREAMS = {
    "half a greeting": (GREETING[:30], True),
    "another signature": (b"\xff" + bytes(8) + b"\x00" + GREETING[10:], False),
    "an old version": (GREETING[:10] + b"\x01\x00" + GREETING[12:], False),
    "another mechanism": (GREETING[:12] + b"PLAIN".ljust(20, b"\0") + GREETING[32:], False),
    "CURVE": (GREETING[:12] + b"CURVE".ljust(20, b"\0") + GREETING[32:], False),
    "a message before READY": (GREETING + ask(AuthListUser()), False),
    "no kind of socket": (GREETING + ready(Socket_Type=b""), False),
    "another kind of socket": (GREETING + ready(Socket_Type=b"PUB"), False),
    "a property that claims 4 GiB": (
        GREETING + b"\x04\x0c\x05READY\x01a\xff\xff\xff\xff",
        False,
    ),
    "a part of 2**63": (GREETING + ready() + b"\x02" + b"\x80" + bytes(7), False),
    "a part of 2**64 - 1": (GREETING + ready() + b"\x03" + b"\xff" * 8, False),
    "unknown flags": (GREETING + ready() + b"\xf8\x01a", False),
    "parts without end": (GREETING + ready() + b"\x01\x04abcd" * 200_000, True),
    "large parts without end": (
        GREETING + ready() + (b"\x03" + struct.pack(">Q", 20_000) + bytes(20_000)) * 1_000,
        True,
    ),
    "empty parts without end": (GREETING + ready() + b"\x01\x00" * 500_000, True),
    "commands without end": (GREETING + ready() + b"\x04\x02\x01x" * 200_000, True),
    "pings without end": (GREETING + ready() + b"\x04\x07\x04PING\0\0" * 200_000, True),
    "an error": (GREETING + b"\x04\x0a\x05ERROR\x03abc", False),
    "messages that are no frames": (GREETING + ready() + message(b"x") * 20, False),
    "frames of nine parts": (GREETING + ready() + message(*[b"K"] * 9) * 20, False),
    "replies that nobody asked for": (
        GREETING + ready() + b"".join(message(encode_reply(n, 0, "x" * 1_000)) for n in range(500)),
        True,
    ),
    "a flood of requests without replies": (
        GREETING
        + ready()
        + message(
            encode_request(
                GetMinOffset(topic="orders", queue_id=0),
                correlation=5,
                deadline_ms=0,
                kind=FrameKind.ONEWAY,
            )
        )
        * 30_000,
        True,
    ),
    "headers that are too long": (
        GREETING + ready() + message(b"K\x01\x01\x00" + bytes(70_000)) * 16,
        False,
    ),
}
"""Streams, and whether the peer may stay for the time being."""


@pytest.mark.fault
@pytest.mark.parametrize(("sent", "stays"), STREAMS.values(), ids=STREAMS)
async def test_a_stream_that_is_not_zeromq_costs_its_connection_alone(
    attacked: Attacked, sent: bytes, stays: bool
) -> None:
    assert (await attacked.sent(b"by ZeroMQ")).code == Code.SUCCESS
    before = attacked.statistics("zmq")["bytes_in"]
    reader, writer = await attacked.connect("zmq")
    writer.write(sent)
    if stays:
        await until(lambda: attacked.statistics("zmq")["bytes_in"] >= before + len(sent))
        kept = attacked.statistics("zmq")
        assert kept["unfinished_bytes"] < 1 << 18
        assert kept["queued_bytes"] < 1 << 16
    else:
        with suppress(ConnectionError):  # it was closed with bytes that nobody has read
            while await reader.read(1 << 16):
                continue
        await until(lambda: attacked.statistics("zmq")["peers_cut"] == 1)
    writer.close()
    assert (await attacked.sent(b"by ZeroMQ")).code == Code.SUCCESS
    await until(lambda: attacked.statistics("zmq")["peers"] == 1)
    await attacked.serves()


@pytest.mark.fault
@pytest.mark.parametrize("encrypted", [False, True])
async def test_a_stranger_copies_no_log_and_follows_nobody(tmp_path: Path, encrypted: bool) -> None:
    """With curveClients=any, as in clear text, everybody may connect to the port for replicas."""
    settings, curve = {}, None
    if encrypted:
        public, pair = make_pair(tmp_path / "broker", "broker", ["127.0.0.1"])
        settings = {"curve_key_file": pair, "curve_clients": "any"}
        own = PairFile(make_pair(tmp_path / "stranger", "stranger")[1])
        curve = ClientCurve(own, ServerKeys(public))
    async with broker_with_users(tmp_path, **settings) as broker:
        heard: list[Frame] = []
        stranger = ZmqConnection(broker.address("replication"), curve=curve, on_notify=heard.append)
        for request in (
            FetchLog(group="broker-a", position=0, max_bytes=1 << 20),
            GetLogBeginning(group="broker-a"),
        ):
            reply = await stranger.request(request, timeout_ms=ASK_MS)
            assert (reply.code, reply.body) == (Code.NO_PERMISSION, [])
            assert "curveMembers does not name the keys" in reply.remark
        attach = Attach(cluster="DefaultCluster", broker_name="broker-a", broker_id=1)
        stranger.oneway(attach, timeout_ms=ASK_MS)
        await until(lambda: bool(heard))
        answer = decode_request(heard[0])
        assert isinstance(answer, Attached)
        assert "curveMembers does not name the keys" in answer.refusal
        assert broker.core.role.followers == []
        stranger.close()
        await broker.serves(ROOT)


@pytest.mark.fault
async def test_a_key_that_is_taken_away_ends_on_its_open_connection(tmp_path: Path) -> None:
    pairs = key_pairs(tmp_path, "broker", "app")
    curve = {"curve_key_file": pairs["broker"], "curve_clients": "any"}
    async with broker_with_users(tmp_path, **curve) as broker:
        key = read_pair(pairs["app"]).public
        roles = (parse_role("writer:orders"), parse_role("operator:orders"))
        made = await broker.request(
            AuthCreateUser(username="app"),
            encode_user_change(UserChange(roles=roles, curve_keys=(key,))),
            ROOT,
        )
        assert made.code == Code.SUCCESS, made.remark
        servers = ServerKeys(tmp_path / "broker" / "broker.key")
        app = ZmqConnection(
            broker.address("zmq"), curve=ClientCurve(PairFile(pairs["app"]), servers)
        )
        allowed = await app.request(send_to("orders"), body=(b"1",), timeout_ms=ASK_MS)
        assert allowed.code == Code.SUCCESS, allowed.remark
        taken = await broker.request(
            AuthUpdateUser(username="app"), encode_user_change(UserChange(curve_keys=())), ROOT
        )
        assert taken.code == Code.SUCCESS, taken.remark
        refused = await app.request(send_to("orders"), body=(b"2",), timeout_ms=ASK_MS)
        assert refused.code == Code.NO_PERMISSION
        assert app.statistics().reopened == 0, "the connection is the same"
        assert broker.stored() == 1
        app.close()


@pytest.mark.fault
async def test_an_encrypted_message_without_an_end_costs_its_connection_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With curveClients=any a stranger's key is let in, and libzmq keeps all parts of a message."""
    monkeypatch.setattr(curve_server, "SWEEP_S", 0.0)
    pairs = key_pairs(tmp_path, "broker", "stranger")
    curve = {"curve_key_file": pairs["broker"], "curve_clients": "any"}
    async with broker_with_users(tmp_path, **curve) as broker:
        keys = ClientCurve(
            PairFile(pairs["stranger"]), ServerKeys(tmp_path / "broker" / "broker.key")
        )
        good = ZmqConnection(broker.address("zmq"), curve=keys)
        assert (await good.request(AuthListUser(), timeout_ms=ASK_MS)).code == Code.NO_PERMISSION
        host, _, port = broker.address("zmq").rpartition(":")
        wire = await TcpProxy("127.0.0.1", 0, host, int(port)).open()
        stranger = process_context().socket(zmq.DEALER)
        stranger.set(zmq.LINGER, 0)
        stranger.set(zmq.RECONNECT_IVL, -1)
        arm_dealer(stranger, keys.own.pair, *keys.servers.of(broker.address("zmq")))
        stranger.connect(f"tcp://{wire.address}")
        stranger.send_multipart([bytes(1 << 20)] * 48)
        await until(lambda: broker.statistics("zmq")["unfinished_bytes"] > 8 << 20)
        wire.hold(answers=False)  # it never ends
        assert broker.statistics("zmq")["peers_cut"] == 0
        monkeypatch.setattr(limits, "UNFINISHED_BYTES_MAX", 4 << 20)
        await until(lambda: broker.statistics("zmq")["peers_cut"] == 1)
        await until(lambda: wire.connections == 0)
        assert (await good.request(AuthListUser(), timeout_ms=ASK_MS)).code == Code.NO_PERMISSION
        assert good.statistics().reopened == 0
        good.close()
        stranger.close()
        await wire.close()
        await broker.serves(ROOT)


CURVE_GREETING = GREETING[:12] + b"CURVE".ljust(20, b"\0") + GREETING[32:]
HELLO = b"\x04\xc8\x05HELLO\x01\x00" + bytes(192)
HANDSHAKES = (
    CURVE_GREETING + HELLO,
    CURVE_GREETING + HELLO[:90],
    CURVE_GREETING + b"\x04\x06\x05HELLO",
    CURVE_GREETING + b"\x06" + struct.pack(">Q", 1 << 40) + b"\x05HELLO",
    CURVE_GREETING + b"\x06" + struct.pack(">Q", 60_000) + b"\x08INITIATE" + bytes(59_991),
    CURVE_GREETING + HELLO + HELLO,
    CURVE_GREETING + ready() + ask(AuthListUser()),
    CURVE_GREETING + b"\x04\x09\x07MESSAGE\0",
    CURVE_GREETING[:31],
    GREETING + ready(User_Id=b"root") + ask(AuthListUser()),
    GREETING[:12] + b"PLAIN".ljust(20, b"\0") + GREETING[32:] + b"\x04\x06\x05HELLO",
)
"""Beginnings of connections to a listener with keys; none of them proves one."""


@pytest.mark.fault
async def test_a_broken_handshake_with_keys_costs_its_connection_alone(
    tmp_path: Path, rounds: Callable[[int], int]
) -> None:
    chance = Random(7)
    pairs = key_pairs(tmp_path, "broker", "app")
    curve = {"curve_key_file": pairs["broker"], "curve_clients": "any"}
    async with broker_with_users(tmp_path, **curve) as broker:
        asked = broker.view.access_decisions.refused
        for number in range(rounds(300)):
            sent = bytearray(HANDSHAKES[number % len(HANDSHAKES)])
            for _ in range(chance.choice((0, 0, 1, 5))):
                sent[chance.randrange(len(sent))] = chance.randrange(256)
            _, writer = await broker.connect("zmq")
            writer.write(bytes(sent))
        servers = ServerKeys(tmp_path / "broker" / "broker.key")
        keys = ClientCurve(PairFile(pairs["app"]), servers)
        app = ZmqConnection(broker.address("zmq"), curve=keys)
        reply = await app.request(AuthListUser(), timeout_ms=ASK_MS)
        assert reply.code == Code.NO_PERMISSION
        assert broker.view.access_decisions.refused == asked + 1, (
            "only the one with a key was heard"
        )
        assert broker.statistics("zmq")["peers"] == 1
        app.close()
        await broker.serves(ROOT)
