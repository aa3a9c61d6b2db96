"""Frames between a real RocketMQ 4.9.8 name server, broker and Java client.

`frames.log` has one frame a line: time, channel (`NS` name server, `BR` broker; `>` from the
client, `<` to it), header type, header as JSON, length of the body, body as a Python bytes literal.
"""

import ast
import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest

from kourou.errors import Code
from kourou.protocol.bodies.heartbeat_body import (
    decode_heartbeat,
    decode_subscription_check,
    encode_heartbeat,
    encode_subscription_check,
)
from kourou.protocol.bodies.lists_body import (
    decode_consumer_ids,
    decode_lock_batch,
    decode_locked_queues,
    encode_consumer_ids,
    encode_lock_batch,
    encode_locked_queues,
)
from kourou.protocol.bodies.route_bodies import decode_topic_route, encode_topic_route
from kourou.protocol.table import REQUESTS
from kourou.protocol.wire.ext_fields import (
    decode_ext_fields,
    decode_response_fields,
    encode_ext_fields,
)
from kourou.protocol.wire.frames import decode_frame, decode_request, encode_request
from kourou.protocol.wire.remoting import (
    FrameReader,
    HeaderType,
    Language,
    RemotingCommand,
    decode_command,
    encode_command,
)

LOG = Path(__file__).parent / "rocketmq-4.9.8" / "frames.log"
LINE = re.compile(r"\S+ (?P<channel>NS|BR)(?P<way>[<>]) type=0 (?P<header>\{.*\}) "
                  r"BODY\[(?P<length>\d+)\] (?P<body>b['\"].*['\"])$")  # fmt: skip


@dataclass
class Captured:
    """One line of the log, and for an answer the code of its request."""

    channel: str
    way: str
    header: dict
    body: bytes
    asked: int | None = None

    def frame(self) -> bytes:
        header = msgspec.json.encode(self.header)
        total = 4 + len(header) + len(self.body)
        return total.to_bytes(4, "big") + len(header).to_bytes(4, "big") + header + self.body


def captured() -> list[Captured]:
    frames = []
    asked: dict[tuple[str, str, int], int] = {}
    for line in LOG.read_text().splitlines():
        match = LINE.match(line)
        assert match is not None, line
        frame = Captured(
            match["channel"],
            match["way"],
            msgspec.json.decode(match["header"]),
            ast.literal_eval(match["body"]),
        )
        assert len(frame.body) == int(match["length"])
        opaque = frame.header["opaque"]
        if frame.header["flag"] & 1:
            asking = "<" if frame.way == ">" else ">"
            frame.asked = asked.get((frame.channel, asking, opaque))
        else:
            asked[frame.channel, frame.way, opaque] = frame.header["code"]
        frames.append(frame)
    return frames


FRAMES = captured()


def test_the_log_is_all_there():
    assert len(FRAMES) == 461
    codes = Counter(frame.header["code"] for frame in FRAMES if not frame.header["flag"] & 1)
    assert codes == {
        105: 48, 15: 81, 11: 56, 14: 19, 34: 18, 38: 13, 310: 12, 35: 12, 41: 7, 37: 4, 40: 4,
        325: 4, 320: 1, 36: 1, 46: 1, 12: 1, 42: 1, 326: 1, 39: 1,
    }  # fmt: skip


@pytest.mark.feature("F037", "F038", "F039", "F040")
def test_every_frame_decodes_and_encodes_to_the_same_header():
    for frame in FRAMES:
        command = decode_command(frame.frame())
        assert command.code == frame.header["code"]
        assert command.opaque == frame.header["opaque"]
        assert command.flag == frame.header["flag"]
        assert command.version == 409
        assert command.language is Language.JAVA
        assert command.remark == frame.header.get("remark")
        assert command.ext_fields == frame.header.get("extFields")
        assert command.body == frame.body
        again = encode_command(command)
        size = int.from_bytes(again[5:8], "big")
        assert msgspec.json.decode(again[8 : 8 + size]) == frame.header
        assert again[8 + size :] == frame.body


def test_every_frame_survives_the_binary_header():
    for frame in FRAMES:
        command = decode_command(frame.frame())
        command.header_type = HeaderType.BINARY
        expected = RemotingCommand(
            **{name: getattr(command, name) for name in RemotingCommand.__slots__}
        )
        expected.ext_fields = command.ext_fields or None  # type 1 knows no empty object
        assert decode_command(encode_command(command)) == expected


def test_the_whole_capture_as_one_stream():
    stream = b"".join(frame.frame() for frame in FRAMES)
    reader = FrameReader()
    found = []
    for at in range(0, len(stream), 1009):
        found += reader.feed(stream[at : at + 1009])
    assert [command.opaque for command in found] == [frame.header["opaque"] for frame in FRAMES]
    assert reader.pending_bytes == 0


def test_every_request_becomes_its_header_and_back():
    count = 0
    for frame in FRAMES:
        if frame.header["flag"] & 1:
            continue
        code = frame.header["code"]
        fields = frame.header.get("extFields", {})
        request = decode_ext_fields(code, fields)
        assert type(request) is REQUESTS[code].header
        assert encode_ext_fields(request, short_names=REQUESTS[code].short_names) == fields
        count += 1
    assert count == 285


def test_every_answer_becomes_its_header_and_back():
    typed = 0
    for frame in FRAMES:
        if not frame.header["flag"] & 1 or frame.asked is None:
            continue
        spec = REQUESTS[frame.asked]
        fields = frame.header.get("extFields")
        if spec.response is None or not fields:
            assert not fields or spec.response is not None, frame
            continue
        answer = decode_response_fields(fields, spec.response)
        assert encode_ext_fields(answer) == fields
        typed += 1
    assert typed > 70


def test_every_answer_is_one_that_the_table_allows():
    for frame in FRAMES:
        if frame.header["flag"] & 1 and frame.asked is not None:
            code = frame.header["code"]
            allowed = REQUESTS[frame.asked].answers | {Code.SUCCESS, Code.SYSTEM_ERROR}
            assert code in allowed, (frame.asked, code)


def test_who_answers_is_who_the_table_says():
    for frame in FRAMES:
        if frame.header["flag"] & 1:
            continue
        answering = {("NS", ">"): "namesrv", ("BR", ">"): "broker", ("BR", "<"): "client"}
        assert answering[frame.channel, frame.way] in REQUESTS[frame.header["code"]].answered_by


def test_every_request_travels_by_zeromq_too():
    for frame in FRAMES:
        if frame.header["flag"] & 1:
            continue
        request = decode_ext_fields(frame.header["code"], frame.header.get("extFields"))
        head = encode_request(request, correlation=frame.header["opaque"], deadline_ms=3000)
        assert decode_request(decode_frame([head, frame.body])) == request


REQUEST_BODIES = {
    34: (decode_heartbeat, encode_heartbeat),
    41: (decode_lock_batch, encode_lock_batch),
    42: (decode_lock_batch, encode_lock_batch),
    46: (decode_subscription_check, encode_subscription_check),
}
REPLY_BODIES = {
    105: (decode_topic_route, encode_topic_route),
    38: (decode_consumer_ids, encode_consumer_ids),
    41: (decode_locked_queues, encode_locked_queues),
}


def test_every_json_body_becomes_a_value_and_back():
    count: Counter[int] = Counter()
    for frame in FRAMES:
        if not frame.body:
            continue
        if frame.asked is None:
            codec = REQUEST_BODIES.get(frame.header["code"])
        else:
            codec = REPLY_BODIES.get(frame.asked)
        if codec is None:
            continue
        decode, encode = codec
        assert sorted_sets(msgspec.json.decode(encode(decode(frame.body)))) == sorted_sets(
            msgspec.json.decode(frame.body)
        )
        count[frame.asked or frame.header["code"]] += 1
    assert set(count) == {34, 41, 42, 46, 105, 38}
    assert count.total() > 70


def sorted_sets(value):
    """JSON with every array sorted: RocketMQ's are sets, in the order of a Java HashSet."""
    if isinstance(value, dict):
        return {name: sorted_sets(member) for name, member in value.items()}
    if isinstance(value, list):
        return sorted((sorted_sets(item) for item in value), key=str)
    return value
