"""A filter's view of a record, field by field beside kourou.protocol.record.message_record."""

import json
import random
import sys
import zlib
from pathlib import Path

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from kourou.errors import Corrupt, KourouError
from kourou.model import limits
from kourou.model.message import Compression
from kourou.protocol.record import layout as record_layout
from kourou.protocol.record.columns import scan
from kourou.protocol.record.compression import compress
from kourou.protocol.record.compression import decompress as outside
from kourou.protocol.record.layout import encode_host
from kourou.protocol.record.message_record import decode_record, encode_draft, stamp
from kourou.protocol.record.properties import encode_properties
from kourou_filter_server.sandbox import view
from kourou_filter_server.sandbox.view import BadRecord, MessageView, decompress, next_record

GOLDEN = Path(__file__).parents[3] / "golden" / "rocketmq-4.9.8"
V4 = encode_host(("10.0.0.9", 1234))
V6 = encode_host(("2001:db8::9", 1234))

pytestmark = pytest.mark.usefixtures("prepared")


def stored(**fields) -> bytes:
    host = fields.pop("store_host", V4)
    raw = bytearray(
        encode_draft(
            **{
                "topic": b"TopicA",
                "queue_id": 3,
                "body": b"hello",
                "properties": encode_properties({"UNIQ_KEY": "K", "TAGS": "TagA"}),
                "born_timestamp": 1_700_000_000_000,
                "born_host": V4,
                "store_host_v6": len(host) == 20,
                **fields,
            }
        )
    )
    stamp(raw, 0, queue_offset=5, position=4096, store_timestamp=99, store_host=host)
    return bytes(raw)


def seen(message: MessageView) -> tuple:
    return (
        message.topic,
        message.queue_id,
        message.offset,
        message.body,
        dict(message.properties),
        message.tag,
        message.keys,
        message.message_id,
        message.born_ms,
        message.stored_ms,
        message.reconsume_times,
    )


def expected(raw: bytes) -> tuple:
    message = decode_record(raw, verify=False)
    return (
        message.topic,
        message.queue_id,
        message.offset,
        message.body,
        message.properties,
        message.tag,
        message.keys,
        message.message_id,
        message.born_timestamp,
        message.store_timestamp,
        message.reconsume_times,
    )


def viewed(raw: bytes) -> MessageView:
    return MessageView(raw, 0, next_record(raw, 0))


# -- equal to what a consumer decodes -------------------------------------------------------------


@pytest.mark.feature("F238")
@pytest.mark.parametrize("store", ["store-clean", "store-live-abort"])
def test_every_record_of_a_real_rocketmq_is_seen_as_a_consumer_sees_it(store: str) -> None:
    log = scan((GOLDEN / store / "commitlog" / f"{0:020d}").read_bytes())
    batch = b"".join(bytes(log.record(index)) for index in range(len(log)))
    at = 0
    for index in range(len(log)):
        end = next_record(batch, at)
        assert seen(MessageView(batch, at, end)) == expected(bytes(log.record(index)))
        at = end
    assert at == len(batch)
    assert len(log) == 29


PROPERTY_TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\x01\x02"), max_size=8)
PIECES = st.lists(
    st.one_of(
        st.binary(max_size=12),
        st.tuples(
            st.sampled_from(["TAGS", "KEYS", "UNIQ_KEY", "XTAGS", "__CRC32#", "a"]), PROPERTY_TEXT
        ).map(lambda pair: f"{pair[0]}\x01{pair[1]}".encode()),
    ),
    max_size=6,
)


@given(
    pieces=PIECES,
    body=st.binary(max_size=60),
    kind=st.sampled_from([None, 0, 1, 2, 3]),
    hosts=st.tuples(st.sampled_from([V4, V6]), st.sampled_from([V4, V6])),
    topic=st.text(min_size=1, max_size=20).filter(lambda text: text.isascii()),
    numbers=st.tuples(*[st.integers(-(2**31), 2**31 - 1)] * 2, st.integers(-(2**63), 2**63 - 1)),
    crc=st.booleans(),
)
def test_any_record_is_seen_as_a_consumer_sees_it(
    pieces, body, kind, hosts, topic, numbers, crc
) -> None:
    flag = 0
    if kind is not None:
        body, flag = compress(kind, body), 1 | kind << 8
    raw = stored(
        topic=topic.encode(),
        properties=b"\x02".join(pieces),
        body=body,
        sys_flag=flag,
        born_host=hosts[0],
        store_host=hosts[1],
        queue_id=max(numbers[0], 0),
        reconsume_times=numbers[1],
        born_timestamp=numbers[2],
        with_crc=crc,
    )
    # Each order of questions finds the same: `tag` is searched for unless all were taken apart.
    assert seen(viewed(raw)) == expected(raw)
    message = viewed(raw)
    assert (message.tag, message.keys, message.message_id) == expected(raw)[5:8]


@given(seed=st.integers(0, 2**32), flips=st.integers(1, 4), cut=st.integers(0, 40))
def test_damage_raises_only_bad_record_and_where_a_consumer_fails_too(seed, flips, cut) -> None:
    chance = random.Random(seed)
    raw = bytearray(stored(born_host=V6 if seed % 2 else V4))
    for _ in range(flips):
        raw[chance.randrange(len(raw))] = chance.randrange(256)
    damaged = bytes(raw[: len(raw) - cut])
    try:
        wanted = expected(damaged)
    except KourouError:
        wanted = None
    try:
        found = seen(viewed(damaged))
    except BadRecord:
        found = None
    assert found == wanted


@pytest.mark.parametrize("length", [-1, -(2**31), 2**31 - 1, 6])
def test_a_body_length_that_does_not_fit_is_named(length: int) -> None:
    raw = bytearray(stored())
    raw[84:88] = length.to_bytes(4, "big", signed=True)
    with pytest.raises(BadRecord, match="body length" if length != 6 else "topic length"):
        _ = viewed(bytes(raw)).body


def test_the_layout_is_that_of_the_protocol() -> None:
    assert view.MAGIC == record_layout.MAGIC
    assert view.RECORD_FIXED_BYTES == limits.RECORD_FIXED_BYTES
    assert view.TOPIC_LENGTH_MAX == limits.TOPIC_LENGTH_MAX
    assert view.PROPERTIES_BYTES_MAX == limits.PROPERTIES_SIZE_BYTES_MAX
    assert view.V6_EXTRA_BYTES == record_layout.V6_EXTRA_BYTES
    assert view.BODY_SIZE_BYTES_MAX == limits.BODY_SIZE_BYTES_MAX
    assert view.DECOMPRESS_RATIO_MAX == limits.DECOMPRESS_RATIO_MAX
    assert view.DECOMPRESS_FACTOR_MAX == limits.DECOMPRESS_FACTOR_MAX


# -- what it is besides ---------------------------------------------------------------------------


def test_a_view_is_read_only() -> None:
    message = viewed(stored())
    for name in ("body", "tag", "json", "offset", "own"):
        with pytest.raises(AttributeError):
            setattr(message, name, 1)
    with pytest.raises(TypeError):
        message.properties["TAGS"] = "other"
    assert message.tag == "TagA"


@pytest.mark.feature("F242")
def test_json_is_decoded_once() -> None:
    message = viewed(stored(body=b'{"late": [150, null]}'))
    assert message.json == {"late": [150, None]}
    assert message.json is message.json
    assert viewed(stored(body=b"null")).json is None


def test_a_body_that_is_no_json_is_a_value_error() -> None:
    with pytest.raises(json.JSONDecodeError):
        _ = viewed(stored(body=b"{")).json
    with pytest.raises(ValueError, match="utf-8"):
        _ = viewed(stored(body=b'"\xff"')).json


def test_the_first_of_several_keys() -> None:
    raw = stored(properties=encode_properties({"KEYS": "A-1 A-2"}))
    assert (viewed(raw).keys, viewed(raw).key) == (("A-1", "A-2"), "A-1")
    assert viewed(stored(properties=b"")).key is None


def test_an_empty_tag_is_none_and_the_last_one_counts() -> None:
    assert viewed(stored(properties=b"TAGS\x01\x02")).tag is None
    assert viewed(stored(properties=b"TAGS\x01a\x02TAGS\x01b\x02")).tag == "b"
    assert viewed(stored(properties=b"TAGS\x01a\x02TAGS\x01\x02")).tag == "a"


def test_a_body_that_looks_like_a_property_is_not_read_as_one() -> None:
    assert viewed(stored(body=b"\x02TAGS\x01x", properties=b"")).tag is None


def test_two_records_of_a_batch_do_not_see_each_other() -> None:
    first = stored(properties=b"a\x01b", with_crc=False)
    second = stored(properties=b"a\x01b\x02TAGS\x01x")
    batch = first + second
    end = next_record(batch, 0)
    assert MessageView(batch, 0, end).tag is None
    assert MessageView(batch, end, next_record(batch, end)).tag == "x"


# -- body ------------------------------------------------------------------------------------------


FLAGS = {kind: 1 | kind << 8 for kind in Compression}


def test_a_stream_that_does_not_tell_its_size() -> None:
    packed = zstandard.ZstdCompressor().compressobj()
    data = packed.compress(b"hello" * 100) + packed.flush()
    assert decompress(FLAGS[Compression.ZSTD], data) == b"hello" * 100
    with pytest.raises(BadRecord):
        decompress(FLAGS[Compression.ZSTD], data[:-3])


@pytest.mark.parametrize("kind", list(Compression))
@pytest.mark.parametrize("change", ["cut", "garbage", "empty"])
def test_damage_is_refused_with_the_words_of_the_outside(kind: Compression, change: str) -> None:
    packed = {"cut": compress(kind, b"hello" * 99)[:-5], "garbage": b"\x07garbage", "empty": b""}
    with pytest.raises(Corrupt) as there:
        outside(FLAGS[kind], packed[change])
    with pytest.raises(BadRecord) as here:
        decompress(FLAGS[kind], packed[change])
    assert str(here.value) == str(there.value)


@pytest.mark.parametrize("kind", list(Compression))
def test_a_bomb_is_refused(kind: Compression) -> None:
    packed = compress(kind, bytes(limits.BODY_SIZE_BYTES_MAX * limits.DECOMPRESS_FACTOR_MAX + 1))
    with pytest.raises(BadRecord, match="grow"):
        decompress(FLAGS[kind], packed)


def test_an_unknown_codec_is_named() -> None:
    with pytest.raises(BadRecord, match=r"unknown way \(5\)"):
        decompress(1 | 5 << 8, zlib.compress(b"x"))


@pytest.mark.parametrize(
    ("kind", "named"), [(Compression.LZ4, "no lz4"), (Compression.ZSTD, "no zstandard")]
)
def test_a_codec_that_is_not_installed_is_named(
    kind: Compression, named: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(view, "_modules", {})
    with pytest.raises(BadRecord, match=named):
        decompress(FLAGS[kind], compress(kind, b"x"))


def test_codecs_are_looked_for_in_their_directories_only(monkeypatch, tmp_path) -> None:
    monkeypatch.setattr(view, "_modules", {})
    for name in [name for name in sys.modules if name.partition(".")[0] in ("lz4", "zstandard")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "path", [])
    view.load_codecs([str(tmp_path)])
    assert (view._modules, sys.path) == ({}, [])
