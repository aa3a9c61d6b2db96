"""The compiled record kernel and the one in Python give the same bytes and refuse alike."""

from __future__ import annotations

import struct
from types import ModuleType

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kourou.errors import ConfigError
from kourou.model.limits import BODY_SIZE_BYTES_MAX
from kourou.protocol import kernel, kernel_python
from kourou.protocol.hashing import index_hash, java_hash
from kourou.protocol.kernel_python import BAD, BODY, FIELDS, WHOLE
from kourou.protocol.properties import find_property
from kourou.protocol.record import check_record, encode_draft, stamp
from kourou.protocol.record_layout import encode_host, masked_crc

HOSTS = [encode_host(("10.0.0.1", 10911)), encode_host(("fe80::1", 10911))]

KERNELS = [kernel_python]
if kernel.NAME == "compiled":
    KERNELS.append(kernel.load("compiled"))


both = pytest.mark.parametrize("made", KERNELS, ids=lambda one: one.__name__.rpartition(".")[2])


def numbers(*values: int) -> np.ndarray:
    return np.asarray(values, np.int64)


def sizes_of(drafts: list[bytes]) -> np.ndarray:
    return numbers(*map(len, drafts))


LABELS = st.sampled_from(
    [
        b"UNIQ_KEY\x01%032X" % 7,
        b"UNIQ_KEY\x01short",
        b"UNIQ_KEY\x01",
        b"TAGS\x01paid",
        b"TAGS\x01",
        "TAGS\x01主题".encode(),
        b"TAGS\x01\xff",
        b"XTAGS\x01x",
        b"TAGSX",
        b"KEYS\x01k1  k2 k1",
        b"KEYS\x01 ",
        "KEYS\x01schl\u00fcssel".encode(),
        b"DELAY\x013",
        b"TRAN_MSG\x01true",
        b"CLUSTER\x01c",
        b"noise",
        b"",
    ]
)

DRAFTS = st.builds(
    lambda topic, queue_id, body, labels, host, wide, crc, flag: encode_draft(
        topic=topic,
        queue_id=queue_id,
        body=body,
        properties=b"\x02".join(labels),
        flag=flag,
        born_timestamp=1_700_000_000_000,
        born_host=host,
        store_host_v6=wide,
        with_crc=crc,
    ),
    st.sampled_from([b"T", b"orders", "主题".encode(), b"x" * 127]),
    st.integers(-2, 9),
    st.binary(max_size=200),
    st.lists(LABELS, max_size=5),
    st.sampled_from(HOSTS),
    st.booleans(),
    st.booleans(),
    st.integers(-(2**31), 2**31 - 1),
)


def outcome(made: ModuleType, name: str, *arguments: object) -> object:
    """What a function gives, as bytes and numbers; what `project` leaves to Python is Python's."""
    found = getattr(made, name)(*arguments)
    if name == "project" and found is None:
        found = kernel_python.project(*arguments)
    if not isinstance(found, tuple):
        return bytes(found) if isinstance(found, bytearray) else found
    return tuple(bytes(one) if isinstance(one, bytearray) else one for one in found)


def same(name: str, *arguments: object) -> object:
    """What all kernels give, which must be one thing."""
    found = [outcome(made, name, *arguments) for made in KERNELS]
    assert all(one == found[0] for one in found), name
    return found[0]


@given(st.lists(DRAFTS, min_size=1, max_size=12), st.sampled_from(HOSTS), st.data())
def test_a_batch_from_drafts_to_queue_units(
    drafts: list[bytes], host: bytes, data: st.DataObject
) -> None:
    blob = b"".join(drafts)
    sizes = sizes_of(drafts)
    table, next_at = same("scan", blob)
    assert next_at == len(blob)
    starts = np.cumsum(sizes) - sizes
    assert same("read", blob, starts, sizes) == (table, -1)
    checked = [made.check_drafts(blob, sizes, BODY_SIZE_BYTES_MAX) for made in KERNELS]
    assert len({(problem, index if problem else 0) for *_, problem, index in checked}) == 1
    if not checked[0][2]:
        assert same("check_drafts", blob, sizes, BODY_SIZE_BYTES_MAX)[0] == table
    offsets = numbers(*(data.draw(st.integers(0, 2**62)) for _ in drafts))
    positions = starts + 4096
    stamped = []
    for made in KERNELS:
        copy = bytearray(blob)
        bad = made.stamp(copy, sizes, offsets, positions, 1_800_000_000_000, host)
        stamped.append((bad, bytes(copy)))
    assert len(set(stamped)) == 1
    bad, records = stamped[0]
    if bad >= 0:
        assert records == blob, "a batch that is refused is not touched"
        return
    one_by_one = bytearray(blob)
    for start, offset, position in zip(starts, offsets, positions, strict=True):
        stamp(
            one_by_one,
            int(start),
            queue_offset=int(offset),
            position=int(position),
            store_timestamp=1_800_000_000_000,
            store_host=host,
        )
    assert records == bytes(one_by_one)
    good = same("verify", records, starts, sizes, positions)
    assert BAD not in good
    table, _ = same("scan", records)
    codes, hashes, rows = same("project", records, table)
    expect_projection(records, table, codes, hashes, rows)
    same("queue_units", table, codes, None)
    topics = numbers(*(data.draw(st.integers(0, 2)) for _ in drafts))
    same("queue_units", table, codes, topics)


def expect_projection(
    records: bytes, table: bytes, codes: bytes, hashes: bytes, rows: bytes
) -> None:
    columns = np.frombuffer(table, np.int64).reshape(len(FIELDS), -1)
    own = dict(zip(FIELDS, columns, strict=True))
    wanted_codes, wanted_keys = [], []
    for row in range(columns.shape[1]):
        end = int(own["start"][row] + own["size"][row])
        properties = records[int(own["topic_end"][row]) + 2 : end]
        topic = records[int(own["body_end"][row]) + 1 : int(own["topic_end"][row])].decode()
        tag = find_property(properties, b"TAGS")
        wanted_codes.append(0 if tag is None else java_hash(tag.decode("utf-8", "replace")))
        unique = find_property(properties, b"UNIQ_KEY")
        keys = [] if unique is None else [unique]
        keys += [key for key in (find_property(properties, b"KEYS") or b"").split(b" ") if key]
        texts = [f"{topic}#{key.decode('utf-8', 'replace')}" for key in keys]
        wanted_keys += [(index_hash(text), row) for text in texts]
    assert np.frombuffer(codes, np.int64).tolist() == wanted_codes
    found = np.frombuffer(hashes, np.int32).tolist(), np.frombuffer(rows, np.int64).tolist()
    assert list(zip(*found, strict=True)) == wanted_keys


@given(
    st.lists(DRAFTS, min_size=1, max_size=4),
    st.lists(st.tuples(st.integers(0, 10**6), st.integers(1, 255)), max_size=4),
    st.integers(0, 400),
    st.lists(st.integers(-5, 700), min_size=1, max_size=5),
)
def test_damaged_and_cut_bytes_are_refused_alike(
    drafts: list[bytes],
    flips: list[tuple[int, int]],
    cut: int,
    claims: list[int],
) -> None:
    data = bytearray(b"".join(drafts))
    for at, value in flips:
        data[at % len(data)] ^= value
    blob = bytes(data[: max(1, len(data) - cut)])
    table, _ = same("scan", blob)
    sizes = sizes_of(drafts)
    starts = np.cumsum(sizes) - sizes
    reads = [made.read(blob, starts, sizes) for made in KERNELS]
    assert len({bad for _, bad in reads}) == 1
    checks = [made.check_drafts(blob, sizes, 150) for made in KERNELS]
    assert len({(problem, bad if problem else 0) for *_, problem, bad in checks}) == 1
    same("verify", blob, starts, sizes, None)
    same("verify", blob, numbers(*claims), numbers(*reversed(claims)), None)
    same("project", blob, table)
    stamps = []
    for made in KERNELS:
        copy = bytearray(blob)
        stamps.append((made.stamp(copy, sizes, starts, starts, 1, HOSTS[0]), bytes(copy)))
    assert len(set(stamps)) == 1


@both
def test_every_flipped_bit_and_every_cut_of_a_record_is_noticed(made: ModuleType) -> None:
    draft = encode_draft(
        topic=b"orders",
        queue_id=1,
        body=b"body of a message",
        properties=b"UNIQ_KEY\x01u\x02TAGS\x01t",
        born_timestamp=1,
        born_host=HOSTS[0],
    )
    record = bytearray(draft)
    assert made.stamp(record, sizes_of([draft]), numbers(5), numbers(0), 9, HOSTS[0]) == -1
    size, at = sizes_of([draft]), numbers(0)
    assert bytes(made.verify(record, at, size, numbers(0))) == bytes([WHOLE])
    for bit in range(len(record) * 8):
        record[bit // 8] ^= 1 << bit % 8
        assert bytes(made.verify(record, at, size, numbers(0))) == bytes([BAD]), bit
        record[bit // 8] ^= 1 << bit % 8
    for length in range(len(record)):
        assert bytes(made.verify(record[:length], at, numbers(length))) == bytes([BAD])
        assert made.scan(record[:length]) == (bytearray(), 0)


@both
def test_a_record_of_another_queue_topic_or_offset_is_not_the_wanted_one(made: ModuleType) -> None:
    draft = encode_draft(
        topic=b"orders", queue_id=3, body=b"b", properties=b"", born_timestamp=1, born_host=HOSTS[0]
    )
    record = bytearray(draft)
    made.stamp(record, sizes_of([draft]), numbers(5), numbers(70), 9, HOSTS[0])
    at, size = numbers(0), sizes_of([draft])

    def wanted(topic: bytes, queue_id: int, offset: int, position: int = 70) -> int:
        return made.verify(record, at, size, numbers(position), topic, queue_id, numbers(offset))[0]

    assert wanted(b"orders", 3, 5) == WHOLE
    assert wanted(b"order", 3, 5) == wanted(b"orderz", 3, 5) == BAD
    assert wanted(b"orders", 4, 5) == wanted(b"orders", 3, 6) == BAD
    assert wanted(b"orders", 3, 5, 71) == BAD


@both
def test_a_record_with_a_checksum_of_its_body_alone_is_told_apart(made: ModuleType) -> None:
    draft = encode_draft(
        topic=b"T",
        queue_id=0,
        body=b"b",
        properties=b"TAGS\x01t",
        born_timestamp=1,
        born_host=HOSTS[0],
        with_crc=False,
    )
    assert bytes(made.verify(draft, numbers(0), sizes_of([draft]))) == bytes([BODY])
    check_record(draft, 0, len(draft), None)


@both
@pytest.mark.parametrize("size", [*range(150), 255, 1_000, 4_096, 70_001])
def test_the_body_checksum_is_that_of_zlib(made: ModuleType, size: int) -> None:
    body = bytes(range(256)) * (size // 256 + 1)
    draft = encode_draft(
        topic=b"T",
        queue_id=0,
        body=body[:size],
        properties=b"",
        born_timestamp=1,
        born_host=HOSTS[0],
    )
    assert struct.unpack_from(">I", draft, 8)[0] == masked_crc(body[:size])
    assert made.check_drafts(draft, sizes_of([draft]), BODY_SIZE_BYTES_MAX)[2] == 0


@both
def test_nothing_has_no_columns_and_no_units(made: ModuleType) -> None:
    none = np.empty((len(FIELDS), 0), np.int64)
    assert made.scan(b"") == (bytearray(), 0)
    assert made.project(b"", none) == (bytearray(), bytearray(), bytearray())
    assert made.queue_units(none, numbers()) == (bytearray(), bytearray(), bytearray(), [], 0)
    assert made.verify(b"", numbers(), numbers()) == bytearray()


@both
def test_columns_of_different_lengths_are_refused(made: ModuleType) -> None:
    with pytest.raises(ValueError):
        made.verify(b"", numbers(0, 0), numbers(0), None)


def test_an_unknown_choice_of_a_kernel_is_refused() -> None:
    with pytest.raises(ConfigError, match="KOUROU_KERNEL=rust is not one of"):
        kernel.load("rust")
    assert kernel.load("python") is kernel_python
