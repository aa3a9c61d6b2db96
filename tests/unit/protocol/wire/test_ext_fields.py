"""Extension fields: every spelling in, one spelling out."""

import json
import random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kourou.access.signature import SignedFields
from kourou.errors import BadRequest, Code, DecodeError
from kourou.protocol.messages.groups import UnregisterClient
from kourou.protocol.messages.namesrv import RegisterBroker
from kourou.protocol.messages.pulls import PullMessage, PullResponse, QueryMessage
from kourou.protocol.messages.sends import (
    SEND_SHORT_NAMES,
    SendMessage,
    SendRefusal,
    SendResponse,
)
from kourou.protocol.table import REQUESTS
from kourou.protocol.wire.ext_fields import (
    decode_ext_fields,
    decode_response_fields,
    decode_usual_header,
    encode_ext_fields,
)
from kourou.protocol.wire.remoting import RemotingCommand, decode_header, encode_head

LETTERS = {
    "a": "PG", "b": "T", "c": "TBW102", "d": "4", "e": "3", "f": "0", "g": "1795227677562",
    "h": "0", "i": "K\x01v", "j": "2", "k": "false", "l": "16", "m": "true", "n": "broker-a",
}  # fmt: skip
SEND = SendMessage(
    producer_group="PG",
    topic="T",
    default_topic="TBW102",
    default_topic_queue_nums=4,
    queue_id=3,
    born_timestamp=1795227677562,
    properties="K\x01v",
    reconsume_times=2,
    batch=True,
    max_reconsume_times=16,
    bname="broker-a",
)


PULL = PullMessage(
    consumer_group="g",
    topic="T",
    queue_id=1,
    queue_offset=5,
    max_msg_nums=32,
    sys_flag=2,
    commit_offset=0,
    suspend_timeout_millis=15_000,
    sub_version=7,
)


@pytest.mark.parametrize("code", [310, 320])
def test_the_short_names_of_v2_are_the_fields_of_a_send(code):
    assert decode_ext_fields(code, LETTERS) == SEND
    assert encode_ext_fields(SEND, short_names=True) == LETTERS


def test_the_same_fields_spelled_out_are_the_same_send():
    spelled = encode_ext_fields(SEND)
    assert spelled["producerGroup"] == "PG"
    assert spelled["maxReconsumeTimes"] == "16"
    assert decode_ext_fields(10, spelled) == SEND


@pytest.mark.parametrize(
    ("text", "value"),
    [
        *((text, True) for text in ("true", "TRUE", "True", " true", "true ", "1", " 1 ")),
        *(
            (text, False)
            for text in ("false", "0", "", "yes", "no", "null", "2", "maybe", "t", " ")
        ),
    ],
)
def test_booleans_come_in_every_spelling(text, value):
    assert decode_ext_fields(320, {**LETTERS, "m": text}).batch is value


@pytest.mark.parametrize("text", ["7", "+7", " 7", "7 ", " +007 ", "7.0", "\t7\n"])
def test_integers_come_in_every_spelling(text):
    assert decode_ext_fields(30, {"topic": "t", "queueId": text}).queue_id == 7
    assert decode_ext_fields(310, {**LETTERS, "e": text}).queue_id == 7


@pytest.mark.parametrize("text", ["", " ", "null", "x", "7x", "+", "--7", "+-7", "7.5", "1_0", "²"])
def test_what_is_no_integer_is_a_bad_request(text):
    with pytest.raises(BadRequest, match="queueId"):
        decode_ext_fields(30, {"topic": "t", "queueId": text})


@pytest.mark.fault
@pytest.mark.parametrize("text", ["0" * 250_000 + "x", "1" * 250_000 + "x", "-" * 250_000])
def test_a_long_text_where_a_number_should_be_is_refused(text):
    """Anybody may send a header of this length; in quadratic time it takes minutes to read."""
    with pytest.raises(BadRequest, match="queueId"):
        decode_ext_fields(30, {"topic": "t", "queueId": text})


def test_an_empty_text_where_a_number_should_be_is_absent():
    assert decode_ext_fields(310, {**LETTERS, "j": "", "l": ""}).reconsume_times is None
    with pytest.raises(BadRequest, match="queueId"):
        decode_ext_fields(30, {"topic": "t", "queueId": ""})


def test_an_empty_text_where_text_should_be_stays():
    request = decode_ext_fields(35, {"clientID": "c", "producerGroup": "", "consumerGroup": "g"})
    assert request == UnregisterClient(client_id="c", producer_group="", consumer_group="g")


def test_text_that_looks_like_null_or_a_number_stays_text():
    request = decode_ext_fields(38, {"consumerGroup": "null"})
    assert request.consumer_group == "null"
    request = decode_ext_fields(35, {"clientID": "007", "consumerGroup": "null"})
    assert (request.client_id, request.consumer_group) == ("007", "null")


def test_fields_of_access_control_and_later_versions_are_ignored():
    noise = {"AccessKey": "", "Signature": "x", "OnsChannel": "ALIYUN", "ns": "1", "nsd": "y"}
    assert decode_ext_fields(310, {**LETTERS, **noise}) == SEND


@pytest.mark.parametrize(
    ("code", "fields", "named"),
    [
        (30, None, "topic"),
        (30, {}, "topic"),
        (30, {"topic": "t", "queueId": "x"}, "queueId"),
        (30, {"topic": "t", "queueId": str(2**31)}, "queueId"),
        (33, {"offset": str(2**63)}, "offset"),
        (33, {"offset": "9" * 5000}, "offset"),
        (310, {**LETTERS, "e": "x"}, r"e` \(queueId\)"),
        (310, {key: LETTERS[key] for key in "acdefghi"}, r"`b` \(topic\)"),
    ],
)
def test_a_wrong_field_is_a_bad_request_that_names_it(code, fields, named):
    with pytest.raises(BadRequest, match=named):
        decode_ext_fields(code, fields)


@pytest.mark.parametrize("code", [0, 9999, 30001, 30010, -1])
def test_codes_that_this_carrier_does_not_know(code):
    with pytest.raises(BadRequest) as caught:
        decode_ext_fields(code, {})
    assert caught.value.wire_code == Code.REQUEST_CODE_NOT_SUPPORTED


def test_absent_values_are_not_written_and_zeros_are():
    pull = PullMessage(consumer_group="g", topic="t", queue_id=0, queue_offset=0, max_msg_nums=32)
    assert encode_ext_fields(pull) == {
        "consumerGroup": "g", "topic": "t", "queueId": "0", "queueOffset": "0",
        "maxMsgNums": "32", "sysFlag": "0", "commitOffset": "0", "suspendTimeoutMillis": "0",
        "subVersion": "0",
    }  # fmt: skip


def test_a_field_that_is_no_scalar_stays_behind():
    request = RegisterBroker(
        broker_name="b",
        broker_addr="a",
        cluster_name="c",
        broker_id=0,
        listeners={"host": "127.0.0.1:10911"},
    )
    assert "listeners" not in encode_ext_fields(request)


def test_fields_whose_names_are_not_camel_case():
    assert decode_ext_fields(
        12,
        {
            "topic": "t", "key": "k", "maxNum": "10", "beginTimestamp": "0",
            "endTimestamp": "9223372036854775807", "_UNIQUE_KEY_QUERY": "true",
        },
    ) == QueryMessage(
        topic="t",
        key="k",
        max_num=10,
        begin_timestamp=0,
        end_timestamp=2**63 - 1,
        unique_key_query=True,
    )  # fmt: skip


def test_answers_to_sends_always_say_region_and_trace():
    answer = SendResponse(msg_id="m", queue_id=1, queue_offset=2)
    expected = {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true"}
    assert encode_ext_fields(answer) == {
        "msgId": "m", "queueId": "1", "queueOffset": "2", **expected,
    }  # fmt: skip
    assert encode_ext_fields(SendRefusal()) == expected


def test_a_response_without_its_fields_is_a_decode_error():
    with pytest.raises(DecodeError, match="nextBeginOffset"):
        decode_response_fields(
            {"suggestWhichBrokerId": "0", "minOffset": "0", "maxOffset": "1"}, PullResponse
        )
    with pytest.raises(DecodeError):
        decode_response_fields(None, PullResponse)


REMOTING = sorted(code for code, spec in REQUESTS.items() if spec.remoting)
BLANKS = st.sampled_from(["", " ", "\t", "  "])


def spelled(value, draw):
    """A value of a field as some client might write it."""
    if value is True:
        text = draw(st.sampled_from(["true", "TRUE", "True", "tRuE", "1"]))
    elif value is False:
        text = draw(st.sampled_from(["false", "FALSE", "0", "no", "off", "truely"]))
    elif isinstance(value, int):
        zeros = "0" * draw(st.integers(0, 3))
        sign = "-" if value < 0 else draw(st.sampled_from(["", "+"]))
        text = f"{sign}{zeros}{abs(value)}"
    else:
        return value
    return draw(BLANKS) + text + draw(BLANKS)


@given(st.sampled_from(REMOTING), st.data())
def test_every_spelling_in_and_one_spelling_out(code, data):
    header = REQUESTS[code].header
    values = {}
    for field in msgspec.structs.fields(header):
        kind = str(field.type)
        if "dict" in kind:
            continue
        if "bool" in kind:
            values[field.name] = data.draw(st.booleans())
        elif "int" in kind:
            low = 0 if "ge=0" in kind else -(2**31)
            values[field.name] = data.draw(st.integers(low, 2**31 - 1))
        else:
            values[field.name] = data.draw(st.text(min_size=1))
    request = header(**values)
    short_names = REQUESTS[code].short_names
    plain = encode_ext_fields(request, short_names=short_names)
    names = dict(zip(encode_ext_fields(request), plain, strict=True))
    given_names = {f.name: names[f.encode_name] for f in msgspec.structs.fields(header)
                   if f.name in values}  # fmt: skip
    fields = {given_names[name]: spelled(value, data.draw) for name, value in values.items()}
    assert encode_ext_fields(decode_ext_fields(code, fields), short_names=short_names) == plain


@pytest.mark.fuzz
@given(
    st.sampled_from(sorted(REQUESTS)),
    st.dictionaries(st.sampled_from([*"abcdefghijklmn", "topic", "queueId", "offset"]), st.text()),
)
def test_any_fields_are_a_request_or_an_error_of_ours(code, fields):
    try:
        request = decode_ext_fields(code, fields)
    except BadRequest:
        return
    short_names = REQUESTS[code].short_names
    again = decode_ext_fields(code, encode_ext_fields(request, short_names=short_names))
    assert again == request


# -- usual headers --------------------------------------------------------------------------------


def header_of(code: int | str, fields: object, **members: object) -> bytes:
    """A JSON header with its members in the order of RocketMQ's clients."""
    usual = {"code": code, "extFields": fields, "flag": 0, "language": "JAVA", "opaque": 7}
    usual |= {"serializeTypeCurrentRPC": "JSON", "version": 401}
    return json.dumps(usual | members, separators=(",", ":")).encode()


def decoded(header: bytes) -> tuple[object, ...]:
    """The result for any header: the members, and the request or the error."""
    command = decode_header(0, header)
    try:
        command.check()
        request = decode_ext_fields(command.code, command.ext_fields)
    except BadRequest as error:
        return (str(error),)
    return (*members_of(command), request)


def members_of(command: RemotingCommand) -> tuple[object, ...]:
    return (
        command.code,
        command.language,
        command.version,
        command.opaque,
        command.flag,
        command.remark,
    )


@pytest.mark.parametrize("code", [310, 320])
def test_every_field_of_a_usual_send_is_decoded_in_one_step(code):
    command = decode_usual_header(header_of(code, LETTERS))
    assert command is not None
    assert (command.request, command.code, command.opaque) == (SEND, code, 7)
    other = {**LETTERS, "f": "4", "h": "5", "k": "true"}
    command = decode_usual_header(header_of(code, other))
    assert command is not None
    assert command.request == decode_ext_fields(code, other)


@pytest.mark.parametrize(
    "header",
    [
        header_of(310, {**LETTERS, "AccessKey": "till", "f": 5}),
        header_of(310, {**LETTERS, "producerGroup": "g"}),
        header_of(310, LETTERS, flag=1),
        header_of(310, LETTERS, language="java"),
        header_of("310", LETTERS),
        header_of(310, {**LETTERS, "i": "x" * 2_000}),
        header_of(103, {"brokerName": "b", "listeners": []}),
        header_of(30001, {}),
        header_of(99_999, {}),
        header_of(310, LETTERS)[:-1],
        header_of(310, LETTERS).replace(b'"flag":0', b'"code":10'),
        b'{"code":0310,"extFields":{}}',
        b'{"code":' + b"3" * 40 + b"}",
        b'{"code":',
        b"",
    ],
    ids=lambda header: header[:40].decode() + "…" + header[-20:].decode(),
)
def test_an_unusual_header_is_left_to_the_decoder_of_all(header):
    assert decode_usual_header(header) is None


def test_a_usual_header_means_what_the_decoder_of_all_says():
    chance = random.Random(7)
    values = ["1", "0", "-5", " 1", "+1", "01", "true", "TRUE", "false", "1.0", "1e3", "null", ""]
    values += [None, 1, 0, 5.0, 2.5, True, False, [], {}, ["x"], "x", "k\x01v", 2**31, str(2**63)]
    odd = {"flag": [2, "2", None, True], "opaque": ["3", -1, 2**31, None], "remark": ["r", 5]}
    odd |= {"language": ["CPP", 1, None], "version": ["401", None, 1.0]}
    usual = 0
    codes = [code for code, spec in REQUESTS.items() if spec.remoting]
    for _ in range(20_000):
        code = chance.choice(codes)
        fields = {}
        for field in msgspec.structs.fields(REQUESTS[code].header):
            if field.required or chance.random() < 0.3:
                fields[field.encode_name] = chance.choice(values if chance.random() < 0.2 else "15")
        if REQUESTS[code].short_names:
            plain = {value: name for name, value in SEND_SHORT_NAMES.items()}
            fields = {plain.get(name, name): value for name, value in fields.items()}
        if chance.random() < 0.1:
            fields[chance.choice(["topic", "a", "ns"])] = chance.choice(["x", "5", 5, True, None])
        members = {}
        if chance.random() < 0.1:
            name = chance.choice(list(odd))
            members[name] = chance.choice(odd[name])
        header = header_of(code, fields, **members)
        command = decode_usual_header(header)
        if command is None:
            continue
        usual += 1
        assert (*members_of(command), command.request) == decoded(header), header
    assert usual > 5_000


@pytest.mark.parametrize("code", [310, 11])
def test_a_signed_request_has_what_was_signed_as_it_was_sent(code):
    fields = LETTERS if code == 310 else encode_ext_fields(PULL)
    fields = {**fields, "AccessKey": "till", "Signature": "s=", "SecurityToken": ""}
    command = decode_usual_header(header_of(code, fields))
    assert command is not None
    assert command.request == decode_ext_fields(code, fields)
    wanted = SignedFields.of(fields)
    assert command.signed is not None
    assert command.signed.fields() == fields
    assert msgspec.structs.replace(command.signed, sent=fields) == wanted
    assert wanted.access_key == "till"


def test_a_request_without_an_access_key_is_not_signed():
    for fields in (LETTERS, {**LETTERS, "i": "AccessKey"}, {**LETTERS, "Signature": "s="}):
        command = decode_usual_header(header_of(310, fields))
        assert command is not None
        assert command.signed is None


def test_headers_that_kourou_writes_are_usual():
    command = RemotingCommand(310, ext_fields=LETTERS, opaque=9)
    frame = encode_head(command, 0)
    found = decode_usual_header(frame[8:])
    assert found is not None
    assert (found.request, found.opaque, found.language) == (SEND, 9, command.language)
