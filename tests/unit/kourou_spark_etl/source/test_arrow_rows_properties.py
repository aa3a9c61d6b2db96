"""Properties of many messages at once say what each says alone."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kourou.protocol.record.columns import RecordColumns, scan
from kourou.protocol.record.layout import encode_host
from kourou.protocol.record.message_record import encode_draft
from kourou.protocol.record.properties import find_property
from kourou_spark_etl.source.arrow_rows import PropertyTexts, gathered

HOST = encode_host(("127.0.0.1", 10911))
NAMES = ("KEYS", "TAGS", "UNIQ_KEY", "traceparent")


def records_of(properties: list[bytes], *, with_crc: bool = True) -> RecordColumns:
    drafts = [
        encode_draft(
            topic=b"T",
            queue_id=0,
            body=b"",
            properties=one,
            born_timestamp=0,
            born_host=HOST,
            with_crc=with_crc,
        )
        for one in properties
    ]
    return scan(b"".join(drafts))


def alone(properties: bytes, name: str) -> str | None:
    value = find_property(properties, name.encode())
    return None if value is None else value.decode("utf-8", "replace")


VALUES = st.one_of(
    st.sampled_from([b"", b"a", b"order-17", b"\xff\xfe", "ключ".encode(), b"TAGS", b"KEYS"]),
    st.binary(max_size=6).map(lambda raw: raw.replace(b"\x02", b"").replace(b"\x01", b"")),
)
PAIRS = st.tuples(st.sampled_from([b"KEYS", b"TAGS", b"UNIQ_KEY", b"XTAGS", b"r"]), VALUES)
PIECES = st.one_of(PAIRS.map(b"\x01".join), st.sampled_from([b"", b"junk", b"\x01", b"KEYS"]))
PROPERTIES = st.lists(PIECES, max_size=6).map(b"\x02".join)


@given(st.lists(PROPERTIES, min_size=1, max_size=30), st.booleans())
@example([b"TAGS\x01a\x02", b"TAGS\x01b", b"TAGS\x01"], True)
@example([b"KEYS\x01a\x02KEYS\x01b\x02KEYS\x01", b"KEYS\x01a\x02TAGS\x01b\x02KEYS\x01c"], False)
@example([b"", b"TAGS\x01a", b""], False)
def test_values_are_those_of_each_message(properties: list[bytes], with_crc: bool) -> None:
    found = PropertyTexts(records_of(properties, with_crc=with_crc)).values(NAMES)
    for name in NAMES:
        expected = [alone(one, name) for one in properties]
        assert found[name].to_pylist() == expected, name
        found[name].validate(full=True)


def test_many_shapes_at_once() -> None:
    properties = [
        b"\x02".join(
            [b"UNIQ_KEY\x01%032d" % number]
            + [b"TAGS\x01t%d" % number] * (number % 3 == 0)
            + [b"p%d\x01x" % one for one in range(number % 23)]
            + [b"KEYS\x01k%d" % number] * (number % 2)
        )
        for number in range(2_000)
    ]
    found = PropertyTexts(records_of(properties)).values(NAMES)
    for name in NAMES:
        assert found[name].to_pylist() == [alone(one, name) for one in properties]


def test_the_text_is_without_the_checksum_and_a_last_separator() -> None:
    properties = [b"a\x01b\x02", b"a\x01b", b"", b"a\x01\xff\x02b\x01c", b"a\x01b\x02\x02"]
    for with_crc in (True, False):
        text = PropertyTexts(records_of(properties, with_crc=with_crc)).text
        texts = ["a\x01b", "a\x01b", "", "a\x01\ufffd\x02b\x01c", "a\x01b\x02"]
        assert text.to_pylist() == texts
    # The same again where one message ends in the first byte of a character, and the next begins
    # with its second: together they would be UTF-8.
    split = [b"a\x01\xc3", b"\xa9\x01b"]
    text = PropertyTexts(records_of(split, with_crc=False)).text
    assert text.to_pylist() == ["a\x01\ufffd", "\ufffd\x01b"]


def test_what_looks_like_a_checksum_in_a_body_is_none() -> None:
    draft = encode_draft(
        topic=b"T",
        queue_id=0,
        body=b"__CRC32#\x010123456789\x02",
        properties=b"",
        born_timestamp=0,
        born_host=HOST,
        with_crc=False,
    )
    assert PropertyTexts(scan(draft)).text.to_pylist() == [""]


@pytest.mark.parametrize("kind", [pa.binary(), pa.string()])
def test_gathered_takes_pieces_of_one_buffer(kind: pa.DataType) -> None:
    blob = np.frombuffer(b"..abc...de..", np.uint8)
    at, length = np.array([2, 5, 8]), np.array([3, 0, 2])
    taken = gathered(blob, at, length, kind)
    assert [one.as_buffer().to_pybytes() for one in taken] == [b"abc", b"", b"de"]
    assert len(gathered(blob, at[:0], length[:0], kind)) == 0
