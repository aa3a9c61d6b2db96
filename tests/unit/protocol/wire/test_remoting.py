"""The TCP remoting frame: both headers, lenient reading, cutting a stream."""

import contextlib
import struct

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kourou.errors import BadRequest, Code, DecodeError
from kourou.model.limits import (
    FRAME_SIZE_BYTES_MAX,
    JSON_FIELDS_MAX,
    PROPERTIES_SIZE_BYTES_MAX,
    REMOTING_HEADER_SIZE_BYTES_MAX,
)
from kourou.protocol.wire.remoting import (
    FrameReader,
    HeaderType,
    Language,
    RemotingCommand,
    decode_command,
    encode_command,
)


def json_frame(header: bytes, body: bytes = b"") -> bytes:
    return struct.pack(">II", 4 + len(header) + len(body), len(header)) + header + body


def binary_frame(header: bytes) -> bytes:
    return struct.pack(">II", 4 + len(header), 1 << 24 | len(header)) + header


COMMAND = RemotingCommand(
    code=30,
    language=Language.JAVA,
    version=409,
    opaque=27,
    ext_fields={"topic": "T", "queueId": "3"},
    body=b"xyz",
)


@pytest.mark.feature("F037", "F038", "F039")
def test_the_four_parts_of_a_json_frame():
    header = (
        b'{"code":30,"extFields":{"topic":"T","queueId":"3"},"flag":0,"language":"JAVA",'
        b'"opaque":27,"serializeTypeCurrentRPC":"JSON","version":409}'
    )
    frame = encode_command(COMMAND)
    assert frame == json_frame(header, b"xyz")
    assert decode_command(frame) == COMMAND


def test_the_binary_header_of_a_real_broker():
    """GET_MAX_OFFSET answered by 4.9.8: code 0, JAVA, version 409, opaque 27, flag 1, offset 5."""
    header = bytes.fromhex(
        "0000" "00" "0199" "0000001b" "00000001" "00000000" "0000000d"
        "0006" "6f6666736574" "00000001" "35"
    )  # fmt: skip
    command = decode_command(binary_frame(header))
    assert command == RemotingCommand(
        code=0,
        language=Language.JAVA,
        version=409,
        opaque=27,
        flag=1,
        ext_fields={"offset": "5"},
        header_type=HeaderType.BINARY,
    )
    assert encode_command(command) == binary_frame(header)


@pytest.mark.feature("F040")
@pytest.mark.parametrize("header_type", HeaderType)
@pytest.mark.parametrize("remark", [None, "nicht gefunden: 主题"])
@pytest.mark.parametrize("fields", [None, {"k": "v", "ключ": "значение"}])
@pytest.mark.parametrize("body", [b"", b"\0" * 1000])
def test_a_command_comes_back(header_type, remark, fields, body):
    command = RemotingCommand(
        310, Language.GO, 317, -5, 2, remark, fields, body, header_type=header_type
    )
    assert decode_command(encode_command(command)) == command


def test_a_json_header_tells_no_fields_from_empty_fields():
    assert b'"extFields":{}' in encode_command(RemotingCommand(0, ext_fields={}))
    assert b"extFields" not in encode_command(RemotingCommand(0))
    assert b"remark" not in encode_command(RemotingCommand(0))


@pytest.mark.parametrize(
    "header",
    [
        b'{"code":30,"opaque":27,"flag":0,"version":409,"language":"JAVA",'
        b'"extFields":{"topic":"T","queueId":3}}',
        b'{"code":"30","opaque":"27","version":"409","language":"JAVA",'
        b'"extFields":{"topic":"T","queueId":"3"}}',
        b"{code:30,opaque:27,version:409,language:'JAVA',extFields:{topic:'T',queueId:3}}",
        b'{"code":30,"opaque":27,"version":409,"language":0,"remark":null,'
        b'"extFields":{"topic":"T","queueId":"3","absent":null},"unknown":[{}],}\n',
        b'{"code":30,/* a comment */"opaque":27,"version":409,"language":"java",'
        b'"extFields":{"topic":"T","queueId":3}}',
    ],
)
def test_a_json_header_is_read_in_every_spelling(header):
    assert decode_command(json_frame(header, b"xyz")) == COMMAND


def test_what_a_json_header_leaves_out():
    assert decode_command(json_frame(b'{"code":34}')) == RemotingCommand(
        code=34, language=Language.OTHER, version=0
    )
    assert decode_command(json_frame(b'{"code":34,"extFields":null}')).ext_fields is None


def test_values_of_fields_become_text():
    command = decode_command(
        json_frame(b'{"code":1,"extFields":{"a":true,"b":false,"c":-7,"d":1.5,"e":"x"}}')
    )
    assert command.ext_fields == {"a": "true", "b": "false", "c": "-7", "d": "1.5", "e": "x"}


ABSENT = [b'""', b"null", b'" "', b'"null"']
SPELLINGS = {
    "code": [(30, [b"30", b'"30"', b'" +30 "', b"30.0", b'"030"', b"+30"])],
    "opaque": [(27, [b"27", b'"27"', b'"+27"', b"27.0"]), (0, [*ABSENT, b"false"])],
    "version": [(409, [b"409", b'"409 "']), (0, ABSENT)],
    "flag": [(1, [b"1", b'"1"', b"true", b'" 1"']), (0, [*ABSENT, b"false"])],
    "language": [
        (Language.GO, [b"9", b'"9"', b'" 9"', b'"GO"', b'"go"', b'" Go "']),
        (Language.OTHER, [*ABSENT, b"true", b"9.5", b'"-1"', b"[]", b"7", b"99", b'"KLINGON"']),
    ],
    "remark": [("123", [b"123", b'"123"']), ("true", [b"true"]), ("1.5", [b"1.5"]), ("", [b'""'])],
    "extFields": [({"a": "5"}, [b'{"a":5}', b'{"a":"5","b":null}', b"{a:'5'}"]), (None, [b'""'])],
}
"""Of each member: what is meant, and the JSON that means it."""


@pytest.mark.parametrize("name", SPELLINGS)
def test_every_spelling_of_a_member_is_one_command_and_written_one_way(name):
    attribute = {"extFields": "ext_fields"}.get(name, name)
    for meant, spellings in SPELLINGS[name]:
        for spelled in spellings:
            members = {"code": b"30", "opaque": b"27", name: spelled}
            pairs = ",".join(f'"{each}":{text.decode()}' for each, text in members.items())
            command = decode_command(json_frame(b"{" + pairs.encode() + b"}", b"xyz"))
            command.check()
            assert getattr(command, attribute) == meant, spelled
            plain = RemotingCommand(30, Language.OTHER, 0, 27, body=b"xyz")
            setattr(plain, attribute, meant)
            assert encode_command(command) == encode_command(plain)


@pytest.mark.parametrize(
    ("members", "named"),
    [
        (b"", "code is missing"),
        (b',"code":"x"', "code is not a whole number"),
        (b',"code":[]', "code is not a whole number"),
        (b',"code":2147483648', "code does not fit into 32 bits"),
        (b',"code":1,"flag":"x"', "flag is not a whole number"),
        (b',"code":1,"version":1.5', "version is not a whole number"),
        (b',"code":1,"remark":{}', "remark is not text"),
        (b',"code":1,"extFields":[]', "extFields is not an object"),
        (b',"code":1,"extFields":{"a":{}}', "extFields has a member .*: a"),
        (b',"code":1,"extFields":{"a":[1]}', "extFields has a member .*: a"),
        (b',"code":1,"extFields":{{"a":1}:"b"}', "extFields has a key that is not text"),
        (b',"code":"x","flag":[]', "code .*; flag "),
    ],
)
def test_a_header_without_a_clear_meaning_can_be_answered_and_costs_no_connection(members, named):
    reader = FrameReader()
    bad = json_frame(b'{"opaque":"27"' + members + b"}", b"body")
    (wrong, fine) = reader.feed(bad + encode_command(COMMAND))
    assert (wrong.opaque, wrong.body) == (27, b"body")
    with pytest.raises(BadRequest, match=named) as caught:
        wrong.check()
    assert caught.value.wire_code == Code.SYSTEM_ERROR
    fine.check()
    assert fine == COMMAND
    assert reader.error is None


@pytest.mark.parametrize(
    "header",
    [
        b"",
        b"{",
        b"[]",
        b"5",
        b'{"code":1,"opaque":99999999999}',
        b'{"code":1,"opaque":"x"}',
        b'{"code":1,"opaque":1.5}',
        b'{"code":1,"opaque":{}}',
        b'{"code":1,"remark":"\xff"}',
        b'{"code":1} 2',
        b'{"code":1,"x":' + b"[" * 5000,
        b'{"code":1,"x":' + b"[" * 5000 + b"]" * 5000 + b"}",
    ],
)
def test_a_malformed_json_header_is_a_decode_error(header):
    with pytest.raises(DecodeError):
        decode_command(json_frame(header))


@pytest.mark.parametrize("header_type", HeaderType)
def test_too_many_fields_are_a_decode_error(header_type):
    most = {str(number): "x" for number in range(JSON_FIELDS_MAX)}
    command = RemotingCommand(1, ext_fields=most, header_type=header_type)
    assert decode_command(encode_command(command)).ext_fields == most
    most["one too many"] = "x"
    with pytest.raises(DecodeError, match="256"):
        decode_command(encode_command(command))


HEAD = bytes.fromhex("0000 00 0199 0000001b 00000001")


@pytest.mark.parametrize(
    "header",
    [
        b"",
        HEAD[:-1],
        HEAD,
        HEAD + bytes.fromhex("ffffffff"),
        HEAD + bytes.fromhex("00000005 6162"),
        HEAD + bytes.fromhex("00000000"),
        HEAD + bytes.fromhex("00000000 ffffffff"),
        HEAD + bytes.fromhex("00000000 00000010 0001 61"),
        HEAD + bytes.fromhex("00000000 00000007 0001 61 7fffffff"),
        HEAD + bytes.fromhex("00000000 00000007 0001 61 ffffffff"),
        HEAD + bytes.fromhex("00000000 00000007 8001 61 00000000"),
        HEAD + bytes.fromhex("00000000 00000007 0001 ff 00000000"),
        HEAD + bytes.fromhex("00000000 00000001 00"),
        HEAD + bytes.fromhex("00000001 ff 00000000"),
    ],
)
def test_a_malformed_binary_header_is_a_decode_error(header):
    with pytest.raises(DecodeError):
        decode_command(binary_frame(header))


def test_an_empty_value_of_a_binary_header_is_absent():
    command = RemotingCommand(1, ext_fields={"a": "", "b": "x"}, header_type=HeaderType.BINARY)
    assert decode_command(encode_command(command)).ext_fields == {"b": "x"}


def test_a_stream_is_cut_at_every_place():
    stream = b"".join(
        encode_command(RemotingCommand(code, opaque=code, body=b"b" * code)) for code in range(5)
    )
    whole = FrameReader().feed(stream)
    assert [command.opaque for command in whole] == [0, 1, 2, 3, 4]
    for at in range(len(stream) + 1):
        reader = FrameReader()
        found = reader.feed(stream[:at]) + reader.feed(stream[at:])
        assert found == whole
        assert reader.pending_bytes == 0


def test_bodies_do_not_change_when_the_reader_goes_on():
    reader = FrameReader()
    (first,) = reader.feed(encode_command(COMMAND))
    reader.feed(encode_command(RemotingCommand(1, body=b"q" * 500)))
    assert first.body == b"xyz"


@pytest.mark.parametrize(
    "start",
    [
        struct.pack(">II", FRAME_SIZE_BYTES_MAX - 3, 2),  # one byte too many with its length word
        b"\xff\xff\xff\xff\x00\x00\x00\x02",
        struct.pack(">II", 100, 2 << 24 | 2),  # header type 2
        struct.pack(">II", 100, 97),  # header longer than the frame
        struct.pack(">II", 3, 0),
        struct.pack(">II", 0, 0),
        struct.pack(">II", REMOTING_HEADER_SIZE_BYTES_MAX + 5, REMOTING_HEADER_SIZE_BYTES_MAX + 1),
        b"\x16\x03\x01\x02\x00\x01\x00\x01",  # the start of TLS
        b"GET / HTTP/1.1\r\n",
    ],
)
def test_a_bad_start_is_refused_before_the_frame_is_there(start):
    reader = FrameReader()
    with pytest.raises(DecodeError):
        reader.feed(start)
    assert reader.pending_bytes == 0
    with pytest.raises(DecodeError):
        reader.feed(encode_command(COMMAND))


def test_the_largest_frame_is_accepted():
    header = b'{"code":10}'
    body = bytes(FRAME_SIZE_BYTES_MAX - 8 - len(header))
    (command,) = FrameReader().feed(json_frame(header, body))
    assert len(command.body) == len(body)
    reader = FrameReader(frame_size_max=100)
    with pytest.raises(DecodeError, match="at most 100"):
        reader.feed(json_frame(header, bytes(82)))


def test_properties_of_the_full_length_fit_however_they_are_escaped():
    command = RemotingCommand(10, ext_fields={"properties": "\x01" * PROPERTIES_SIZE_BYTES_MAX})
    assert decode_command(encode_command(command)) == command


def test_what_was_whole_before_bad_bytes_is_still_handed_over():
    reader = FrameReader()
    good = encode_command(COMMAND)
    assert reader.feed(good + good + json_frame(b"nonsense")) == [COMMAND, COMMAND]
    assert isinstance(reader.error, DecodeError)
    with pytest.raises(DecodeError):
        reader.feed(good)


@pytest.mark.fuzz
@given(st.lists(st.binary(max_size=300), max_size=6))
def test_any_stream_is_commands_or_an_error_of_ours(chunks):
    reader = FrameReader()
    try:
        for chunk in chunks:
            reader.feed(chunk)
    except DecodeError:
        assert reader.error is not None


@pytest.mark.fuzz
@given(st.sampled_from(HeaderType), st.data())
def test_a_damaged_frame_is_a_command_or_an_error_of_ours(header_type, data):
    command = RemotingCommand(**{**{name: getattr(COMMAND, name) for name in (
        "code", "language", "version", "opaque", "ext_fields", "body")},
        "remark": "text", "header_type": header_type})  # fmt: skip
    frame = bytearray(encode_command(command))
    for _ in range(data.draw(st.integers(1, 4))):
        frame[data.draw(st.integers(0, len(frame) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(DecodeError):
        FrameReader().feed(frame)


@pytest.mark.fuzz
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
        max_leaves=8,
    ),
    st.sampled_from(["code", "flag", "opaque", "version", "language", "remark", "extFields", "x"]),
)
def test_any_member_of_a_json_header_is_taken_or_an_error_of_ours(value, name):
    header = {"code": 1, name: value}
    try:
        frame = json_frame(msgspec.json.encode(header))
    except (OverflowError, msgspec.MsgspecError):
        return
    with contextlib.suppress(DecodeError):
        decode_command(frame)
