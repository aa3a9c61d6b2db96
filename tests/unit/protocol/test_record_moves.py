"""A message that is stored once more keeps what is its own."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kourou.errors import MessageIllegal
from kourou.protocol.properties import encode_properties
from kourou.protocol.record import check_record, decode_record, encode_draft, encode_host, stamp
from kourou.protocol.record_layout import parts_of
from kourou.protocol.record_moves import (
    delivered_draft,
    moved_draft,
    properties_of,
    real_lane,
)

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
def test_both_ways_make_the_same_draft(host, with_crc, body, topic) -> None:
    record = stored(*host, with_crc=with_crc, body=body)
    parts = parts_of(record, 0, len(record))
    lane = (topic, 4)
    quick = delivered_draft(memoryview(record), parts, lane)
    assert quick == moved_draft(record, parts, lane, properties_of(record, parts))
    again = bytearray(quick)
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
        parts = parts_of(record, 0, len(record))
        draft = delivered_draft(record, parts, ("T", 0))
        assert decode_record(draft, verify=False).properties == properties_of(record, parts)


def test_fields_that_change() -> None:
    record = stored()
    parts = parts_of(record, 0, len(record))
    draft = moved_draft(
        record, parts, ("T", 1), {"a": "b"}, sys_flag=0, reconsume_times=4, prepared=77
    )
    made = decode_record(draft, verify=False)
    assert (made.sys_flag, made.reconsume_times, made.prepared_transaction_offset) == (0, 4, 77)
    assert made.properties == {"a": "b"}


def test_a_topic_that_no_record_can_hold() -> None:
    record = stored()
    parts = parts_of(record, 0, len(record))
    for topic in ("", "t" * 128):
        with pytest.raises(MessageIllegal):
            delivered_draft(record, parts, (topic, 0))


@pytest.mark.parametrize(
    ("properties", "lane"),
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
def test_where_it_was_sent(properties: bytes, lane) -> None:
    assert real_lane(properties) == lane
