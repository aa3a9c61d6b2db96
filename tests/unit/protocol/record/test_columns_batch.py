"""Batches are judged, stamped and verified as each record alone would be."""

import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kourou.errors import Corrupt, MessageIllegal
from kourou.model.limits import BATCH_MESSAGES_MAX, PROPERTIES_SIZE_BYTES_MAX
from kourou.protocol import kernel
from kourou.protocol.kernel_python import BAD
from kourou.protocol.record.columns import RecordColumns, check_drafts, scan
from kourou.protocol.record.layout import encode_host
from kourou.protocol.record.message_record import check_record, decode_record, encode_draft, stamp
from kourou.protocol.record.properties import encode_properties

BORN = [encode_host(("10.0.0.9", 1)), encode_host(("2001:db8::9", 1))]
STORE = encode_host(("10.0.0.1", 10911))
STORE_V6 = encode_host(("2001:db8::1", 10911))
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
        with pytest.raises(MessageIllegal, match=f"message {bad} of {count}: .*{named}"):
            check_drafts(*joined(drafts), 100)


@pytest.mark.parametrize("count", COUNTS)
def test_a_draft_whose_body_was_damaged_is_refused_by_its_number(count: int) -> None:
    for bad in {0, count // 2, count - 1}:
        for at in (8, 90):  # the checksum itself, and the body
            drafts = [bytearray(draft(number, body=b"body")) for number in range(count)]
            drafts[bad][at] ^= 1
            with pytest.raises(MessageIllegal, match=f"message {bad} of {count}: .*BODYCRC"):
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
    with pytest.raises(MessageIllegal, match=f"message 0 of {count}: the place"):
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


def stamped_one_by_one(
    blob: bytes, sizes: np.ndarray, offsets: np.ndarray, places: np.ndarray
) -> bytes:
    data = bytearray(blob)
    starts = np.cumsum(sizes) - sizes
    for index, start in enumerate(starts.tolist()):
        stamp(
            data,
            start,
            queue_offset=int(offsets[index]),
            position=int(places[index]),
            store_timestamp=2**41,
            store_host=STORE,
        )
    return bytes(data)


def stored_run(count: int, base: int, *, crc: bool = True) -> bytearray:
    blob, sizes = joined([draft(number, with_crc=crc) for number in range(count)])
    starts = np.cumsum(sizes) - sizes
    return bytearray(stamped_one_by_one(blob, sizes, np.arange(count), starts + base))


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("crc", [False, True])
def test_good_records_hold(count: int, crc: bool) -> None:
    data = stored_run(count, 4096, crc=crc)
    found = scan(data)
    assert holds(found).all()
    assert holds(found, found.starts + 4096).all()
    assert not holds(found, found.starts + 4095).any()
    places = found.positions
    places[count // 2] += 1
    assert holds(found, places).tolist() == [n != count // 2 for n in range(count)]
    assert [decode_record(record).offset for record in found.records()] == list(range(count))


def test_nothing_holds_of_nothing() -> None:
    assert holds(scan(b"")).tolist() == []


@given(FLIPS, st.sampled_from([3, 30]), st.booleans())
def test_damage_is_found_where_the_single_check_finds_it(
    flips: list[tuple[int, int]], count: int, crc: bool
) -> None:
    data = stored_run(count, 0, crc=crc)
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


def test_half_of_a_batch_may_have_no_checksum() -> None:
    data = stored_run(20, 0) + stored_run(20, 0, crc=False)
    found = scan(data)
    assert holds(found).all()
    data[int(found.body_at[5])] ^= 1
    data[int(found.body_at[25])] ^= 1
    assert np.flatnonzero(~holds(scan(data))).tolist() == [5, 25]
