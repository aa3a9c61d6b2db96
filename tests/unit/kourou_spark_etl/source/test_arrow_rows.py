"""A row has what a consumer is told of the same record."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructType,
    TimestampType,
)

from kourou.client.consumer.received import decode_pull
from kourou.errors import BadRequest, Corrupt
from kourou.model.message import COMPRESSION_SHIFT, Compression, SysFlag
from kourou.model.topic import MessageQueue
from kourou.protocol.record.columns import RecordColumns, scan
from kourou.protocol.record.compression import compress
from kourou.protocol.record.layout import encode_host
from kourou.protocol.record.message_record import encode_draft, stamp
from kourou.protocol.record.properties import find_property
from kourou_rigs.rows import row_of
from kourou_spark_etl.source.arrow_rows import (
    COLUMNS,
    SCHEMA_DDL,
    ArrowRows,
    PropertyTexts,
    arrow_schema,
    wanted_columns,
)

QUEUE = MessageQueue("orders", "broker-a", 3)
V4, V6 = encode_host(("127.0.0.1", 10911)), encode_host(("::1", 10911))
TYPES: dict[str, DataType] = {
    "STRING": StringType(),
    "BINARY": BinaryType(),
    "INT": IntegerType(),
    "BIGINT": LongType(),
    "TIMESTAMP": TimestampType(),
}


def schema_of(ddl: str) -> StructType:
    """As Spark parses it, without Spark's JVM."""
    schema = StructType()
    for column in ddl.split(", "):
        name, kind = column.split()
        schema.add(name, TYPES[kind])
    return schema


def record(offset: int, **changes: Any) -> bytes:
    fields: dict[str, Any] = {
        "topic": b"orders",
        "queue_id": 3,
        "body": b"body %d" % offset,
        "properties": b"UNIQ_KEY\x01ID%d\x02TAGS\x01paid\x02KEYS\x01A-%d B" % (offset, offset),
        "born_timestamp": 1_700_000_000_000 + offset,
        "born_host": V4,
        **changes,
    }
    draft = bytearray(encode_draft(**fields))
    stamp(
        draft,
        0,
        queue_offset=offset,
        position=offset * 1_000,
        store_timestamp=1_700_000_000_500 + offset,
        store_host=V4,
    )
    return bytes(draft)


def packed(offset: int, kind: Compression) -> bytes:
    body = compress(kind, b"long " * 1_000)
    return record(offset, body=body, sys_flag=SysFlag.COMPRESSED | (kind << COMPRESSION_SHIFT))


def compared(records: list[bytes]) -> None:
    blob = b"".join(records)
    batch = ArrowRows().batch(QUEUE, scan(blob))
    batch.validate(full=True)
    messages = decode_pull(blob, QUEUE, from_offset=0, next_offset=10_000)
    assert batch.to_pylist() == [row_of(message) for message in messages]


@pytest.mark.parametrize("count", [1, 3, 40])
def test_rows_are_what_a_consumer_receives(count: int) -> None:
    compared([record(offset) for offset in range(count)])


def test_rows_of_unusual_records() -> None:
    context = b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    compared(
        [
            record(0, body=b""),
            packed(1, Compression.ZLIB),
            packed(2, Compression.LZ4),
            packed(3, Compression.ZSTD),
            packed(4, Compression.ZLIB_UNMARKED),
            record(5, properties=b""),
            record(6, properties=b"KEYS\x01\xff\xfe\x02r\x01\xe9"),
            record(7, properties=b"traceparent\x01" + context),
            record(8, properties=b"TRACE_CONTEXT\x01" + context),
            record(9, born_host=V6),
            record(10, reconsume_times=7, flag=9),
            record(11, with_crc=False),
            record(12, body=bytes(4 * 1024 * 1024)),
            *(record(offset) for offset in range(13, 30)),
            packed(30, Compression.ZSTD),
        ]
    )


def test_a_damaged_body_names_its_place() -> None:
    damaged = record(57, body=b"not packed", sys_flag=SysFlag.COMPRESSED)
    with pytest.raises(Corrupt, match="orders/broker-a/3@57: body"):
        ArrowRows().batch(QUEUE, scan(record(56) + damaged))


def test_only_columns_that_are_wanted_are_made() -> None:
    blob = b"".join(packed(offset, Compression.LZ4) for offset in range(3))
    rows = ArrowRows(["offset", "tags"])
    assert rows.batch(QUEUE, scan(blob)).to_pydict() == {"offset": [0, 1, 2], "tags": ["paid"] * 3}


def test_other_tags_with_the_same_code_are_left_out() -> None:
    # "Aa" and "BB" have one code in Java.
    blob = b"".join(
        record(offset, properties=b"TAGS\x01" + tag)
        for offset, tag in enumerate([b"Aa", b"BB", b"Aa"])
    ) + record(3, properties=b"")
    rows = ArrowRows(["offset"], frozenset({"Aa"}))
    assert rows.batch(QUEUE, scan(blob)).to_pydict() == {"offset": [0, 2]}
    assert ArrowRows(["offset"], frozenset({"Aa", "BB"})).batch(QUEUE, scan(blob)).num_rows == 3


def test_the_schema_is_what_spark_makes_of_it() -> None:
    schema = schema_of(SCHEMA_DDL)
    assert wanted_columns(schema) == COLUMNS
    assert to_arrow_schema(schema, timezone="UTC").equals(arrow_schema())
    assert wanted_columns(schema_of("offset BIGINT, key STRING")) == ("offset", "key")


@pytest.mark.parametrize(
    ("ddl", "text"),
    [
        ("value BINARY, body STRING", "'body', which messages do not have"),
        ("value STRING", "column value has type string in the schema; it must be binary"),
    ],
)
def test_schemas_that_messages_do_not_have(ddl: str, text: str) -> None:
    with pytest.raises(BadRequest, match=text):
        wanted_columns(schema_of(ddl))


# -- properties of many messages at once say what each says alone ----------------------------------


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
