"""The two ids of a message."""

from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kourou.errors import BadRequest
from kourou.protocol.record.message_id import (
    UniqKeyGenerator,
    decode_offset_id,
    encode_offset_id,
    month_start_ms,
    uniq_key_time_ms,
)

NOW = int(datetime(2026, 11, 21, 2, 40, 44, 805_000).timestamp() * 1000)  # noqa: DTZ001 - local


def test_the_key_has_rocketmqs_shape() -> None:
    made = UniqKeyGenerator(bytes([127, 0, 0, 1]), 0x12345, 0xAABBCCDD)
    key = made.next(NOW)
    assert len(key) == 32
    assert key[:20] == "7F0000012345AABBCCDD"
    assert int(key[20:28], 16) == NOW - month_start_ms(NOW)
    assert key[28:] == "0000"
    assert made.next(NOW)[28:] == "0001"


def test_an_ipv6_producer_has_longer_keys() -> None:
    assert len(UniqKeyGenerator(bytes(16), 1, 2).next(NOW)) == 56


def test_no_key_comes_twice_in_a_crowded_millisecond() -> None:
    made = UniqKeyGenerator(bytes(4), 1, 2)
    keys = made.next_many(70_000, NOW) + [made.next(NOW) for _ in range(3)]
    keys += made.next_many(70_000, NOW + 1)
    assert len(set(keys)) == len(keys)
    assert made.next_many(0, NOW) == []


def test_no_key_comes_twice_when_the_clock_steps_back() -> None:
    made = UniqKeyGenerator(bytes(4), 1, 2)
    keys: list[str] = []
    for now in (NOW, NOW - 5_000, NOW, NOW - 1, NOW - 40 * 86_400_000):
        keys += made.next_many(30_000, now)
    assert len(set(keys)) == len(keys)


def test_a_key_counts_from_the_start_of_its_month() -> None:
    made = UniqKeyGenerator(bytes(4), 1, 2)
    end = month_start_ms(NOW + 15 * 86_400_000)
    assert month_start_ms(end) == end
    assert int(made.next(end - 1)[20:28], 16) == end - 1 - month_start_ms(NOW)
    assert made.next(end)[20:28] == "00000000"


@given(st.integers(0, 25 * 86_400_000))
def test_the_time_of_a_key_is_found_again(age_ms: int) -> None:
    made_at = NOW - age_ms
    key = UniqKeyGenerator(bytes(4), 1, 2).next(made_at)
    assert uniq_key_time_ms(key, NOW + 1) == made_at


@pytest.mark.parametrize("text", ["", "order-17", "Z" * 32, "7F" * 15, "é" * 32])
def test_other_texts_have_no_time(text: str) -> None:
    assert uniq_key_time_ms(text, NOW) is None


def test_the_offset_id_of_rocketmq() -> None:
    assert encode_offset_id(("127.0.0.1", 23911), 0) == "7F00000100005D670000000000000000"
    assert encode_offset_id(("127.0.0.1", 20911), 0x664) == "7F000001000051AF0000000000000664"
    assert decode_offset_id("7f000001000051af0000000000000664") == (("127.0.0.1", 20911), 0x664)


@given(
    st.ip_addresses().filter(lambda address: not getattr(address, "ipv4_mapped", None)),
    st.integers(0, 65_535),
    st.integers(0, 2**63 - 1),
)
def test_offset_ids_are_read_back(address: object, port: int, position: int) -> None:
    text = encode_offset_id((str(address), port), position)
    assert len(text) in (32, 56)
    assert decode_offset_id(text) == ((str(address), port), position)


@pytest.mark.fuzz
@given(st.text(max_size=60) | st.text("0123456789abcdefABCDEF ", min_size=32, max_size=56))
def test_other_texts_are_refused(text: str) -> None:
    try:
        host, position = decode_offset_id(text)
    except BadRequest:
        return
    assert 0 <= position < 2**63
    assert len(host) == 2


@pytest.mark.parametrize("text", ["", "00" * 15, "00 " * 16, "G" * 32, "0" * 24 + "F" * 8 * 4])
def test_malformed_ids_are_refused(text: str) -> None:
    with pytest.raises(BadRequest):
        decode_offset_id(text)


def test_a_negative_position_is_no_position() -> None:
    with pytest.raises(BadRequest, match="no position"):
        decode_offset_id("7F00000100005D67" + "FF" * 8)
