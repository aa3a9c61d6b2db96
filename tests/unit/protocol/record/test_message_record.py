"""One record: drafts, stamps, checks, reading."""

import zlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kourou.errors import Corrupt, DecodeError, KourouError, MessageIllegal
from kourou.model.limits import PROPERTIES_SIZE_BYTES_MAX
from kourou.protocol.record.compression import compress
from kourou.protocol.record.layout import encode_host
from kourou.protocol.record.message_record import (
    BlankRecord,
    CheckedRecord,
    check_record,
    decode_record,
    encode_blank,
    encode_draft,
    record_size,
    stamp,
)
from kourou.protocol.record.properties import encode_properties

BORN = encode_host(("10.0.0.9", 1234))
BORN_V6 = encode_host(("2001:db8::9", 1234))
STORE = encode_host(("10.0.0.1", 10911))
STORE_V6 = encode_host(("2001:db8::1", 10911))


def draft(**fields) -> bytes:
    return encode_draft(
        **{
            "topic": b"TopicA",
            "queue_id": 3,
            "body": b"hello",
            "properties": encode_properties({"UNIQ_KEY": "K", "TAGS": "TagA"}),
            "born_timestamp": 1_700_000_000_000,
            "born_host": BORN,
            **fields,
        }
    )


def stored(host: bytes = STORE, position: int = 4096, **fields) -> bytes:
    raw = bytearray(draft(**fields))
    stamp(raw, 0, queue_offset=5, position=position, store_timestamp=99, store_host=host)
    return bytes(raw)


# -- drafts ---------------------------------------------------------------------------------------


@pytest.mark.feature("F066")
def test_a_draft_byte_by_byte() -> None:
    raw = encode_draft(
        topic=b"T",
        queue_id=1,
        body=b"hello",
        properties=b"k\x01v",
        flag=2,
        sys_flag=4,
        born_timestamp=3,
        born_host=BORN,
        reconsume_times=5,
        prepared_transaction_offset=6,
    )
    expected = (
        "00000079 daa320a7 3610a686 00000001 00000002 0000000000000000 0000000000000000 00000004"
        "0000000000000003 0a000009000004d2 0000000000000000 0000000000000000 00000005"
        "0000000000000006 00000005"
    )
    fixed = bytes.fromhex(expected.replace(" ", ""))
    tail = b"hello" + b"\x01T" + b"\0\x18" + b"k\x01v\x02__CRC32#\x010000000000\x02"
    assert raw == fixed + tail
    assert len(raw) == 0x79


def test_a_separator_stands_before_the_checksum_only_if_it_is_missing() -> None:
    assert draft(properties=b"k\x01v").endswith(b"k\x01v\x02__CRC32#\x010000000000\x02")
    assert draft(properties=b"k\x01v\x02").endswith(b"k\x01v\x02__CRC32#\x010000000000\x02")
    assert draft(properties=b"").endswith(b"TopicA\0\x14__CRC32#\x010000000000\x02")


def test_the_host_bits_follow_from_the_hosts() -> None:
    assert draft(sys_flag=48 | 1) == draft(sys_flag=1)
    assert draft(sys_flag=0, born_host=BORN_V6)[39] == 16


def test_a_checksum_from_another_record_is_replaced() -> None:
    once = draft(properties=b"k\x01v\x02__CRC32#\x011234567890\x02")
    assert once == draft(properties=b"k\x01v")


@pytest.mark.parametrize(
    ("length", "ends", "has"),
    [
        (PROPERTIES_SIZE_BYTES_MAX, b"v", False),
        (PROPERTIES_SIZE_BYTES_MAX - 20, b"v", False),
        (PROPERTIES_SIZE_BYTES_MAX - 20, b"\x02", True),
        (PROPERTIES_SIZE_BYTES_MAX - 21, b"v", True),
    ],
)
def test_the_checksum_is_left_out_where_it_does_not_fit(
    length: int, ends: bytes, has: bool
) -> None:
    properties = b"k\x01" + b"v" * (length - 3) + ends
    raw = stored(properties=properties)
    assert (b"__CRC32#" in raw) is has
    assert isinstance(check_record(raw, 0, len(raw), 4096), CheckedRecord)


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"topic": b""}, "topic"),
        ({"topic": b"t" * 128}, "topic has 128"),
        ({"properties": b"k\x01" + b"v" * PROPERTIES_SIZE_BYTES_MAX}, "properties"),
        ({"born_host": b"123"}, "born host"),
        ({"queue_id": 2**31}, "number"),
        ({"born_timestamp": 2**63}, "number"),
    ],
)
def test_what_the_layout_cannot_hold_is_refused(fields: dict, named: str) -> None:
    with pytest.raises(MessageIllegal, match=named):
        draft(**fields)


# -- stamps ---------------------------------------------------------------------------------------


@pytest.mark.feature("F066", "F067", "F174")
@pytest.mark.parametrize("born", [BORN, BORN_V6])
@pytest.mark.parametrize("store", [STORE, STORE_V6])
@pytest.mark.parametrize("before", [0, 17])
def test_a_stamped_draft_is_a_record(born: bytes, store: bytes, before: int) -> None:
    raw = bytearray(before)
    raw += draft(born_host=born, store_host_v6=len(store) == 20, flag=-3)
    stamp(raw, before, queue_offset=2**40, position=2**50, store_timestamp=77, store_host=store)
    flags = (16 if born is BORN_V6 else 0) | (32 if store is STORE_V6 else 0)
    found = check_record(raw, before, len(raw), 2**50)
    assert found == CheckedRecord(len(raw) - before, 3, 2**40, 2**50, flags, 77)
    message = decode_record(raw, before)
    assert message.body == b"hello"
    assert message.topic == "TopicA"
    assert message.properties == {"UNIQ_KEY": "K", "TAGS": "TagA"}
    assert message.offset == 2**40
    assert message.position == 2**50
    assert message.flag == -3
    assert message.born_host == ("2001:db8::9" if born is BORN_V6 else "10.0.0.9", 1234)
    assert message.store_host == ("2001:db8::1" if store is STORE_V6 else "10.0.0.1", 10911)
    assert message.body_crc == 907060870


def test_the_checksum_is_rocketmq_5s() -> None:
    raw = stored()
    covered, digits = raw[:-20], raw[-11:-1]
    assert raw[-20:-11] == b"__CRC32#\x01"
    assert int(digits[::-1]) == zlib.crc32(covered) & 0x7FFFFFFF


def test_stamping_leaves_a_record_without_checksum_otherwise_alone() -> None:
    raw = stored(with_crc=False)
    plain = draft(with_crc=False)
    same = [at for at in range(len(raw)) if raw[at] == plain[at]]
    assert set(range(len(raw))) - set(same) <= {*range(20, 36), *range(56, 72)}
    assert isinstance(check_record(raw, 0, len(raw), 4096), CheckedRecord)


def test_a_body_that_looks_like_the_checksum_is_not_stamped() -> None:
    # The mark ends the body; behind it come exactly eleven bytes: topic and empty properties.
    raw = stored(body=b"__CRC32#\x01", topic=b"12345678", properties=b"", with_crc=False)
    assert decode_record(raw).topic == "12345678"
    assert decode_record(raw).body == b"__CRC32#\x01"


def test_an_ipv4_broker_stamps_a_draft_made_for_ipv6() -> None:
    raw = stored(store_host_v6=True)
    assert decode_record(raw).store_host == ("10.0.0.1", 10911)
    assert raw[64:84].hex() == "00000000000000000000ffff0a00000100002a9f"


def test_an_ipv6_broker_cannot_stamp_a_draft_made_for_ipv4() -> None:
    with pytest.raises(MessageIllegal, match="no room"):
        stored(host=STORE_V6)


# -- checks ---------------------------------------------------------------------------------------


def test_a_filler() -> None:
    assert encode_blank(512).hex() == "00000200cbd43194"
    assert check_record(encode_blank(8) + b"x", 0, 9, 0) == BlankRecord(8)
    assert check_record(encode_blank(512) + bytes(504), 0, 512, None) == BlankRecord(512)
    with pytest.raises(Corrupt, match="size: a filler of 512"):
        check_record(encode_blank(512), 0, 8, None)
    with pytest.raises(Corrupt, match="size: a filler of 7"):
        check_record(encode_blank(7), 0, 8, None)


def test_every_flipped_bit_is_found() -> None:
    """The checksum covers what lies before it; its own bytes are checked by their form."""
    raw = stored()
    for bit in range(8 * len(raw)):
        damaged = bytearray(raw)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(Corrupt):
            check_record(damaged, 0, len(damaged), 4096)


def test_a_record_without_checksum_shows_damage_of_its_body() -> None:
    raw = bytearray(stored(with_crc=False))
    raw[90] ^= 1
    with pytest.raises(Corrupt, match="body checksum"):
        check_record(raw, 0, len(raw), 4096)
    with pytest.raises(Corrupt, match="body checksum"):
        decode_record(raw)
    assert decode_record(raw, verify=False).body != b"hello"


def test_a_record_elsewhere_than_it_says() -> None:
    raw = stored()
    with pytest.raises(Corrupt, match="position: the record at 5 has position 4096"):
        check_record(raw, 0, len(raw), 5)
    assert isinstance(check_record(raw, 0, len(raw), None), CheckedRecord)


@pytest.mark.parametrize("end", [0, 4, 8, 90, 100])
def test_a_cut_record(end: int) -> None:
    with pytest.raises(Corrupt, match="size: "):
        check_record(stored(), 0, end, None)
    with pytest.raises(Corrupt, match="size: "):
        check_record(stored()[:end], 0, 10_000, None)


def test_the_size_of_what_begins_somewhere() -> None:
    raw = stored()
    assert record_size(raw, 0) == len(raw)
    for at in (-1, len(raw) - 3, len(raw) + 9):
        with pytest.raises(Corrupt, match="size: "):
            record_size(raw, at)


# -- reading --------------------------------------------------------------------------------------


@pytest.mark.feature("F171")
@pytest.mark.parametrize("kind", [0, 1, 2, 3])
def test_a_compressed_body_is_read(kind: int) -> None:
    body = b"hello " * 1000
    raw = stored(body=compress(kind, body), sys_flag=1 | kind << 8)
    assert decode_record(raw).body == body
    assert decode_record(raw).sys_flag == 1 | kind << 8
    assert decode_record(raw, decompress=False).body == compress(kind, body)
    assert decode_record(raw + raw, len(raw)).body == body


def test_a_body_that_is_no_compressed_form_is_corrupt() -> None:
    with pytest.raises(Corrupt, match="body: "):
        decode_record(stored(body=b"plain", sys_flag=1))


def test_a_topic_that_is_no_text_is_corrupt() -> None:
    raw = stored(topic=b"\xff\xfe")
    with pytest.raises(DecodeError, match="topic"):
        decode_record(raw)
    with pytest.raises(Corrupt, match="topic"):
        check_record(raw, 0, len(raw), 4096)


def test_the_messages_of_a_pull() -> None:
    bodies = [b"", b"a", b"b" * 5000]
    data = b"".join(stored(body=body, position=at) for at, body in enumerate(bodies))
    at = 0
    for position, body in enumerate(bodies):
        message = decode_record(memoryview(data), at)
        assert (message.body, message.position) == (body, position)
        at += message.size
    assert at == len(data)
    with pytest.raises(Corrupt, match="size: "):
        decode_record(data + b"\0", at)


FLIPS = st.lists(st.tuples(st.integers(0, 10_000), st.integers(1, 255)), min_size=1, max_size=4)


@pytest.mark.fuzz
@given(flips=FLIPS, cut=st.integers(0, 60), crc=st.booleans(), v6=st.booleans())
def test_damage_raises_only_our_own_errors(
    flips: list[tuple[int, int]], cut: int, crc: bool, v6: bool
) -> None:
    raw = bytearray(stored(with_crc=crc, store_host_v6=v6, sys_flag=0x301))
    for at, value in flips:
        raw[at % len(raw)] ^= value
    data = bytes(raw[: len(raw) - cut])
    for read in (
        lambda: check_record(data, 0, len(data), None),
        lambda: decode_record(data, verify=False),
        lambda: decode_record(data),
        lambda: decode_record(data + data, len(data), verify=False),
    ):
        try:
            read()
        except KourouError as error:
            named = str(error)
            assert named


@given(
    body=st.binary(max_size=200),
    topic=st.text("abcXYZ019_-%|", min_size=1, max_size=127),
    properties=st.dictionaries(st.text("abc", min_size=1), st.text("xyz ", min_size=1), max_size=5),
    flag=st.integers(-(2**31), 2**31 - 1),
    numbers=st.tuples(st.integers(0, 2**63 - 1), st.integers(0, 2**63 - 1)),
    reconsume=st.integers(0, 2**31 - 1),
    born=st.sampled_from([BORN, BORN_V6]),
    crc=st.booleans(),
)
def test_what_is_encoded_is_decoded(
    body: bytes,
    topic: str,
    properties: dict[str, str],
    flag: int,
    numbers: tuple[int, int],
    reconsume: int,
    born: bytes,
    crc: bool,
) -> None:
    raw = stored(
        body=body,
        topic=topic.encode(),
        properties=encode_properties(properties),
        flag=flag,
        born_timestamp=numbers[0],
        prepared_transaction_offset=numbers[1],
        reconsume_times=reconsume,
        born_host=born,
        with_crc=crc,
    )
    message = decode_record(raw)
    assert (message.body, message.topic, message.properties) == (body, topic, properties)
    assert (message.flag, message.reconsume_times) == (flag, reconsume)
    assert (message.born_timestamp, message.prepared_transaction_offset) == numbers
    assert (message.offset, message.position, message.store_timestamp) == (5, 4096, 99)


# -- the page of the format -----------------------------------------------------------------------


def test_the_example_of_the_format_page_is_what_is_written() -> None:
    page = Path(__file__).parents[4] / "docs" / "formats" / "record.md"
    example = page.read_text(encoding="utf-8").split("## Worked example")[1].split("```")[1]
    columns = [line.split("    ")[0] for line in example.strip().splitlines()]
    raw = bytearray(
        encode_draft(
            topic=b"TopicA",
            queue_id=2,
            body=b"hello",
            properties=encode_properties({"TAGS": "TagA"}),
            born_timestamp=1795228844594,
            born_host=encode_host(("127.0.0.1", 47160)),
        )
    )
    stamp(
        raw,
        0,
        queue_offset=7,
        position=16_384,
        store_timestamp=1795228844778,
        store_host=encode_host(("127.0.0.1", 10911)),
    )
    assert bytes(raw) == bytes.fromhex("".join(columns))
