"""Bytes that are not frames, or frames that lie, on the listener for RocketMQ's clients."""

from __future__ import annotations

import json
import struct

import pytest

from kourou.errors import Code
from kourou.model.limits import (
    FRAME_SIZE_BYTES_MAX,
    JSON_FIELDS_MAX,
    REMOTING_HEADER_SIZE_BYTES_MAX,
)
from kourou.protocol.wire.remoting import FLAG_RESPONSE, RemotingCommand, encode_command
from kourou_rigs.attacked import LAST, Attacked, raw_frame
from kourou_rigs.waiting import until

GET_BROKER_CONFIG, GET_MIN_OFFSET = 26, 31
ASK = encode_command(
    RemotingCommand(GET_MIN_OFFSET, opaque=LAST, ext_fields={"topic": "orders", "queueId": "0"})
)


def header(extra: str = "", *, opaque: str = "7", code: str = "26") -> bytes:
    return f'{{"code":{code},"flag":0,"opaque":{opaque},"version":409{extra}}}'.encode()


def fields(count: int, size: int = 1) -> str:
    return f',"extFields":{json.dumps({f"f{n}": "v" * size for n in range(count)})}'


CLOSED = {
    "nothing claimed": struct.pack(">II", 0, 0),
    "less than a header word": struct.pack(">II", 3, 0),
    "one byte too many": struct.pack(">II", FRAME_SIZE_BYTES_MAX - 3, 0),
    "2**31": struct.pack(">II", 1 << 31, 0),
    "negative": struct.pack(">iI", -1, 0),
    "a header longer than its frame": struct.pack(">II", 10, 7) + bytes(6),
    "a header of 16 MiB": struct.pack(">II", FRAME_SIZE_BYTES_MAX - 4, 0xFFFFFF),
    "a negative header": struct.pack(">Ii", 100, -1) + bytes(96),
    "an unknown kind of header": raw_frame(header(), header_type=2),
    "no header": raw_frame(b""),
    "no header, in binary": raw_frame(b"", header_type=1),
    "JSON in a binary header": raw_frame(header(), header_type=1),
    "a binary header as JSON": raw_frame(struct.pack(">hBhii", 26, 0, 409, 7, 0) + bytes(8)),
    "fields that claim 2 GiB": raw_frame(
        struct.pack(">hBhiiii", 26, 0, 409, 7, 0, 0, 2**31 - 1), header_type=1
    ),
    "fields of negative size": raw_frame(
        struct.pack(">hBhiiii", 26, 0, 409, 7, 0, 0, -5), header_type=1
    ),
    "a remark of negative size": raw_frame(
        struct.pack(">hBhiii", 26, 0, 409, 7, 0, -1), header_type=1
    ),
    "nesting without end": raw_frame(b'{"opaque":7,"a":' + b"[" * 100_000),
    "objects without end": raw_frame(b'{"a":' * 40_000),
    "a number without end": raw_frame(header(opaque="9" * 100_000)),
    "not a number": raw_frame(header(opaque="tru")),
    "a number above all": raw_frame(header(opaque="1e999")),
    "an opaque that is text": raw_frame(header(opaque='"x"')),
    "not UTF-8": raw_frame(
        header(',"remark":"\xc0\xae"').replace(b"\xc3\x80\xc2\xae", b"\xc0\xae")
    ),
    "too many fields": raw_frame(header(fields(JSON_FIELDS_MAX + 1))),
    "200,000 fields": raw_frame(header(fields(200_000))),
    "a field of 16 MiB": raw_frame(header(fields(1, 15 << 20))),
    "HTTP": b"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
    "ZeroMQ": b"\xff" + bytes(8) + b"\x7f\x03\x01NULL",
    "TLS without TLS": b"\x16\x03\x01" + bytes(60),
    "Java's serialization": b"\xac\xed\x00\x05sr" + bytes(40),
}
"""What no reply is possible to; the connection is closed, whatever follows."""


@pytest.mark.fault
@pytest.mark.parametrize("sent", CLOSED.values(), ids=CLOSED)
async def test_what_is_no_frame_costs_its_connection_alone(attacked: Attacked, sent: bytes) -> None:
    assert await attacked.answers(sent, ASK) == []
    assert attacked.statistics()["peers_cut"] == 1
    await attacked.serves()


REFUSED = {
    "a code that nobody has": (header(code="31000"), "not supported"),
    "a code beyond 32 bits": (header(code="99999999999"), "32 bits"),
    "a code that is text": (header(code='"x"'), "whole number"),
    "fields that are no object": (header(',"extFields":[1]'), "extFields"),
    "a field that is an object": (header(',"extFields":{"topic":{"a":1}}'), "topic"),
    "a remark that is a list": (header(',"remark":[]'), "remark"),
    "a field twice, the last one wrong": (
        header(',"extFields":{"topic":"t","queueId":"0","queueId":"x"}', code="31"),
        "queueId",
    ),
    "a class to build": (
        header(',"extFields":{"@type":"java.lang.Runtime","queueId":"0"}', code="31"),
        "topic",
    ),
    "a long number in a field": (
        header(f',"extFields":{{"topic":"t","queueId":"{"0" * 100_000}x"}}', code="31"),
        "queueId",
    ),
}
"""What is answered with an error that says what is wrong; the connection goes on."""


@pytest.mark.fault
@pytest.mark.parametrize(("sent", "why"), REFUSED.values(), ids=REFUSED)
async def test_what_is_wrong_in_a_frame_is_named(attacked: Attacked, sent: bytes, why: str) -> None:
    assert len(sent) <= REMOTING_HEADER_SIZE_BYTES_MAX
    refused, answered = await attacked.answers(raw_frame(sent), ASK)
    assert (refused.opaque, answered.opaque) == (7, LAST)
    assert refused.code != Code.SUCCESS
    assert why in (refused.remark or "")
    assert len(refused.remark or "") < 2_000
    await attacked.serves()


@pytest.mark.fault
async def test_replies_that_nobody_asked_for_are_dropped(attacked: Attacked) -> None:
    reply = RemotingCommand(0, opaque=5, flag=FLAG_RESPONSE, remark="x" * 1_000, body=bytes(50_000))
    [answered] = await attacked.answers(encode_command(reply) * 500, ASK)
    assert answered.opaque == LAST
    await attacked.serves()


@pytest.mark.fault
async def test_a_flood_of_oneway_requests_is_taken_or_dropped(attacked: Attacked) -> None:
    """Their sender expects no reply, not even that it is too fast."""
    oneway = RemotingCommand(GET_MIN_OFFSET, opaque=5, flag=2, ext_fields={"topic": "orders"})
    answered = await attacked.answers(encode_command(oneway) * 30_000, ASK)
    assert [one.opaque for one in answered] == [LAST]
    await attacked.serves()


@pytest.mark.fault
async def test_more_requests_than_replies_are_read(attacked: Attacked) -> None:
    """Someone who asks and does not read gets a bounded queue, and the rest is not read."""
    _, writer = await attacked.connect()
    await until(lambda: attacked.statistics()["peers"] == 1)
    ask = encode_command(RemotingCommand(GET_BROKER_CONFIG, opaque=5))
    while attacked.statistics()["peers_cut"] == 0:
        try:
            writer.write(ask * 1_000)
            await writer.drain()
        except ConnectionError:
            break
        assert attacked.statistics()["queued_bytes"] < 100 << 20
    await attacked.serves()
