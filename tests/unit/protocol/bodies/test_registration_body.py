"""A broker's registration, in its three forms."""

import contextlib
import struct
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kourou.errors import BadRequest, DecodeError
from kourou.model.limits import FRAME_SIZE_BYTES_MAX
from kourou.model.topic import DataVersion, TopicConfig
from kourou.protocol.bodies.config_bodies import encode_topic_configs
from kourou.protocol.bodies.registration_body import (
    BrokerRegistration,
    body_checksum,
    check_body_checksum,
    decode_registration,
    encode_registration,
)

TOPICS = (TopicConfig("T", 3, 5, 4, "MULTI_TAG"), TopicConfig("%RETRY%G", 1, 1))
REGISTRATION = BrokerRegistration(TOPICS, DataVersion(7, 8), ("127.0.0.1:30000",))


def test_the_plain_form():
    assert decode_registration(encode_registration(REGISTRATION)) == REGISTRATION
    assert decode_registration(b"") == BrokerRegistration()


def sized(piece: bytes) -> bytes:
    return struct.pack(">i", len(piece)) + piece


PIECES = (
    sized(b'{"counter":8,"timestamp":7}'),
    struct.pack(">i", 2),
    sized(b"T 3 5 4 MULTI_TAG"),
    sized(b"%RETRY%G 1 1 6 SINGLE_TAG"),
    sized(b'["127.0.0.1:30000"]'),
)


def test_the_compressed_form():
    body = encode_registration(REGISTRATION, compressed=True)
    assert zlib.decompress(body) == b"".join(PIECES)
    assert decode_registration(body, compressed=True) == REGISTRATION


def test_the_compressed_form_of_a_later_broker_has_attributes():
    pieces = [*PIECES[:2], sized(b'T 3 5 4 MULTI_TAG {"a":"b"}'), *PIECES[3:]]
    body = zlib.compress(b"".join(pieces))
    assert decode_registration(body, compressed=True) == REGISTRATION


def test_the_bare_table_of_an_old_broker():
    body = encode_topic_configs(TOPICS, DataVersion(7, 8))
    assert decode_registration(body, sender_version=36) == BrokerRegistration(
        TOPICS, DataVersion(7, 8)
    )
    assert decode_registration(body, sender_version=37) == BrokerRegistration()


def test_the_checksum_is_masked_and_may_be_left_out():
    assert body_checksum(b"hello") == 907060870
    check_body_checksum(b"hello", 907060870)
    check_body_checksum(b"anything", 0)
    with pytest.raises(BadRequest, match="checksum"):
        check_body_checksum(b"hellO", 907060870)


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"\0\0",
        struct.pack(">i", -1),
        struct.pack(">i", 100) + b"x",
        PIECES[0],
        PIECES[0] + struct.pack(">i", -1),
        PIECES[0] + struct.pack(">i", 2**31 - 1),
        PIECES[0] + struct.pack(">i", 1) + sized(b"T 3 5 4"),
        PIECES[0] + struct.pack(">i", 1) + sized(b"T x 5 4 SINGLE_TAG"),
        PIECES[0] + struct.pack(">i", 1) + sized(b"T 3000000000 5 4 SINGLE_TAG"),
        PIECES[0] + struct.pack(">i", 1) + sized(b"\xff 3 5 4 SINGLE_TAG"),
        b"".join(PIECES[:-1]),
        b"".join(PIECES[:-1]) + sized(b"{}"),
        b"".join(PIECES[:-1]) + sized(b"[1]"),
    ],
)
def test_a_malformed_compressed_form_is_a_decode_error(raw):
    with pytest.raises(DecodeError):
        decode_registration(zlib.compress(raw), compressed=True)


def test_a_compressed_form_that_is_no_zlib_stream_is_cut_or_a_bomb():
    good = encode_registration(REGISTRATION, compressed=True)
    for body in (b"", b"nonsense", good[:-5], zlib.compress(bytes(FRAME_SIZE_BYTES_MAX + 1))):
        with pytest.raises(DecodeError):
            decode_registration(body, compressed=True)


@pytest.mark.fuzz
@given(st.binary(max_size=120))
def test_any_compressed_bytes_are_a_registration_or_an_error_of_ours(raw):
    for body in (raw, zlib.compress(raw), zlib.compress(PIECES[0] + raw)):
        with contextlib.suppress(DecodeError):
            decode_registration(body, compressed=True)
