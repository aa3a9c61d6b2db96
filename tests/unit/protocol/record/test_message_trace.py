"""Trace records as RocketMQ's Java client 4.9.8 wrote them, read and written again."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kourou.protocol.record.message_trace import (
    Consumed,
    ConsumeStarted,
    ContextCode,
    Published,
    TraceKind,
    TraceRecord,
    TransactionEnded,
    decode_trace,
    encode_record,
    keys_of,
)

SENT = "FD00000000000000000000000000000227704E0E2F2A69EB33C60050"
ASKED = "FD00000000000000000000000000000227704E0E2F2A69EB37E40053"

JAVA_PUB = (
    "Pub\x011795268221894\x01DefaultRegion\x01interoptap-trace-traced\x01Interoptap-trace\x01"
    f"{SENT}\x01a-tag\x01a-key\x01127.0.0.1:25596\x016\x0113\x010\x01"
    "7F000001000063F900000000000B0442\x01true\x02"
)
JAVA_SUB = (
    f"SubBefore\x011795268222949\x01null\x01interoptap-trace\x01{ASKED}\x01{SENT}\x010\x01a-key\x02"
    f"SubAfter\x01{ASKED}\x01{SENT}\x010\x01true\x01a-key\x010\x011795268222949\x01"
    "interoptap-trace\x02"
)
"""The bodies of two messages of RMQ_SYS_TRACE_TOPIC, written by rocketmq-client 4.9.8."""

PUBLISHED = Published(
    timestamp_ms=1795268221894,
    region="DefaultRegion",
    group="interoptap-trace-traced",
    topic="Interoptap-trace",
    message_id=SENT,
    tag="a-tag",
    keys="a-key",
    store_host="127.0.0.1:25596",
    body_length=6,
    cost_ms=13,
    kind=TraceKind.NORMAL,
    offset_message_id="7F000001000063F900000000000B0442",
    success=True,
)
CONSUMING = ConsumeStarted(1795268222949, "", "interoptap-trace", ASKED, SENT, 0, "a-key")
CONSUMED = Consumed(
    ASKED, SENT, 0, True, "a-key", ContextCode.SUCCESS, 1795268222949, "interoptap-trace"
)


def test_what_java_wrote_is_read() -> None:
    assert decode_trace(JAVA_PUB.encode()) == [PUBLISHED]
    assert decode_trace(JAVA_SUB.encode()) == [CONSUMING, CONSUMED]


def test_what_we_write_is_what_java_wrote() -> None:
    assert encode_record(PUBLISHED) == JAVA_PUB
    assert encode_record(CONSUMING) + encode_record(CONSUMED) == JAVA_SUB


ENDED = TransactionEnded(
    timestamp_ms=1,
    region="DefaultRegion",
    group="p",
    topic="t",
    message_id="ID",
    tag="",
    keys="k",
    store_host="h:1",
    kind=TraceKind.COMMIT,
    transaction_id="TX",
    state="COMMIT_MESSAGE",
    from_check=True,
)


@pytest.mark.parametrize("record", [PUBLISHED, CONSUMING, CONSUMED, ENDED])
def test_there_and_back(record: TraceRecord) -> None:
    assert decode_trace(encode_record(record).encode() * 2) == [record, record]


def test_the_fields_of_an_ended_transaction_in_order() -> None:
    """Fact sheet §4.9; Java writes the word null for a missing tag."""
    assert encode_record(ENDED) == (
        "EndTransaction\x011\x01DefaultRegion\x01p\x01t\x01ID\x01null\x01k\x01h:1\x012\x01TX\x01"
        "COMMIT_MESSAGE\x01true\x02"
    )


def test_records_of_older_clients() -> None:
    fields = JAVA_PUB.rstrip("\x02").split("\x01")
    (plain,) = decode_trace("\x01".join(fields[:12]).encode())
    assert (plain.success, plain.offset_message_id) == (True, "")
    (failed,) = decode_trace("\x01".join([*fields[:12], "false"]).encode())
    assert (failed.success, failed.offset_message_id) == (False, "")
    (host,) = decode_trace("\x01".join([*fields, "192.0.2.2"]).encode())
    assert host == PUBLISHED
    (after,) = decode_trace(f"SubAfter\x01{ASKED}\x01{SENT}\x015\x01false\x01k".encode())
    assert after == Consumed(ASKED, SENT, 5, False, "k", ContextCode.FAILED)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\x02\x02",
        b"Pub",
        b"Other\x011\x012",
        b"Pub\x01soon" + b"\x01x" * 12,
        JAVA_PUB.replace("\x010\x017F", "\x0199\x017F").encode(),
        b"\xff\xfe\x01\x02",
        b"SubBefore\x011\x01r\x01g\x01q\x01m\x01often\x01k",
    ],
)
def test_rubbish_is_passed_over(body: bytes) -> None:
    assert decode_trace(body + b"\x02" + JAVA_PUB.encode()) == [PUBLISHED]


def test_separators_in_a_field_do_not_break_the_record() -> None:
    odd = ConsumeStarted(1, "r", "g", "q", "m", 0, "a\x01b\x02c")
    (read,) = decode_trace(encode_record(odd).encode())
    assert read == ConsumeStarted(1, "r", "g", "q", "m", 0, "a b c")


def test_what_a_record_is_found_by() -> None:
    assert list(keys_of(PUBLISHED)) == [SENT, "a-key"]
    assert list(keys_of(ConsumeStarted(1, "", "g", "q", "m", 0, "a b"))) == ["m", "a", "b"]


def test_what_is_missing_is_null_as_in_java() -> None:
    fields = encode_record(replace(PUBLISHED, tag="", offset_message_id="")).split("\x01")
    assert (fields[6], fields[12]) == ("null", "null")


@pytest.mark.fuzz
@given(
    st.binary(max_size=80)
    | st.lists(
        st.sampled_from(["Pub", "SubBefore", "SubAfter", "EndTransaction", "\x01", "\x02", "null"])
        | st.sampled_from(["0", "-1", "9" * 5_000, "true", "٣", "x", ""]),
        max_size=40,
    ).map(lambda pieces: "\x01".join(pieces).encode())
)
def test_any_bytes_are_records_or_nothing(body: bytes) -> None:
    """Every program may write traces, and the console reads them."""
    for record in decode_trace(body):
        assert isinstance(keys_of(record), tuple)
