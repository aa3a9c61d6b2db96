"""A pull's bytes become messages, or one of our errors."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kourou.client.consumer.received import decode_pull, from_record, from_records
from kourou.errors import Corrupt, DecodeError
from kourou.model.message import COMPRESSION_SHIFT, Compression, SysFlag
from kourou.model.topic import MessageQueue
from kourou.protocol.record.compression import compress
from kourou.protocol.record.layout import CRC_MARK, CRC_VALUE_BYTES, encode_host
from kourou.protocol.record.message_record import encode_draft, stamp
from kourou.protocol.record.properties import encode_properties

QUEUE = MessageQueue("T", "broker-a", 3)
HOST = encode_host(("10.1.2.3", 10911))
CRC_PROPERTY = b"\x02" + CRC_MARK + b"0" * CRC_VALUE_BYTES + b"\x02"
"""As every record of ours ends; `stamp` fills it in."""


def record(offset: int, body: bytes = b"{}", tag: str = "A", *, queue_id=3, sys_flag=0) -> bytes:
    properties = {"UNIQ_KEY": f"KEY{offset}", "TAGS": tag, "KEYS": "k1 k2", "own": "ü"}
    draft = bytearray(
        encode_draft(
            topic=b"T",
            queue_id=queue_id,
            body=body,
            properties=encode_properties(properties) + CRC_PROPERTY,
            flag=7,
            sys_flag=sys_flag,
            born_timestamp=1_000,
            born_host=HOST,
        )
    )
    stamp(
        draft,
        0,
        queue_offset=offset,
        position=offset * 500,
        store_timestamp=2_000,
        store_host=HOST,
    )
    return bytes(draft)


def pull(count: int, first: int = 10) -> bytes:
    return b"".join(record(first + number, b"%d" % number) for number in range(count))


COUNTS = [1, 5, 40]


@pytest.mark.feature("F174")
@pytest.mark.parametrize("count", COUNTS)
def test_every_field(count):
    messages = decode_pull(pull(count), QUEUE, from_offset=10, next_offset=10 + count)
    assert [message.offset for message in messages] == list(range(10, 10 + count))
    message = messages[-1]
    assert message.body == message.raw_body == b"%d" % (count - 1)
    assert (message.topic, message.queue_id, message.queue) == ("T", 3, QUEUE)
    assert (message.tag, message.keys) == ("A", ("k1", "k2"))
    assert message.message_id == f"KEY{message.offset}"
    assert message.properties == message.stored().properties
    assert message.properties == {
        "UNIQ_KEY": f"KEY{message.offset}", "TAGS": "A", "KEYS": "k1 k2", "own": "ü"
    }  # fmt: skip
    assert (message.position, message.flag) == (message.offset * 500, 7)
    assert (message.born_timestamp, message.store_timestamp) == (1_000, 2_000)
    assert message.reconsume_times == 0
    assert message.offset_message_id.startswith("0A01020300002A9F")
    assert message.stored().broker_name == "broker-a"
    assert message.size == len(record(message.offset, message.raw_body))
    assert message.message_id in str(message)


def test_an_empty_pull():
    assert decode_pull(b"", QUEUE, from_offset=1, next_offset=1) == []


@pytest.mark.feature("F171")
@pytest.mark.parametrize("count", [1, 10])
def test_compressed_bodies_are_decompressed(count):
    body = b"long " * 2_000
    sys_flag = SysFlag.COMPRESSED | Compression.ZSTD << COMPRESSION_SHIFT
    squeezed = compress(Compression.ZSTD, body)
    pulled = b"".join(record(number, squeezed, sys_flag=sys_flag) for number in range(count))
    messages = decode_pull(pulled, QUEUE, from_offset=0, next_offset=count)
    assert [message.raw_body for message in messages] == [body] * count
    assert messages[0].stored().body == squeezed


@pytest.mark.parametrize("count", [1, 2, 10])
def test_a_body_that_was_never_compressed_harms_nobody_else(count):
    """Any producer can say of any bytes that they are compressed."""
    records = [record(number, b"good") for number in range(count)]
    bad = record(count, b"no zlib", sys_flag=int(SysFlag.COMPRESSED))
    pulled = b"".join([*records, bad])
    *good, last = decode_pull(pulled, QUEUE, from_offset=0, next_offset=count + 1)
    assert [message.raw_body for message in good] == [b"good"] * count
    for one in (last, last.alone(), from_record(bad, "broker-a")):
        assert (one.offset, one.message_id, one.position) == (count, f"KEY{count}", count * 500)
        with pytest.raises(Corrupt, match="decompressed"):
            _ = one.raw_body


@pytest.mark.parametrize("count", COUNTS)
def test_messages_of_another_queue_are_refused(count):
    other = MessageQueue("T", "broker-a", 4)
    with pytest.raises(DecodeError, match="queue 3"):
        decode_pull(pull(count), other, from_offset=10, next_offset=99)


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize(("from_offset", "next_offset"), [(11, 99), (10, 10)])
def test_offsets_outside_the_asked_range_are_refused(count, from_offset, next_offset):
    with pytest.raises(DecodeError, match="returned offset"):
        decode_pull(pull(count), QUEUE, from_offset=from_offset, next_offset=next_offset)


@pytest.mark.parametrize("count", [2, 10])
def test_offsets_must_rise(count):
    same = record(10) * count
    with pytest.raises(DecodeError):
        decode_pull(same, QUEUE, from_offset=10, next_offset=99)


@given(body=st.binary(max_size=300))
def test_arbitrary_bytes_raise_only_our_errors(body):
    try:
        decode_pull(body, QUEUE, from_offset=0, next_offset=10)
        from_records(body, "b")
    except Corrupt:
        pass


@given(count=st.sampled_from(COUNTS), at=st.integers(0, 10_000), value=st.integers(0, 255))
def test_a_changed_byte_never_gives_another_message(count, at, value):
    whole = pull(count)
    changed = bytearray(whole)
    changed[at % len(whole)] = value
    try:
        messages = decode_pull(bytes(changed), QUEUE, from_offset=10, next_offset=99)
    except Corrupt:
        return
    if bytes(changed) == whole:
        assert [message.raw_body for message in messages] == [b"%d" % n for n in range(count)]
        return
    pytest.fail("damage was not noticed")
