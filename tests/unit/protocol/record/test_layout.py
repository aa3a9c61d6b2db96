"""Hosts, checksum digits, and the walk through one record."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kourou.errors import BadRequest, Corrupt, DecodeError, MessageIllegal
from kourou.protocol.record.layout import (
    MAGIC_V2,
    crc_value,
    decode_host,
    encode_batch,
    encode_host,
    masked_crc,
    parts_of,
    split_batch,
    widen_host,
)
from kourou.protocol.record.message_record import encode_draft


@given(
    st.ip_addresses().filter(lambda address: not getattr(address, "ipv4_mapped", None)),
    st.integers(0, 65_535),
)
def test_hosts_are_read_back(address: object, port: int) -> None:
    host = (str(address), port)
    raw = encode_host(host)
    assert len(raw) == (20 if ":" in host[0] else 8)
    assert decode_host(raw) == host
    assert decode_host(memoryview(raw)) == host


def test_hosts_as_rocketmq_has_them() -> None:
    assert encode_host(("127.0.0.1", 23911)).hex() == "7f00000100005d67"
    assert encode_host(("fe80::1%eth0", 9)) == bytes.fromhex("fe80" + "00" * 13 + "01" + "00000009")
    assert encode_host(("a-name", 1)) == bytes(7) + b"\x01"


def test_an_ipv4_host_in_the_width_of_an_ipv6_one() -> None:
    wide = widen_host(encode_host(("10.1.2.3", 80)))
    assert wide.hex() == "00000000000000000000ffff0a01020300000050"
    assert decode_host(wide) == ("10.1.2.3", 80)
    assert widen_host(wide) == wide


@pytest.mark.parametrize("port", [-1, 65_536, 2**40])
def test_a_port_that_is_none(port: int) -> None:
    with pytest.raises(BadRequest, match="port"):
        encode_host(("127.0.0.1", port))


@pytest.mark.parametrize("size", [0, 4, 7, 9, 19, 21])
def test_a_host_of_another_length(size: int) -> None:
    with pytest.raises(DecodeError, match="8 or 20"):
        decode_host(bytes(size))


def test_digits_stand_the_least_significant_first() -> None:
    assert crc_value(0) == b"0000000000\x02"
    assert crc_value(1234) == b"4321000000\x02"
    assert crc_value(0x7FFFFFFF) == b"7463847412\x02"
    assert masked_crc(b"") == 0
    assert masked_crc(b"hello") == 907060870


def draft(**fields) -> bytes:
    return encode_draft(
        **{
            "topic": b"TopicA",
            "queue_id": 3,
            "body": b"hello",
            "properties": b"TAGS\x01a",
            "flag": 7,
            "born_timestamp": 11,
            "born_host": encode_host(("10.0.0.1", 5)),
            "reconsume_times": 2,
            "prepared_transaction_offset": 13,
            **fields,
        }
    )


def damaged(at: int, value: bytes) -> bytes:
    raw = bytearray(draft())
    raw[at : at + len(value)] = value
    return bytes(raw)


@pytest.mark.parametrize(
    ("at", "value", "field"),
    [
        (0, b"\xff\xff\xff\xff", "size: 4294967295 does not lie"),
        (0, (90).to_bytes(4, "big"), "size: 90 does not lie"),
        (4, b"\0", "magic: "),
        (4, MAGIC_V2.to_bytes(4, "big"), "magic: a version 2 record"),
        (84, b"\xff", "body length: "),
        (84, (4000).to_bytes(4, "big"), "body length: 4000"),
        (93, b"\x80", "topic length: 128"),
        (93, b"\0", "topic length: 0"),
        (93, b"\x7f", "topic length: 127"),
        (93, b"\x07", "properties length: "),
        (100, b"\xff\xff", "properties length: 65535"),
        (100, b"\0\0", "properties length: 0"),
    ],
)
def test_the_field_that_is_wrong_is_named(at: int, value: bytes, field: str) -> None:
    with pytest.raises(Corrupt, match=field):
        parts_of(damaged(at, value), 0, len(draft()))


@pytest.mark.parametrize(("at", "end"), [(-1, 100), (0, 10_000), (0, 90), (50, 100), (200, 100)])
def test_a_record_outside_the_buffer(at: int, end: int) -> None:
    with pytest.raises(Corrupt, match="size: "):
        parts_of(draft(), at, end)


@pytest.mark.fuzz
@given(st.binary(max_size=200), st.integers(0, 48))
def test_noise_raises_nothing_but_corrupt(tail: bytes, flags: int) -> None:
    raw = draft()[:36] + flags.to_bytes(4, "big") + tail
    try:
        parts = parts_of(raw, 0, len(raw))
    except Corrupt:
        return
    assert parts.props_at <= parts.size == len(draft()) <= len(raw)


# -- the body of a batch send ----------------------------------------------------------------------


@pytest.mark.feature("F175")
@given(
    st.lists(
        st.tuples(st.integers(-(2**31), 2**31 - 1), st.binary(max_size=50), st.binary(max_size=50)),
        max_size=5,
    )
)
def test_a_batch_that_is_encoded_comes_back(batch: list[tuple[int, bytes, bytes]]) -> None:
    """Damaged ones: tests/contract/test_kernel.py."""
    assert list(split_batch(encode_batch(batch))) == batch


@pytest.mark.fuzz
@given(st.binary(max_size=200))
def test_noise_is_no_batch_and_nothing_else_is_raised(noise: bytes) -> None:
    with contextlib.suppress(MessageIllegal):
        list(split_batch(noise))
