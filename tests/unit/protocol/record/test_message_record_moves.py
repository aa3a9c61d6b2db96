"""A message that is stored once more keeps what is its own."""

import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kourou.errors import MessageIllegal
from kourou.protocol.record.layout import CRC_MASK, encode_host
from kourou.protocol.record.message_record import (
    check_record,
    decode_record,
    encode_draft,
    moved_draft,
    real_target,
    stamp,
)
from kourou.protocol.record.properties import decode_properties, encode_properties

V4, V6 = encode_host(("10.1.2.3", 9)), encode_host(("fd00::1", 9))
HOSTS = st.sampled_from([(V4, False), (V4, True), (V6, False), (V6, True)])


def stored(host: bytes = V4, wide: bool = False, **fields: object) -> bytes:
    known = {"UNIQ_KEY": "U", "REAL_TOPIC": "orders", "REAL_QID": "7"}
    draft = encode_draft(
        **{
            "topic": b"SCHEDULE_TOPIC_XXXX",
            "queue_id": 2,
            "body": b"hello",
            "properties": encode_properties(known),
            "flag": 5,
            "sys_flag": 8,
            "born_timestamp": 17,
            "born_host": host,
            "store_host_v6": wide,
            "reconsume_times": 3,
            **fields,
        }
    )
    record = bytearray(draft)
    place = {"queue_offset": 11, "position": 1_000, "store_timestamp": 99, "store_host": V4}
    stamp(record, 0, **place)
    return bytes(record)


@given(HOSTS, st.booleans(), st.binary(max_size=40), st.sampled_from(["a", "t" * 127]))
def test_what_stays_and_what_is_new(host, with_crc, body, topic) -> None:
    record = stored(*host, with_crc=with_crc, body=body)
    made = moved_draft(memoryview(record), (topic, 4))
    assert moved_draft(made, (topic, 4)) == made, "a draft is moved like a record"
    again = bytearray(made)
    stamp(again, 0, queue_offset=1, position=5, store_timestamp=7, store_host=V4)
    assert check_record(again, 0, len(again), 5).size == len(again)
    old, new = decode_record(record), decode_record(again)
    assert (new.topic, new.queue_id, new.offset, new.store_timestamp) == (topic, 4, 1, 7)
    for name in ("body", "flag", "sys_flag", "born_timestamp", "born_host", "reconsume_times"):
        assert getattr(new, name) == getattr(old, name)
    assert new.properties == old.properties


def test_no_properties_and_no_room_for_a_checksum() -> None:
    for properties in (b"", b"k\x01" + b"v" * 32_765, b"k\x01v\x02"):
        record = stored(properties=properties, with_crc=False)
        draft = moved_draft(record, ("T", 0))
        assert decode_record(draft, verify=False).properties == decode_properties(properties)


def test_fields_that_change() -> None:
    changes = ((b"UNIQ_KEY", None), (b"REAL_QID", b"8"), (b"a", b"b"))
    draft = moved_draft(
        stored(), ("T", 1), changes, cleared=12, added=4, reconsume_times=4, prepared=77
    )
    made = decode_record(draft, verify=False)
    assert (made.sys_flag, made.reconsume_times, made.prepared_transaction_offset) == (4, 4, 77)
    assert list(made.properties) == ["REAL_TOPIC", "REAL_QID", "a"]
    assert made.properties == {"REAL_TOPIC": "orders", "REAL_QID": "8", "a": "b"}


def test_a_damaged_body_is_not_made_whole() -> None:
    record = bytearray(stored())
    record[record.index(b"hello")] ^= 1
    for changes in ((), ((b"a", "é".encode()),)):  # the compiled kernel's way, and Python's
        draft = bytearray(moved_draft(record, ("T", 1), changes))
        stamp(draft, 0, queue_offset=1, position=5, store_timestamp=7, store_host=V4)
        made = decode_record(draft, verify=False)
        assert made.body_crc != zlib.crc32(made.body) & CRC_MASK


@pytest.mark.parametrize("topic", ["", "t" * 128])
def test_a_topic_that_no_record_can_hold(topic: str) -> None:
    with pytest.raises(MessageIllegal, match="1 to 127 fit"):
        moved_draft(stored(), (topic, 0))


def test_properties_that_have_no_room() -> None:
    record = stored(properties=b"k\x01" + b"v" * 32_740, with_crc=False)
    with pytest.raises(MessageIllegal, match="no room"):
        moved_draft(record, ("T", 0), ((b"name", b"v" * 40),))


@pytest.mark.parametrize(
    ("properties", "target"),
    [
        (b"REAL_TOPIC\x01a\x02REAL_QID\x013", ("a", 3)),
        (b"REAL_TOPIC\x01a\x02REAL_QID\x013\x02REAL_QID\x014\x02", ("a", 4)),
        (b"REAL_TOPIC\x01a", None),
        (b"REAL_QID\x013", None),
        (b"REAL_TOPIC\x01a\x02REAL_QID\x01-3", None),
        (b"REAL_TOPIC\x01a\x02REAL_QID\x01" + b"9" * 10, None),
        (b"REAL_TOPIC\x01" + b"t" * 128 + b"\x02REAL_QID\x013", None),
        (b"REAL_TOPIC\x01\xff\x02REAL_QID\x013", None),
        (b"", None),
    ],
)
def test_where_it_was_sent(properties: bytes, target) -> None:
    assert real_target(properties) == target
