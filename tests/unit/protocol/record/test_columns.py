"""Columns say of many records what the walk through one says of each."""

import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kourou.errors import Corrupt, MessageIllegal
from kourou.model.limits import BATCH_MESSAGES_MAX, PROPERTIES_SIZE_BYTES_MAX
from kourou.protocol import kernel
from kourou.protocol.kernel_python import BAD
from kourou.protocol.record.columns import (
    RecordColumns,
    ScanStop,
    check_drafts,
    columns,
    scan,
    sliding,
)
from kourou.protocol.record.layout import Parts, encode_host, parts_of
from kourou.protocol.record.message_record import (
    check_record,
    encode_blank,
    encode_draft,
    stamp,
)
from kourou.protocol.record.properties import encode_properties
from kourou_rigs.records import RecordRun

HOSTS = [encode_host(("10.0.0.1", 10911)), encode_host(("2001:db8::1", 10911))]
FIELDS = {
    "body_crcs": "crc",
    "queue_ids": "queue_id",
    "queue_offsets": "queue_offset",
    "positions": "position",
    "sys_flags": "sys_flag",
    "born_timestamps": "born_timestamp",
    "store_timestamps": "store_timestamp",
    "reconsume_times": "reconsume_times",
    "body_at": "body_at",
    "props_at": "props_at",
}


def record(number: int, position: int, *, born: int = 0, store: int = 0) -> bytes:
    raw = bytearray(
        encode_draft(
            topic=b"Topic%d" % (number % 3),
            queue_id=number % 5,
            body=b"b" * (number * 7 % 40),
            properties=encode_properties({"UNIQ_KEY": f"K{number}"}),
            flag=-number,
            born_timestamp=1000 + number,
            born_host=HOSTS[born],
            store_host_v6=bool(store),
            reconsume_times=number,
            prepared_transaction_offset=number * 9,
        )
    )
    stamp(
        raw,
        0,
        queue_offset=number * 2,
        position=position,
        store_timestamp=2000 + number,
        store_host=HOSTS[store],
    )
    return bytes(raw)


def run(count: int, *, mixed: bool = False, base: int = 512) -> bytes:
    data = b""
    for number in range(count):
        born, store = (number % 2, number // 2 % 2) if mixed else (0, 0)
        data += record(number, base + len(data), born=born, store=store)
    return data


def walked(data: bytes, starts: list[int]) -> list[Parts]:
    return [parts_of(data, at, len(data)) for at in starts]


@pytest.mark.feature("F066", "F067")
@pytest.mark.parametrize("mixed", [False, True])
@pytest.mark.parametrize("count", [1, 9, 10, 50])
def test_columns_agree_with_the_walk(count: int, mixed: bool) -> None:
    data = run(count, mixed=mixed)
    found = scan(data)
    assert (found.stop, found.next_at) == (ScanStop.END, len(data))
    assert len(found) == count
    assert (found.starts + 512).tolist() == found.positions.tolist()
    parts = walked(data, found.starts.tolist())
    for name, field in FIELDS.items():
        assert getattr(found, name).tolist() == [getattr(one, field) for one in parts], name
    assert found.body_len.tolist() == [one.body_end - one.body_at for one in parts]
    assert (found.props_at + found.props_len).tolist() == (found.starts + found.sizes).tolist()
    assert found.records() == [found.record(index) for index in range(count)]
    for index in (0, count - 1):
        at, size = int(found.starts[index]), int(found.sizes[index])
        assert found.record(index) == data[at : at + size]
        assert found.properties(index).startswith(b"UNIQ_KEY\x01K%d\x02" % index)


def topics_of(found: RecordColumns) -> tuple[list[bytes], list[int] | None]:
    topics, topic_of = kernel.topics(found.raw, found.raw_table)
    return topics, None if topic_of is None else memoryview(topic_of).cast("q").tolist()


@pytest.mark.parametrize("count", [4, 40])
@pytest.mark.parametrize("mixed", [False, True])
def test_selected_records(count: int, mixed: bool) -> None:
    found = scan(run(count, mixed=mixed))
    assert found.positions.tolist()
    odd = found.select(np.arange(count) % 2 == 1)
    assert odd.queue_offsets.tolist() == found.queue_offsets[1::2].tolist()
    assert odd.store_timestamps.tolist() == found.store_timestamps[1::2].tolist()
    assert odd.reconsume_times.tolist() == found.reconsume_times[1::2].tolist()
    assert topics_of(found.select(slice(1, 2))) == ([b"Topic1"], None)
    assert found.select(np.asarray([2, 0])).body_at.tolist() == found.body_at[[2, 0]].tolist()
    assert len(found.select(slice(0, 0))) == 0


@pytest.mark.parametrize("count", [0, 3, 30])
@pytest.mark.parametrize(
    ("tail", "stop"),
    [
        (b"", ScanStop.END),
        (b"\0" * 3, ScanStop.ZERO),
        (b"\0" * 200, ScanStop.ZERO),
        (encode_blank(77) + b"old", ScanStop.BLANK),
        (encode_blank(8), ScanStop.BLANK),
        (record(1, 0)[:90], ScanStop.CUT),
        (record(1, 0)[:8], ScanStop.CUT),
        (record(1, 0)[:7], ScanStop.CUT),
        (b"\0\0\0\1" + record(1, 0)[4:], ScanStop.BAD),
        (b"\xff" + record(1, 0)[1:], ScanStop.BAD),
        (b"not a record at all", ScanStop.BAD),
        (record(1, 0)[:87] + b"\x47" + record(1, 0)[88:] + record(2, 0), ScanStop.BAD),
    ],
)
def test_where_and_why_a_walk_ends(count: int, tail: bytes, stop: ScanStop) -> None:
    data = run(count)
    found = scan(data + tail, strict=False)
    assert (found.stop, found.next_at, len(found)) == (stop, len(data), count)
    if stop in (ScanStop.CUT, ScanStop.BAD):
        with pytest.raises(Corrupt, match=f"byte {len(data)} of"):
            scan(data + tail)
    else:
        assert len(scan(data + tail)) == count


def test_a_stored_record_that_is_not_there() -> None:
    data = run(12)
    for starts, sizes in (([-5], [100]), ([0], [len(data) + 1]), ([0], [-1]), ([50], [-10])):
        with pytest.raises(Corrupt, match="outside"):
            columns(data, np.asarray(starts), np.asarray(sizes))
    with pytest.raises(Corrupt, match="record 0 of 1 at byte 0: size"):
        columns(data, np.zeros(1, np.int64), np.full(1, 90))


def bare(topic: bytes = b"T", properties: bytes = b"", flags: int = 0) -> bytes:
    """A record built by hand, with what `encode_draft` would refuse."""
    size = 91 + len(topic) + len(properties)
    head = size.to_bytes(4, "big") + b"\xda\xa3\x20\xa7" + bytes(28) + flags.to_bytes(4, "big")
    tail = bytes([len(topic)]) + topic + len(properties).to_bytes(2, "big") + properties
    return head + bytes(48) + tail


BARE = [
    ({"flags": 16}, "hosts"),
    ({"flags": 32}, "hosts"),
    ({"flags": 48}, "hosts"),
    ({"topic": b""}, "topic length: 0"),
    ({"topic": b"t" * 128}, "topic length: 128"),
    ({"properties": b"p" * 0x8000}, "properties length: 32768"),
]


@pytest.mark.parametrize("count", [1, 2, 30])
@pytest.mark.parametrize(("fields", "named"), BARE)
def test_the_last_record_is_not_read_beyond(count: int, fields: dict, named: str) -> None:
    data = bare() * (count - 1) + bare(**fields)
    starts = np.arange(count) * len(bare())
    sizes = np.append(starts[1:], len(data)) - starts
    with pytest.raises(Corrupt, match=f"record {count - 1} of {count} .*{named}"):
        columns(data, starts, sizes)
    found = scan(data, strict=False)
    assert (len(found), found.stop) == (count - 1, ScanStop.BAD)
    assert len(columns(bare() * count, starts, np.full(count, len(bare())))) == count


def test_no_records() -> None:
    none = columns(b"", np.empty(0, np.int64), np.empty(0, np.int64))
    assert len(none) == 0
    assert none.positions.tolist() == none.props_len.tolist() == []


@given(
    flips=st.lists(st.tuples(st.integers(0, 10**6), st.integers(1, 255)), max_size=5),
    flags=st.lists(st.tuples(st.integers(0, 29), st.integers(0, 63)), max_size=3),
    mixed=st.booleans(),
)
def test_damage_is_named_as_the_walk_names_it(
    flips: list[tuple[int, int]], flags: list[tuple[int, int]], mixed: bool
) -> None:
    good = RUNS[mixed]
    data = bytearray(good.blob.tobytes())
    for at, value in flips:
        data[at % len(data)] ^= value
    for index, value in flags:
        data[int(good.starts[index]) + 39] = value
    problem = None
    for index, (at, size) in enumerate(zip(good.starts.tolist(), good.sizes.tolist(), strict=True)):
        try:
            if parts_of(data, at, at + size).size != size:
                problem = index, "size"
        except Corrupt as error:
            problem = index, error.message
        if problem:
            break
    if problem is not None:
        with pytest.raises(Corrupt) as caught:
            columns(data, good.starts, good.sizes)
        assert f"record {problem[0]} of" in caught.value.message
        assert problem[1] in caught.value.message
        return
    found = columns(data, good.starts, good.sizes)
    parts = [parts_of(data, at, len(data)) for at in good.starts.tolist()]
    assert found.store_timestamps.tolist() == [one.store_timestamp for one in parts]
    assert found.props_at.tolist() == [one.props_at for one in parts]


RUNS = [scan(run(30)), scan(run(30, mixed=True))]


@pytest.mark.fuzz
@given(st.binary(max_size=400), st.integers(0, 3000))
def test_a_walk_over_noise_raises_nothing(noise: bytes, at: int) -> None:
    data = bytearray(RUNS[0].blob.tobytes())
    data[at : at + len(noise)] = noise
    found = scan(data, strict=False)
    assert found.next_at == int(found.sizes.sum())
    assert scan(noise, strict=False).next_at <= len(noise)


def test_values_at_every_byte() -> None:
    blob = np.frombuffer(bytes(range(10)), dtype=np.uint8)
    assert sliding(blob, ">i2")[[0, 3, 8]].tolist() == [0x0001, 0x0304, 0x0809]
    assert len(sliding(blob, "V10")) == 1
    assert len(sliding(blob, "V11")) == 0


def test_topics_of_a_batch() -> None:
    batch = RecordRun()
    for topic in ("Ab", "Cd", "Ab", "Efg"):
        batch.add(topic)
    assert topics_of(batch.columns()) == ([b"Ab", b"Cd", b"Efg"], [0, 1, 0, 2])
    assert topics_of(batch.columns(0, 1)) == ([b"Ab"], None)
    assert topics_of(scan(b"")) == ([], None)


# -- batches are judged, stamped and verified as each record alone would be ------------------------


BORN = [encode_host(("10.0.0.9", 1)), encode_host(("2001:db8::9", 1))]
STORE = encode_host(("10.0.0.1", 10911))
COUNTS = [1, 9, 40]


def draft(number: int = 0, **fields) -> bytes:
    return encode_draft(
        **{
            "topic": b"TopicA",
            "queue_id": number % 4,
            "body": b"body" * (number % 9),
            "properties": encode_properties({"UNIQ_KEY": f"K{number:04}"}),
            "born_timestamp": 1000 + number,
            "born_host": BORN[0],
            **fields,
        }
    )


def joined(drafts: list[bytes]) -> tuple[bytes, np.ndarray]:
    return b"".join(drafts), np.asarray([len(one) for one in drafts], dtype=np.int64)


# -- what a client sends --------------------------------------------------------------------------


@pytest.mark.parametrize("count", COUNTS)
def test_good_drafts_pass(count: int) -> None:
    blob, sizes = joined([draft(number) for number in range(count)])
    for told in (sizes, sizes.tolist(), sizes.astype("<u4")):
        found = check_drafts(memoryview(blob), told)
        assert found.queue_ids.tolist() == [number % 4 for number in range(count)]
        assert found.body_len.tolist() == [4 * (number % 9) for number in range(count)]


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"body": bytes(101)}, "101 bytes; maxMessageSize is 100"),
        ({"with_crc": False}, "place for its checksum"),
        ({"sys_flag": 4}, "a phase of a transaction"),
        ({"sys_flag": 8}, "a phase of a transaction"),
    ],
)
def test_a_bad_draft_is_refused_by_its_number(count: int, fields: dict, named: str) -> None:
    for bad in {0, count // 2, count - 1}:
        drafts = [draft(number, **(fields if number == bad else {})) for number in range(count)]
        with pytest.raises(MessageIllegal, match=f"message {bad + 1} of {count}: .*{named}"):
            check_drafts(*joined(drafts), 100)


@pytest.mark.parametrize("count", COUNTS)
def test_a_draft_whose_body_was_damaged_is_refused_by_its_number(count: int) -> None:
    for bad in {0, count // 2, count - 1}:
        for at in (8, 90):  # the checksum itself, and the body
            drafts = [bytearray(draft(number, body=b"body")) for number in range(count)]
            drafts[bad][at] ^= 1
            with pytest.raises(MessageIllegal, match=f"message {bad + 1} of {count}: .*BODYCRC"):
                check_drafts(*joined(drafts))


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize(
    "properties",
    [
        b"DELAY\x013\x02UNIQ_KEY\x01U",
        b"UNIQ_KEY\x01U\x02DELAY\x013",
        b"k\x01v\x02TRAN_MSG\x01true",
        b"k\x01" + b"v" * 9000 + b"\x02DELAY\x0118",
    ],
)
def test_what_may_go_elsewhere_is_found(count: int, properties: bytes) -> None:
    for chosen in ({0}, {count // 2, count - 1}):
        drafts = [
            draft(number, **({"properties": properties} if number in chosen else {}))
            for number in range(count)
        ]
        assert set(check_drafts(*joined(drafts)).elsewhere) == chosen


@pytest.mark.parametrize("count", COUNTS)
def test_a_body_goes_nowhere(count: int) -> None:
    body = b"DELAY\x013\x02TRAN_MSG\x01true"
    for properties in (b"k\x01DELAY", b"DELAY\x02k\x01v", b""):
        drafts = [draft(number, properties=properties, body=body) for number in range(count)]
        assert not check_drafts(*joined(drafts)).elsewhere


@pytest.mark.parametrize("count", COUNTS)
def test_sizes_that_lie(count: int) -> None:
    blob, sizes = joined([draft(number) for number in range(count)])
    lies = [
        sizes[:-1],
        np.append(sizes, 0),
        np.append(sizes, 100),
        sizes + 1,
        sizes - 1,
        -sizes,
        sizes * 2**32,
        np.append(sizes, [2**62, -(2**62)]),
        np.append(sizes, np.full(4, 2**62)),
        np.full(4, 2**62),
        [len(blob), 2**63],
        [2**64],
        ["a"],
        [None],
        [],
    ]
    if count > 1:
        lies += [sizes[::-1] + np.eye(1, count, dtype=np.int64)[0], np.roll(sizes, 1) + 0]
        lies += [np.asarray([len(blob)]), np.asarray([len(blob) - 91, 91])]
    for told in lies:
        if np.array_equal(told, sizes):
            continue
        with pytest.raises(MessageIllegal, match=r"nothing was stored|1 to"):
            check_drafts(blob, told)


def test_a_batch_has_a_limit() -> None:
    with pytest.raises(MessageIllegal, match=f"1 to {BATCH_MESSAGES_MAX}"):
        check_drafts(b"", np.full(BATCH_MESSAGES_MAX + 1, 91))


def test_a_draft_without_room_for_its_checksum_passes() -> None:
    big = b"k\x01" + b"v" * (PROPERTIES_SIZE_BYTES_MAX - 2)
    for count in COUNTS:
        found = check_drafts(*joined([draft(0, properties=big)] * count))
        assert found.props_len.tolist() == [PROPERTIES_SIZE_BYTES_MAX] * count


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("every", [1, 2])
def test_a_body_that_ends_like_a_checksum_is_no_place_for_one(count: int, every: int) -> None:
    fields = {"topic": b"12345678", "body": b"__CRC32#\x01", "properties": b"", "with_crc": False}
    drafts = [draft(number, **(fields if number % every == 0 else {})) for number in range(count)]
    with pytest.raises(MessageIllegal, match=f"message 1 of {count}: the place"):
        check_drafts(*joined(drafts))


def holds(found: RecordColumns, positions: np.ndarray | None = None) -> np.ndarray:
    """Which of these records match their checksum, and have these positions."""
    results = kernel.verify(found.blob, found.starts, found.sizes, positions)
    return np.frombuffer(results, np.uint8) != BAD


FLIPS = st.lists(st.tuples(st.integers(0, 10**6), st.integers(1, 255)), max_size=4)


@pytest.mark.fuzz
@given(FLIPS, st.sampled_from([2, 30]), st.integers(-2, 2))
def test_hostile_batches_raise_nothing_else_and_what_passes_can_be_appended(
    flips: list[tuple[int, int]], count: int, lie: int
) -> None:
    blob, sizes = joined([draft(number, born_host=BORN[number % 2]) for number in range(count)])
    data = bytearray(blob)
    for at, value in flips:
        data[at % len(data)] ^= value
    if lie:
        sizes[0] += lie
        sizes[-1] -= lie
    try:
        check_drafts(data, sizes, 1000)
    except MessageIllegal:
        return
    *_, problem, _ = kernel.append(
        data, sizes, None, np.zeros(1, np.int64), 0, 1 << 62, 1 << 30, 99, STORE
    )
    assert problem == 0
    stored = scan(data)
    bodies_hold = [
        np.array_equal(stored.body_crcs[index], np.int64(crc_of(stored, index)))
        for index in range(count)
    ]
    good = holds(stored, np.cumsum(sizes) - sizes)
    marked = [b"__CRC32#\x01" in bytes(stored.record(index)[-20:]) for index in range(count)]
    assert all(good[index] for index in range(count) if marked[index] or bodies_hold[index])


def crc_of(found: RecordColumns, index: int) -> int:
    at, size = int(found.body_at[index]), int(found.body_len[index])
    return zlib.crc32(found.blob[at : at + size]) & 0x7FFFFFFF


# -- what a store reads ---------------------------------------------------------------------------


def stored_run(count: int, *, crc: bool) -> bytearray:
    data = bytearray()
    for number in range(count):
        at = len(data)
        data += draft(number, with_crc=crc)
        stamp(data, at, queue_offset=number, position=at, store_timestamp=2**41, store_host=STORE)
    return data


@given(FLIPS, st.sampled_from([3, 30]), st.booleans())
def test_damage_is_found_where_the_single_check_finds_it(
    flips: list[tuple[int, int]], count: int, crc: bool
) -> None:
    data = stored_run(count, crc=crc)
    starts = scan(data).starts
    ends = np.append(starts[1:], len(data))
    for at, value in flips:
        data[at % len(data)] ^= value
    try:
        found = scan(data)
    except Corrupt:
        return
    if len(found) != count:
        return
    good = holds(found, found.starts).tolist()
    for index in range(count):
        try:
            check_record(data, int(starts[index]), int(ends[index]), int(starts[index]))
            fine = True
        except Corrupt as error:
            # The spelling of the topic is the single check's own; a batch leaves it to readers.
            fine = "topic: " in error.message
        assert good[index] is fine
