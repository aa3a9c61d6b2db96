"""ZeroMQ frames: both ways, and everything a stranger may send instead."""

import contextlib
import struct

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kourou.errors import BadRequest, Code, DecodeError
from kourou.model.limits import (
    BATCH_MESSAGES_MAX,
    DEADLINE_MS_MAX,
    FRAME_PARTS_MAX,
    HEADER_SIZE_BYTES_MAX,
    REPLY_HEADER_SIZE_BYTES_MAX,
    SEND_HEADER_SIZE_BYTES_MAX,
)
from kourou.protocol.messages.groups import HeartBeat
from kourou.protocol.messages.namesrv import RegisterBroker
from kourou.protocol.messages.pulls import (
    GetMaxOffset,
    GetMaxOffsetResponse,
    PullMessage,
    PullResponse,
)
from kourou.protocol.messages.quotas import FlowControlled
from kourou.protocol.messages.sends import (
    SendRecords,
    SendRecordsResponse,
    SendRefusal,
    SendResponse,
    Target,
)
from kourou.protocol.table import REQUESTS
from kourou.protocol.wire.frames import (
    NO_TRACE,
    PREFIX_BYTES,
    FrameKind,
    decode_frame,
    decode_reply,
    decode_request,
    encode_reply,
    encode_request,
    name_user,
    patch_deadline,
)

TRACE = bytes(range(1, 26))
PULL = PullMessage(
    consumer_group="g", topic="t", queue_id=3, queue_offset=1 << 40, max_msg_nums=32, sys_flag=2
)


def raw(code: int, header: bytes, *, kind: int = 1, magic: int = 0x4B, version: int = 1) -> bytes:
    return struct.pack(">4BiQI25s", magic, version, kind, 0, code, 7, 1000, NO_TRACE) + header


def test_the_bytes_of_a_request_are_these():
    head = encode_request(
        GetMaxOffset(topic="TopicA", queue_id=3), correlation=27, deadline_ms=3000, trace=TRACE
    )
    assert head.hex() == (
        "4b010100" "0000001e" "000000000000001b" "00000bb8"
        + TRACE.hex()
        + "82" "a5746f706963" "a6546f70696341" "a771756575654964" "03"
    )  # fmt: skip


def test_the_bytes_of_a_reply_are_these():
    head = encode_reply(27, 0, "ok", GetMaxOffsetResponse(offset=5))
    assert head.hex() == (
        "4b010200" "00000000" "000000000000001b" "00000000"
        + NO_TRACE.hex()
        + "92" "a26f6b" "81" "a66f6666736574" "05"
    )  # fmt: skip
    assert encode_reply(27, 17)[PREFIX_BYTES:].hex() == "92a0c0"


def test_a_request_comes_back_with_everything_around_it():
    head = encode_request(PULL, correlation=9, deadline_ms=1500, trace=TRACE, kind=FrameKind.ONEWAY)
    frame = decode_frame([head, b"one", memoryview(b"two")])
    assert (frame.kind, frame.code, frame.correlation) == (FrameKind.ONEWAY, 11, 9)
    assert (frame.deadline_ms, frame.trace) == (1500, TRACE)
    assert [bytes(part) for part in frame.body] == [b"one", b"two"]
    assert decode_request(frame) == PULL


@pytest.mark.feature("F040")
@pytest.mark.parametrize("spec", REQUESTS.values(), ids=lambda spec: spec.name)
def test_every_request_and_response_travels(spec):
    request = example(spec.header)
    frame = decode_frame([encode_request(request, correlation=1, deadline_ms=0)])
    assert decode_request(frame) == request
    if spec.response is not None:
        answer = example(spec.response)
        reply = decode_frame([encode_reply(1, 0, "r", answer)])
        assert decode_reply(reply, spec.response) == (0, "r", answer)


def example(kind):
    """A header with a value in every field."""
    info = msgspec.inspect.type_info(kind)
    values = {}
    for field in info.fields:
        first = getattr(field.type, "types", (field.type,))[0]
        values[field.encode_name] = {
            msgspec.inspect.StrType: "text",
            msgspec.inspect.IntType: 7,
            msgspec.inspect.BoolType: True,
            msgspec.inspect.BytesType: "AAEC",
            msgspec.inspect.DictType: {"host": "127.0.0.1:1"},
            msgspec.inspect.ListType: [],
            msgspec.inspect.VarTupleType: [(7, 8)],
        }[type(first)]
    return msgspec.convert(values, kind)


def test_the_largest_coalesced_send_and_its_answer_fit():
    request = SendRecords(
        targets=[Target("t" * 127, 0)] * 200,
        target_of=bytes(2 * BATCH_MESSAGES_MAX),
        sizes=bytes(4 * BATCH_MESSAGES_MAX),
        producer_group="p",
    )
    assert decode_request(
        decode_frame([encode_request(request, correlation=1, deadline_ms=1)])
    ) == (request)
    answer = SendRecordsResponse(
        target_codes=[0],
        target_remarks=[""],
        target_offsets=[-1],
        runs=[],
        offsets=[2**62] * BATCH_MESSAGES_MAX,
        positions=[2**62] * BATCH_MESSAGES_MAX,
        queue_ids=[2**30] * BATCH_MESSAGES_MAX,
    )
    reply = decode_frame([encode_reply(1, 0, "", answer)])
    assert decode_reply(reply, SendRecordsResponse)[2] == answer


def test_unknown_fields_are_ignored():
    header = msgspec.msgpack.encode({"topic": "t", "queueId": 1, "somethingNew": [1, {"a": 2}]})
    assert decode_request(decode_frame([raw(30, header)])) == GetMaxOffset(topic="t", queue_id=1)


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"topic": "t", "queueId": "1"}, "queueId"),
        ({"topic": "t", "queueId": 2**31}, "queueId"),
        ({"topic": None, "queueId": 1}, "topic"),
        ({"topic": "t"}, "queueId"),
        ([], "object"),
        (5, "object"),
    ],
)
def test_a_wrong_field_is_a_bad_request_that_names_it(fields, named):
    frame = decode_frame([raw(30, msgspec.msgpack.encode(fields))])
    with pytest.raises(BadRequest, match=named) as caught:
        decode_request(frame)
    assert caught.value.wire_code == Code.SYSTEM_ERROR
    assert "GET_MAX_OFFSET" in str(caught.value)


def test_an_unknown_code_is_reported_as_such():
    with pytest.raises(BadRequest, match="777") as caught:
        decode_request(decode_frame([raw(777, b"\x80")]))
    assert caught.value.wire_code == Code.REQUEST_CODE_NOT_SUPPORTED


@pytest.mark.parametrize(
    ("parts", "text"),
    [
        ([], "1 to"),
        ([b"x"] * (FRAME_PARTS_MAX + 1), "1 to"),
        ([b""], "this one has 0"),
        ([raw(30, b"")], "this one has 45"),
        ([raw(30, b"\x80", magic=0x16)], "0x16"),
        ([raw(30, b"\x80", version=2)], "version 2"),
        ([raw(30, b"\x80", kind=0)], "unknown kind 0"),
        ([raw(30, b"\x80", kind=5)], "unknown kind 5"),
        ([raw(30, bytes(HEADER_SIZE_BYTES_MAX + 1))], "at most 65536"),
        ([raw(30001, bytes(SEND_HEADER_SIZE_BYTES_MAX + 1))], "at most 458752"),
        ([raw(0, bytes(REPLY_HEADER_SIZE_BYTES_MAX + 1), kind=2)], "at most 2162688"),
        ([raw(30001, bytes(HEADER_SIZE_BYTES_MAX + 1), kind=2), b""], None),
    ],
)
def test_what_is_no_frame_is_a_decode_error(parts, text):
    if text is None:
        assert decode_frame(parts).kind is FrameKind.REPLY
        return
    with pytest.raises(DecodeError, match=text):
        decode_frame(parts)


def test_the_largest_number_of_parts_is_accepted():
    head = encode_request(HeartBeat(), correlation=1, deadline_ms=1)
    assert len(decode_frame([head, *[b""] * (FRAME_PARTS_MAX - 1)]).body) == FRAME_PARTS_MAX - 1


def test_deadlines_are_cut_to_the_limit_both_ways():
    for given_ms, expected in ((10**9, DEADLINE_MS_MAX), (-5, 0), (0, 0), (250, 250)):
        head = encode_request(HeartBeat(), correlation=1, deadline_ms=given_ms)
        assert decode_frame([head]).deadline_ms == expected
        assert decode_frame([patch_deadline(head, given_ms)]).deadline_ms == expected
    foreign = bytearray(head)
    foreign[16:20] = b"\xff" * 4
    assert decode_frame([foreign]).deadline_ms == DEADLINE_MS_MAX


def test_patching_a_deadline_changes_nothing_else():
    head = encode_request(PULL, correlation=9, deadline_ms=1500, trace=TRACE)
    patched = patch_deadline(head, 70)
    assert patched == encode_request(PULL, correlation=9, deadline_ms=70, trace=TRACE)


def test_a_reply_without_header_has_none_whatever_was_expected():
    reply = decode_frame([encode_reply(1, 17, "no such topic")])
    assert decode_reply(reply, PullResponse) == (17, "no such topic", None)
    assert decode_reply(reply, None) == (17, "no such topic", None)


def test_a_refusal_need_not_have_the_header_of_an_answer():
    refused = decode_frame([encode_reply(1, 13, "too large", SendRefusal())])
    assert decode_reply(refused, SendResponse) == (13, "too large", None)
    answered = decode_frame([encode_reply(1, 0, "", SendRefusal())])
    with pytest.raises(DecodeError, match=r"malformed.*msgId"):
        decode_reply(answered, SendResponse)


@pytest.mark.parametrize("expected", [None, SendResponse, PullResponse])
def test_a_reply_over_a_quota_says_when_to_try_again(expected):
    over = encode_reply(1, Code.FLOW_CONTROL, "slow down", FlowControlled(retry_after_ms=70))
    header = FlowControlled(retry_after_ms=70)
    assert decode_reply(decode_frame([over]), expected) == (215, "slow down", header)
    bare = decode_frame([encode_reply(1, Code.FLOW_CONTROL, "slow down")])
    assert decode_reply(bare, expected) == (215, "slow down", None)


def test_a_refusal_without_a_remark_is_malformed_all_the_same():
    frame = decode_frame([raw(13, b"\x92\x07\x80", kind=2)])
    with pytest.raises(DecodeError, match="code 13 is malformed"):
        decode_reply(frame, SendResponse)


def test_an_unexpected_header_of_a_reply_is_not_looked_at():
    reply = decode_frame([encode_reply(1, 0, "", GetMaxOffsetResponse(offset=192))])
    assert decode_reply(reply, None) == (0, "", None)
    assert decode_reply(reply, GetMaxOffsetResponse)[2] == GetMaxOffsetResponse(offset=192)


@pytest.mark.parametrize(
    "header",
    [b"\xc1", b"\xc0", b"\x93\xa0\xc0\xc0", b"\x92\x01\xc0", b"\x92\xa1\xff\xc0", b"\x92\xa0\x80"],
)
def test_a_malformed_reply_is_a_decode_error(header):
    with pytest.raises(DecodeError):
        decode_reply(decode_frame([raw(0, header, kind=2)]), GetMaxOffsetResponse)


def test_our_own_optional_fields_do_not_cost_a_byte_when_absent():
    request = RegisterBroker(broker_name="b", broker_addr="a", cluster_name="c", broker_id=0)
    assert b"listeners" not in encode_request(request, correlation=1, deadline_ms=1)


@pytest.mark.fuzz
@given(st.lists(st.binary(max_size=200), max_size=10))
def test_any_parts_are_a_frame_or_an_error_of_ours(parts):
    try:
        frame = decode_frame(parts)
    except DecodeError:
        return
    decode_anything(frame)


@pytest.mark.fuzz
@given(
    st.sampled_from(sorted(REQUESTS)),
    st.binary(max_size=120)
    | st.recursive(
        st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.text() | st.binary(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
        max_leaves=20,
    ).map(msgspec.msgpack.encode),
    st.sampled_from([1, 2, 3, 4]),
)
def test_any_header_of_any_request_is_decoded_or_an_error_of_ours(code, header, kind):
    if header:
        decode_anything(decode_frame([raw(code, header, kind=kind)]))


@pytest.mark.fuzz
@given(st.data())
def test_a_damaged_frame_is_decoded_or_an_error_of_ours(data):
    head = bytearray(encode_request(PULL, correlation=9, deadline_ms=1500))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(head) - 1))
        head[at] = data.draw(st.integers(0, 255))
    try:
        frame = decode_frame([bytes(head[: data.draw(st.integers(0, len(head)))])])
    except DecodeError:
        return
    decode_anything(frame)


def decode_anything(frame):
    with contextlib.suppress(BadRequest):
        decode_request(frame)
    for expected in (None, SendRecordsResponse, PullResponse):
        with contextlib.suppress(DecodeError):
            decode_reply(frame, expected)


def test_a_huge_claim_in_a_header_allocates_nothing():
    claims = [b"\xdf\xff\xff\xff\xff", b"\xdd\xff\xff\xff\xff", b"\xdb\xff\xff\xff\xff"]
    for claim in claims:
        with pytest.raises(BadRequest):
            decode_request(decode_frame([raw(30001, b"\x81\xa5lanes" + claim)]))


def test_deep_nesting_in_an_unknown_field_is_an_error_of_ours():
    header = b"\x83\xa1x" + b"\x91" * 60_000 + b"\xc0" + b"\xa5topic\xa1t\xa7queueId\x01"
    with pytest.raises(BadRequest):
        decode_request(decode_frame([raw(30, header)]))


# -- on behalf of a user --------------------------------------------------------------------------


@given(st.text(min_size=1, max_size=64).filter(lambda name: max(name) < "\ud800"))
def test_a_frame_names_the_user_on_whose_behalf_it_is_sent(name):
    head = encode_request(PULL, correlation=7, deadline_ms=9, trace=TRACE, kind=FrameKind.ONEWAY)
    plain, frame = decode_frame([head]), decode_frame([name_user(head, name), b"body"])
    assert (plain.on_behalf_of, frame.on_behalf_of) == ("", name)
    assert decode_request(frame) == PULL
    assert (frame.kind, frame.correlation, frame.deadline_ms, frame.trace, frame.body) == (
        *(FrameKind.ONEWAY, 7, 9, TRACE),
        [b"body"],
    )


def test_another_deadline_keeps_the_user():
    head = name_user(encode_request(PULL, correlation=7, deadline_ms=9), "till")
    frame = decode_frame([patch_deadline(head, 5)])
    assert (frame.deadline_ms, frame.on_behalf_of) == (5, "till")


def test_a_receiver_that_does_not_know_the_flag_refuses_the_header():
    """It must not take the request for one of the console itself."""
    head = bytearray(name_user(encode_request(PULL, correlation=7, deadline_ms=9), "till"))
    head[3] = 0
    with pytest.raises(BadRequest):
        decode_request(decode_frame([bytes(head)]))


@pytest.mark.parametrize(
    "rest",
    [
        b"",
        b"\x00",
        b"\x00\x00\x80",  # no name
        b"\x00\x04till",  # no header
        b"\x00\x05till",
        b"\xff\xfftill\x80",
        b"\x02\x56" + bytes(598) + b"\x80",  # longer than any two names with a connection
        b"\x00\x01\xff\x80",  # not UTF-8
    ],
)
def test_a_frame_that_names_no_user_is_no_frame(rest):
    head = bytearray(raw(11, b"\x80"))
    head[3] = 1
    with pytest.raises(DecodeError):
        decode_frame([bytes(head[:PREFIX_BYTES]) + rest])
