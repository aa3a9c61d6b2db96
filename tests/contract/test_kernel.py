"""The compiled record kernel and the one in Python give the same bytes and refuse alike."""

from __future__ import annotations

import json
import struct
from types import ModuleType

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kourou.access.signature import signed_text
from kourou.errors import ConfigError, MessageIllegal
from kourou.model.limits import BODY_SIZE_BYTES_MAX, PROPERTIES_SIZE_BYTES_MAX, SEGMENT_TAIL_BYTES
from kourou.model.message import SysFlag
from kourou.protocol import kernel, kernel_python
from kourou.protocol.kernel_python import (
    BAD,
    BODY,
    FIELDS,
    FILLER_SIZE,
    LONG_PROPERTIES,
    NARROW,
    NO_SPACE,
    OTHER_QUEUE,
    OTHER_TOPIC,
    TOO_LONG,
    TOO_MANY,
    TOO_MANY_BYTES,
    WHOLE,
)
from kourou.protocol.record.hashes import index_hash, java_hash
from kourou.protocol.record.layout import (
    CUT,
    LENGTHS,
    STORE_V6,
    encode_batch,
    encode_host,
    masked_crc,
    parts_of,
    split_batch,
)
from kourou.protocol.record.message_record import check_record, encode_draft, stamp
from kourou.protocol.record.properties import decode_properties, encode_properties, find_property

HOSTS = [encode_host(("10.0.0.1", 10911)), encode_host(("fe80::1", 10911))]

KERNELS = [kernel_python]
if kernel.load("auto") is not kernel_python:
    KERNELS.append(kernel.load("compiled"))

needs_compiled = pytest.mark.skipif(len(KERNELS) < 2, reason="needs a C compiler")

both = pytest.mark.parametrize("made", KERNELS, ids=lambda one: one.__name__.rpartition(".")[2])


def numbers(*values: int) -> np.ndarray:
    return np.asarray(values, np.int64)


def sizes_of(drafts: list[bytes]) -> np.ndarray:
    return numbers(*map(len, drafts))


def order(
    properties: bytes, body: bytes = b"body", host: bytes = HOSTS[0], *, with_crc: bool = True
) -> bytes:
    """A draft for topic orders with these stored properties."""
    return encode_draft(
        topic=b"orders",
        queue_id=1,
        body=body,
        properties=properties,
        born_timestamp=1,
        born_host=host,
        with_crc=with_crc,
    )


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


def stamped(made: ModuleType, record: bytearray, *, offset: int, position: int) -> None:
    """Give one draft its place."""
    size = numbers(len(record))
    *_, problem, _ = made.append(
        record, size, None, numbers(offset), position, 2**62, 2**30, 9, HOSTS[0]
    )
    assert problem == 0


def outcome(made: ModuleType, name: str, *arguments: object) -> object:
    """What a function gives, as bytes and numbers; what `project` leaves to Python is Python's."""
    found = getattr(made, name)(*arguments)
    if name in ("project", "edit", "move") and found is None:
        found = getattr(kernel_python, name)(*arguments)
    if not isinstance(found, tuple):
        return bytes(found) if isinstance(found, bytearray) else found
    return tuple(bytes(one) if isinstance(one, bytearray) else one for one in found)


def same(name: str, *arguments: object) -> object:
    """What all kernels give, which must be one thing."""
    found = [outcome(made, name, *arguments) for made in KERNELS]
    assert all(one == found[0] for one in found), name
    return found[0]


@pytest.mark.feature("F065", "F066", "F067")
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
    firsts = [data.draw(st.integers(0, 2**62)) for _ in range(3)]
    target_of = [data.draw(st.integers(0, 2)) for _ in drafts]
    end = data.draw(st.integers(0, 2**40))
    segment = data.draw(st.sampled_from([600, 2_000, 2**30]))
    limit = data.draw(st.sampled_from([2**62, end + segment]))
    appends = []
    for made in KERNELS:
        copy, ends = bytearray(blob), numbers(*firsts)
        found = made.append(
            copy, sizes, numbers(*target_of), ends, end, limit, segment, 1_800_000_000_000, host
        )
        appends.append((bytes(found[0]), *found[1:], bytes(copy), ends.tolist()))
    assert all(one == appends[0] for one in appends)
    stored, runs, blanks, behind, problem, bad, records, ends = appends[0]
    if problem:
        assert (records, ends) == (blob, firsts), "a batch that is refused is not touched"
        assert problem in (TOO_LONG, NO_SPACE, NARROW)
        if problem == TOO_LONG:
            assert sizes[bad] > segment - SEGMENT_TAIL_BYTES
        if problem == NARROW:
            assert len(host) == 20
            assert not drafts[bad][39] & 32
        return
    assert behind <= limit
    positions = expect_places(sizes.tolist(), runs, blanks, (end, behind), segment)
    one_by_one = bytearray(blob)
    for start, target, position in zip(starts.tolist(), target_of, positions.tolist(), strict=True):
        stamp(
            one_by_one,
            start,
            queue_offset=firsts[target],
            position=position,
            store_timestamp=1_800_000_000_000,
            store_host=host,
        )
        firsts[target] += 1
    assert records == bytes(one_by_one)
    assert ends == firsts
    assert same("read", records, starts, sizes) == (stored, -1)
    good = same("verify", records, starts, sizes, positions)
    assert BAD not in good
    table, _ = same("scan", records)
    codes, *keys = same("project", records, table)
    expect_projection(records, table, codes, *keys)
    same("queue_units", table, codes, None)
    topics = numbers(*(data.draw(st.integers(0, 2)) for _ in drafts))
    same("queue_units", table, codes, topics)


def expect_places(
    sizes: list[int],
    runs: list[tuple[int, int, int]],
    blanks: list[tuple[int, int]],
    log: tuple[int, int],
    segment: int,
) -> np.ndarray:
    """The positions that these runs give, if they and the fillers cover the log without a gap."""
    positions: list[int] = []
    fillers = dict(blanks)
    at = log[0]
    for first, count, position in runs:
        if at in fillers:
            size = fillers.pop(at)
            assert size < sizes[first] + SEGMENT_TAIL_BYTES, "the record would have had room"
            at += size
            assert at % segment == 0
        assert (first, position) == (len(positions), at)
        for size in sizes[first : first + count]:
            positions.append(at)
            at += size
            assert (at - 1) // segment == position // segment
            assert 0 < at % segment <= segment - SEGMENT_TAIL_BYTES
    assert (at, fillers) == (log[1], {})
    return numbers(*positions)


def expect_projection(
    records: bytes, table: bytes, codes: bytes, hashes: bytes, positions: bytes, store_ms: bytes
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
        if own["sys_flag"][row] & SysFlag.TRANSACTION_MASK == SysFlag.TRANSACTION_ROLLBACK:
            continue
        texts = [f"{topic}#{key.decode('utf-8', 'replace')}" for key in keys]
        place = int(own["position"][row]), int(own["store_timestamp"][row])
        wanted_keys += [(index_hash(text), *place) for text in texts]
    assert np.frombuffer(codes, np.int64).tolist() == wanted_codes
    found = (
        np.frombuffer(hashes, np.int32).tolist(),
        np.frombuffer(positions, np.int64).tolist(),
        np.frombuffer(store_ms, np.int64).tolist(),
    )
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
    appends = []
    for made in KERNELS:
        copy = bytearray(blob)
        found = made.append(copy, sizes, None, numbers(0), 0, 2**62, 2**30, 1, HOSTS[0])
        appends.append((bytes(found[0]), *found[1:], bytes(copy)))
    assert all(one == appends[0] for one in appends)
    assert same("topics", blob, table) is not None


@given(st.lists(DRAFTS, min_size=1, max_size=8), st.data())
def test_records_have_the_topics_and_queues_of_their_lanes(
    drafts: list[bytes], data: st.DataObject
) -> None:
    blob = b"".join(drafts)
    table, _ = same("scan", blob)
    own = dict(zip(FIELDS, np.frombuffer(table, np.int64).reshape(len(FIELDS), -1), strict=True))
    topics = [
        blob[body_end + 1 : topic_end]
        for body_end, topic_end in zip(
            own["body_end"].tolist(), own["topic_end"].tolist(), strict=True
        )
    ]
    found, topic_of = same("topics", blob, table)
    numbers_of = (
        [0] * len(drafts) if topic_of is None else np.frombuffer(topic_of, np.int64).tolist()
    )
    assert [found[number] for number in numbers_of] == topics
    assert found == list(dict.fromkeys(topics))
    assert (topic_of is None) == (len(found) == 1)
    pairs = list(zip(topics, own["queue_id"].tolist(), strict=True))
    targets = list(dict.fromkeys(pairs))
    names, queues = [topic for topic, _ in targets], numbers(*(queue for _, queue in targets))
    target_of = numbers(*map(targets.index, pairs))
    assert same("check_targets", blob, table, names, queues, target_of) == 0
    assert same("check_targets", blob, table, names, queues + 1, target_of) == OTHER_QUEUE
    row = data.draw(st.integers(0, len(drafts) - 1))
    names[target_of[row]] = data.draw(
        st.sampled_from([b"", b"other", names[target_of[row]] + b"x"])
    )
    assert same("check_targets", blob, table, names, queues, target_of) == OTHER_TOPIC
    if len(targets) == 1:
        assert same("check_targets", blob, table, topics[:1], queues) == 0
    for made in KERNELS:
        with pytest.raises(ValueError, match="a record has none of the"):
            made.check_targets(blob, table, names, queues, target_of + len(targets))


ITEMS = st.lists(
    st.tuples(
        st.integers(-(2**31), 2**31 - 1),
        st.binary(max_size=90),
        st.lists(LABELS, max_size=3).map(b"\x02".join),
    ),
    max_size=9,
)


@given(
    ITEMS,
    st.sampled_from([b"CLUSTER\x01c", b"WAIT\x01true\x02CLUSTER\x01c\x02", b"x" * 32_766]),
    st.sampled_from(HOSTS),
    st.lists(st.tuples(st.integers(0, 10**6), st.integers(1, 255)), max_size=2),
    st.integers(0, 30),
    st.sampled_from([(3, 2**20), (100, 500), (100, 2**20)]),
)
def test_a_batch_body_becomes_the_drafts_of_its_messages(
    items: list[tuple[int, bytes, bytes]],
    shared: bytes,
    host: bytes,
    flips: list[tuple[int, int]],
    cut: int,
    most: tuple[int, int],
) -> None:
    body = bytearray(encode_batch(items))
    for at, value in flips if body else ():
        body[at % len(body)] ^= value
    encoded = bytes(body[: len(body) - cut] if cut > 5 else body)
    fields = (shared, b"orders", 3, 8, 1_700_000_000_000, host, 2)
    records, sizes, moves, problem, number = same("batch", encoded, *fields, *most)
    wanted: list[bytes] = []
    messages = split_batch(encoded)
    expected = 0
    while True:
        try:
            flag, item, own = next(messages)
        except StopIteration:
            break
        except MessageIllegal as error:
            expected = CUT if "cut off" in error.message else LENGTHS
            break
        joined = own + (b"\x02" if own and own[-1] != 2 else b"") + shared
        if len(wanted) == most[0] or len(joined) > PROPERTIES_SIZE_BYTES_MAX:
            expected = TOO_MANY if len(wanted) == most[0] else LONG_PROPERTIES
            break
        wanted.append(
            encode_draft(
                topic=b"orders",
                queue_id=3,
                body=item,
                properties=joined,
                flag=flag,
                sys_flag=8,
                born_timestamp=1_700_000_000_000,
                born_host=host,
                reconsume_times=2,
            )
        )
        if sum(map(len, wanted)) > most[1]:
            wanted.pop()
            expected = TOO_MANY_BYTES
            break
    assert (problem, number) == (expected, len(wanted))
    if problem:
        return
    assert records == b"".join(wanted)
    assert np.frombuffer(sizes, np.int64).tolist() == [*map(len, wanted)]
    assert moves == bytes(
        b"DELAY\x01" in draft[draft.index(b"\x06orders") :] or b"TRAN_MSG\x01" in draft
        for draft in wanted
    )


CHANGES = st.sampled_from(
    [
        (),
        ((b"CLUSTER", b"other"), (b"DELAY", None)),
        ((b"REAL_TOPIC", b"orders"), (b"REAL_QID", b"3"), (b"TAGS", None), (b"KEYS", None)),
        ((b"REAL_TOPIC", "主题".encode()),),
        tuple((b"name%d" % number, b"v") for number in range(9)),
    ]
)


@given(st.lists(LABELS, max_size=6), st.sampled_from([b"", b"\x02", b"\x02\x02"]), CHANGES)
def test_properties_are_edited_as_a_mapping_is(
    labels: list[bytes], end: bytes, changes: tuple[tuple[bytes, bytes | None], ...]
) -> None:
    raw = b"\x02".join(labels) + end
    wanted = decode_properties(raw)
    for name, value in changes:
        if value is None:
            wanted.pop(name.decode(), None)
        else:
            wanted[name.decode()] = value.decode()
    assert same("edit", raw, changes) == encode_properties(wanted)


@needs_compiled
def test_usual_properties_are_edited_without_python() -> None:
    raw = b"UNIQ_KEY\x01u\x02TAGS\x01t\x02WAIT\x01true\x02__CRC32#\x010123456789\x02"
    changes = ((b"WAIT", None), (b"CLUSTER", b"c"))
    assert KERNELS[1].edit(raw, changes) == b"UNIQ_KEY\x01u\x02TAGS\x01t\x02CLUSTER\x01c"


@given(DRAFTS, st.sampled_from(HOSTS), CHANGES, st.sampled_from([-1, 0, 5]))
def test_a_moved_record_is_a_draft_of_its_fields(
    draft: bytes, host: bytes, changes: tuple[tuple[bytes, bytes | None], ...], times: int
) -> None:
    record = bytearray(draft)
    parts = parts_of(draft, 0, len(draft))
    if len(host) == 8 or parts.sys_flag & STORE_V6:
        place = {"queue_offset": 3, "position": 999, "store_timestamp": 5, "store_host": host}
        stamp(record, 0, **place)
    wanted = encode_draft(
        topic=b"other",
        queue_id=7,
        body=draft[parts.body_at : parts.body_end],
        properties=kernel.edit(draft[parts.props_at :], changes),
        flag=parts.flag,
        sys_flag=(parts.sys_flag & ~4) | 8,
        born_timestamp=parts.born_timestamp,
        born_host=parts.born_host,
        store_host_v6=bool(parts.sys_flag & STORE_V6),
        reconsume_times=parts.reconsume_times if times < 0 else times,
        prepared_transaction_offset=2**40,
    )
    arguments = (b"other", 7, changes, 4, 8, times, 2**40)
    assert same("move", draft, *arguments) == wanted
    assert same("move", bytes(record), *arguments) == wanted


@both
def test_only_whole_records_are_moved(made: ModuleType) -> None:
    draft = order(b"a\x01b")
    for wrong in (*(draft[:size] for size in range(len(draft))), draft + b"x"):
        with pytest.raises(ValueError, match="no record"):
            made.move(wrong, b"other", 0, (), 0, 0, -1, 0)
    for topic in (b"", b"t" * 128):
        with pytest.raises(ValueError, match="1 to 127 bytes"):
            made.move(draft, topic, 0, (), 0, 0, -1, 0)
    with pytest.raises(OverflowError):
        made.move(draft, b"other", 2**31, (), 0, 0, -1, 0)


def test_a_record_whose_properties_become_too_long_is_not_moved() -> None:
    draft = order(b"a\x01" + b"b" * 32_700)
    for size, there in ((40, True), (70, False)):
        changes = ((b"n", b"v" * size),)
        assert (same("move", draft, b"other", 0, changes, 0, 0, -1, 0) is not None) == there


@needs_compiled
def test_usual_records_are_moved_without_python() -> None:
    assert KERNELS[1].move(order(b"a\x01b"), b"other", 0, ((b"c", b"d"),), 0, 0, -1, 0)


@given(
    st.lists(st.lists(LABELS, max_size=6).map(b"\x02".join), max_size=3),
    st.sampled_from([(), (b"TAGS",), (b"UNIQ_KEY", b"none", b"KEYS", b"", b"TAGS")]),
    st.sampled_from(HOSTS),
    st.sampled_from([b"", b"TAGS\x01in the body\x02"]),
)
def test_values_are_those_of_the_last_property_of_a_name(
    labels: list[bytes], names: tuple[bytes, ...], host: bytes, body: bytes
) -> None:
    drafts = [order(properties, body, host, with_crc=False) for properties in labels]
    found = same("values", [memoryview(draft) for draft in drafts], names)
    assert found == [
        tuple(find_property(properties, name) for name in names) for properties in labels
    ]


@given(
    st.lists(st.lists(LABELS, max_size=3).map(b"\x02".join), max_size=9),
    st.sampled_from([(), (b"TAGS",), (b"UNIQ_KEY", b"none", b"KEYS", b"", b"TAGS")]),
    st.sampled_from(HOSTS),
    st.sampled_from([0, 5, -(2**63), 2**62]),
)
def test_records_with_the_same_values_are_one_group(
    labels: list[bytes], names: tuple[bytes, ...], host: bytes, base: int
) -> None:
    drafts = [order(properties, b"TAGS\x01in the body\x02", host) for properties in labels]
    sizes = [len(draft) for draft in drafts]
    starts = [base + sum(sizes[:row]) for row in range(len(sizes))]
    blob = b"".join(drafts)
    found, group_of = same("value_groups", blob, numbers(*starts), numbers(*sizes), names, base)
    wanted = kernel_python.values(drafts, names)
    assert [found[group] for group in np.frombuffer(group_of, np.int64)] == wanted
    assert found == list(dict.fromkeys(wanted))


@both
def test_a_group_has_whole_records_only(made: ModuleType) -> None:
    draft = order(b"a\x01b")
    size = len(draft)
    wrong = [(1, size), (-1, size), (0, size - 1), (0, size + 1), (0, -1), (2**63 - 1, size)]
    for start, claimed in wrong:
        with pytest.raises(ValueError, match="no record"):
            made.value_groups(draft, numbers(0, start), numbers(size, claimed), (b"a",))
    with pytest.raises(TypeError):
        made.value_groups(draft, numbers(0), numbers(size), ("a",))
    many = [order(b"a\x01%d" % number) for number in range(1_000)]
    sizes = sizes_of(many)
    starts = np.cumsum(sizes) - sizes
    found, group_of = made.value_groups(b"".join(many), starts, sizes, (b"a",))
    assert found == [(b"%d" % number,) for number in range(1_000)]
    assert np.frombuffer(group_of, np.int64).tolist() == list(range(1_000))


@both
def test_records_are_gathered_from_their_places(made: ModuleType) -> None:
    data = bytes(range(100))
    assert made.gather(data, numbers(), numbers()) == b""
    found = made.gather(data, numbers(57, 50, 149, 60), numbers(3, 2, 1, 0), 50)
    assert found == bytes([7, 8, 9, 0, 1, 99])
    for start, size in ((49, 1), (149, 2), (150, 1), (50, -1), (-(2**63), 1), (50, 2**63 - 1)):
        with pytest.raises(ValueError, match="not within"):
            made.gather(data, numbers(50, start), numbers(1, size), 50)


UNITS = st.tuples(
    st.one_of(st.integers(0, 900), st.integers(-(2**63), 2**63 - 1)),
    st.one_of(st.integers(91, 300), st.just(FILLER_SIZE), st.integers(-(2**31), 2**31 - 1)),
    st.one_of(st.integers(0, 3), st.integers(-(2**63), 2**63 - 1)),
)


@given(
    st.lists(UNITS, max_size=12),
    st.integers(0, 1_200),
    st.integers(0, 1_200),
    st.sampled_from([None, [], [1], [0, 2, 3]]),
    st.sampled_from([1, 3, 100]),
    st.sampled_from([1, 400, 2**30]),
)
def test_the_units_that_a_read_takes(
    units: list[tuple[int, int, int]],
    below: int,
    log_end: int,
    codes: list[int] | None,
    messages_max: int,
    bytes_max: int,
) -> None:
    raw = b"".join(struct.pack(">qiq", *unit) for unit in units)
    wanted = None if codes is None else numbers(*codes)
    count, table, fillers, end, low, high, total, adjacent = same(
        "choose", raw, below, log_end, wanted, messages_max, bytes_max
    )
    room = len(units)
    rows = np.frombuffer(table, np.int64).reshape(3, room)[:, :count].T.tolist()
    assert count <= messages_max
    assert fillers == [row for row in range(end) if units[row][1] == FILLER_SIZE]
    assert [(units[row][0], units[row][1]) for row, *_ in rows] == [
        (position, size) for _, position, size in rows
    ]
    assert total == sum(size for *_, size in rows)
    assert total <= bytes_max or count <= 1 or any(size < 0 for *_, size in rows)
    assert low == min((position for _, position, _ in rows), default=0)
    passed_over = [
        row for row in range(end) if row not in fillers and row not in [each for each, *_ in rows]
    ]
    assert all(codes is not None and units[row][2] not in codes for row in passed_over)
    if end < room:
        position, size, _ = units[end]
        assert count or below < position + size
    assert adjacent or count > 1
    assert high == 0 or count


@both
def test_a_read_ends_before_what_may_not_be_read_yet(made: ModuleType) -> None:
    units = [(0, 100, 7), (100, 100, 8), (200, 100, 7)]
    raw = b"".join(struct.pack(">qiq", *unit) for unit in units)

    def taken(below: int, log_end: int, codes: list[int] | None = None) -> tuple[int, int, bool]:
        found = made.choose(
            raw, below, log_end, None if codes is None else numbers(*codes), 10, 2**20
        )
        return found[0], found[3], found[7]

    assert taken(300, 300) == (3, 3, True)
    assert taken(299, 300) == (2, 2, True)
    assert taken(299, 299) == (3, 3, True), "a unit that points beyond the log is wrong"
    assert taken(300, 300, [7]) == (2, 3, False)
    assert taken(300, 300, []) == (0, 3, True)


@both
def test_values_are_taken_of_whole_records_only(made: ModuleType) -> None:
    draft = order(b"a\x01b")
    assert made.values([draft], (b"a",)) == [(b"b",)]
    for wrong in (b"", draft[:-1], draft + b"x", bytes(len(draft))):
        with pytest.raises(ValueError, match="no record"):
            made.values([draft, wrong], (b"a",))
    many = tuple(b"%d" % number for number in range(1_000))
    assert made.values([draft], (*many, b"a")) == [(*[None] * 1_000, b"b")]
    with pytest.raises(TypeError):
        made.values([draft], ("a",))


DRAFTED = st.tuples(
    st.binary(max_size=40),
    st.sampled_from(
        [b"", b"a\x01b", b"a\x01b\x02", b"a\x01b\x02__CRC32#\x010123456789\x02", b"x" * 32_767]
    )
    | st.just(b"y" * 32_768),
    st.integers(-(2**31), 2**31 - 1),
    st.sampled_from([0, 1, 48, 0x301]),
)
"""Body, properties, flag and system flag of a draft."""


@given(st.lists(DRAFTED, max_size=6), st.sampled_from(HOSTS), st.booleans())
def test_the_drafts_of_several_messages_are_those_of_each(
    messages: list[tuple[bytes, bytes, int, int]], host: bytes, v6: bool
) -> None:
    columns = list(map(list, zip(*messages, strict=True))) or [[], [], [], []]
    found = same("drafts", b"orders", 3, *columns, 7, host, v6)
    each = [kernel.draft(b"orders", 3, *one, 7, host, v6, 0, 0, True) for one in messages]
    if None in each:
        assert found is None
    else:
        assert found == (b"".join(each), list(map(len, each)))


@both
def test_drafts_need_a_column_each(made: ModuleType) -> None:
    head, tail = (b"T", 1), (5, HOSTS[0], False)
    for at in range(4):
        columns = [[b"a", b"b"], [b"", b""], [0, 0], [0, 0]]
        columns[at].pop()
        with pytest.raises(ValueError, match="each body"):
            made.drafts(*head, *columns, *tail)
    with pytest.raises(ValueError, match="topic"):
        made.drafts(b"x" * 128, 1, [b"a"], [b""], [0], [0], *tail)
    with pytest.raises(OverflowError):
        made.drafts(*head, [b"a"], [b""], [2**31], [0], *tail)


@both
def test_a_number_that_does_not_fit_into_a_draft_overflows(made: ModuleType) -> None:
    fields = [b"T", 1, b"", b"", 0, 0, 5, HOSTS[0], False, 0, 0, True]
    for place, value in ((1, 2**31), (4, -(2**31) - 1), (6, 2**63), (9, 2**31), (10, 2**63)):
        with pytest.raises(OverflowError):
            made.draft(*[value if at == place else one for at, one in enumerate(fields)])
    assert made.draft(*fields[:3], bytes(PROPERTIES_SIZE_BYTES_MAX + 1), *fields[4:]) is None


@both
def test_every_flipped_bit_and_every_cut_of_a_record_is_noticed(made: ModuleType) -> None:
    draft = order(b"UNIQ_KEY\x01u\x02TAGS\x01t", b"body of a message")
    record = bytearray(draft)
    stamped(made, record, offset=5, position=0)
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
    stamped(made, record, offset=5, position=70)
    at, size = numbers(0), sizes_of([draft])

    def wanted(topic: bytes, queue_id: int, offset: int, position: int = 70) -> int:
        return made.verify(record, at, size, numbers(position), topic, queue_id, numbers(offset))[0]

    assert wanted(b"orders", 3, 5) == WHOLE
    assert wanted(b"order", 3, 5) == wanted(b"orderz", 3, 5) == BAD
    assert wanted(b"orders", 4, 5) == wanted(b"orders", 3, 6) == BAD
    assert wanted(b"orders", 3, 5, 71) == BAD
    for base, first in ((70, 5), (-9, -7), (2**63 - 1, 2**63 - 1), (-(2**63), 1 - 2**62)):
        places = numbers(base), size, numbers(70), b"orders", 3, numbers(5 - first)
        assert made.verify(record, *places, base, first)[0] == WHOLE
        assert made.verify(record, *places, base, first - 1)[0] == BAD
    assert made.verify(record, at, size, numbers(70), None, 0, None, 1)[0] == BAD
    assert made.verify(record, at, size, numbers(70), None, 0, None, -1)[0] == BAD


@both
def test_a_record_with_a_checksum_of_its_body_alone_is_recognized(made: ModuleType) -> None:
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


@given(
    st.lists(st.tuples(st.integers(0, 60) | st.integers(0, 2**31 - 1), st.integers(-9, 9_999_990))),
    st.integers(1, 40),
    st.sampled_from([0, 1, 2, 900]),
    st.sampled_from([0, 1_700_000_000_000]),
)
def test_entries_and_slots_of_the_key_index(
    keys: list[tuple[int, int]], slot_count: int, before: int, begin_ms: int
) -> None:
    hashes = np.array([key_hash for key_hash, _ in keys], np.int32)
    positions = np.arange(len(keys)) * 100
    store_ms = np.array([1_700_000_000_000 + ms for _, ms in keys], np.int64)
    slots = (np.arange(slot_count, dtype=np.int32) * 7) % (before + 1)
    unchanged = slots.copy()
    number = before + 1
    entries, used = same("index_entries", hashes, positions, store_ms, slots, number, begin_ms)
    assert slots.tolist() == unchanged.tolist()
    newest = dict(enumerate(slots.tolist()))
    empty = 0
    for at, (key_hash, position, seconds, previous) in enumerate(
        struct.iter_unpack(">iqii", entries)
    ):
        assert (key_hash, position) == (hashes[at], positions[at])
        assert previous == newest[key_hash % slot_count]
        assert 0 <= seconds <= 9_999
        empty += previous == 0
        newest[key_hash % slot_count] = number + at
    assert used == empty
    for made in KERNELS:
        linked, pages = slots.copy(), np.zeros(-(-slot_count // 8), np.bool_)
        made.link_slots(hashes, number, linked, pages, 8)
        assert dict(enumerate(linked.tolist())) == newest
        assert set(np.flatnonzero(pages)) == {key_hash % slot_count // 8 for key_hash, _ in keys}


@both
def test_an_index_file_gets_no_negative_hash(made: ModuleType) -> None:
    bad, one, slots = np.array([-1], np.int32), numbers(1), np.zeros(4, np.int32)
    with pytest.raises(ValueError, match="negative"):
        made.index_entries(bad, one, one, slots, 1, 0)
    with pytest.raises(ValueError, match="negative"):
        made.link_slots(bad, 1, slots, np.zeros(1, np.bool_), 1_024)
    assert not slots.any()


@both
def test_nothing_has_no_columns_and_no_units(made: ModuleType) -> None:
    none = np.empty((len(FIELDS), 0), np.int64)
    assert made.scan(b"") == (bytearray(), 0)
    assert made.project(b"", none) == (bytearray(),) * 4
    assert made.queue_units(none, numbers()) == (bytearray(), bytearray(), [], 0)
    assert made.verify(b"", numbers(), numbers()) == bytearray()
    assert made.value_groups(b"", numbers(), numbers(), (b"a",)) == ([], bytearray())
    assert tuple(made.choose(b"", 0, 0, None, 1, 1)) == (0, bytearray(), [], 0, 0, 0, 0, True)


@both
def test_columns_of_different_lengths_are_refused(made: ModuleType) -> None:
    with pytest.raises(ValueError):
        made.verify(b"", numbers(0, 0), numbers(0), None)


# -- signed headers -------------------------------------------------------------------------------

NAMES = ("AccessKey", "Signature", "SecurityToken", "_UNIQUE_KEY_QUERY", "a", "b", "i", "A", "aa")
LETTERS = {
    "a": "pg", "b": "orders", "g": "1700000000000", "i": "KEYS\x01k1\x02TAGS\x01t\x02",
    "AccessKey": "till", "Signature": "yW+cMkT0hi5GujaUAQGk3SCwxiM=",
}  # fmt: skip


def signed_header(fields: object, *, ascii_only: bool = True, **members: object) -> bytes:
    """A JSON header as RocketMQ's clients write it."""
    usual = {"code": 310, "extFields": fields, "flag": 0, "language": "JAVA", "opaque": -7}
    usual |= {"serializeTypeCurrentRPC": "JSON", "version": 401, "remark": None, **members}
    return json.dumps(usual, separators=(",", ":"), ensure_ascii=ascii_only).encode()


@given(
    st.dictionaries(st.one_of(st.sampled_from(NAMES), st.text(max_size=3)), st.text(max_size=20)),
    st.booleans(),
)
def test_the_signed_text_of_a_header(fields: dict[str, str], ascii_only: bool) -> None:
    header = signed_header(fields, ascii_only=ascii_only)
    wanted = None
    if "AccessKey" in fields:
        access_key, signature = fields["AccessKey"], fields.get("Signature", "")
        wanted = (access_key.encode(), signature.encode(), signed_text(fields))
    assert kernel.signed_parts(header) == kernel_python.signed_parts(header) == wanted
    assert all(made.signed_parts(header) in (None, wanted) for made in KERNELS)


@needs_compiled
@pytest.mark.parametrize(
    "fields",
    [
        LETTERS,
        {"AccessKey": ""},
        {**LETTERS, "_UNIQUE_KEY_QUERY": "true", "SecurityToken": "t"},
        {**LETTERS, "i": 'a"b\\c/d\b\f\n\r\t\x00\x7f'},
        {**LETTERS, "i": "\x80\u07ff\u0800 grüße ✓\uffff"},
        {**LETTERS, "B": "x", "bb": "y", "": "z"},
        {"AccessKey": "till", **{f"n{number}": str(number) for number in range(63)}},
    ],
)
def test_a_signed_header_as_clients_write_it_is_read_in_c(fields: dict[str, str]) -> None:
    header = signed_header(fields)
    found = kernel.load("compiled").signed_parts(header)
    assert found is not None
    assert found == kernel_python.signed_parts(header)
    slashes = header.replace(b"/", b"\\/")
    assert kernel.load("compiled").signed_parts(slashes) == found, "other spellings of the same"


@needs_compiled
@pytest.mark.parametrize(
    "header",
    [
        signed_header({**LETTERS, "i": "ü"}, ascii_only=False),
        signed_header({**LETTERS, "i": "😀"}),
        signed_header({**LETTERS, "ü": "x"}),
        signed_header({**LETTERS, "f": 5}),
        signed_header({**LETTERS, "f": None}),
        signed_header({**LETTERS, "f": {}}),
        signed_header({name: text for name, text in LETTERS.items() if name != "AccessKey"}),
        signed_header({"AccessKey": "t", **{f"n{number}": "" for number in range(64)}}),
        signed_header({**LETTERS, "i": "x" * 2_048}),
        signed_header({}),
        signed_header(None),
        signed_header([]),
        signed_header(LETTERS, remark="a\\b"),
        signed_header(LETTERS, opaque=1.5),
        signed_header(LETTERS, opaque=True),
        signed_header(LETTERS, opaque=[1]),
        signed_header(LETTERS).replace(b"{", b"{ "),
        signed_header(LETTERS).replace(b":", b": "),
        signed_header(LETTERS).replace(b'"flag"', b'"extFields"'),
        signed_header(LETTERS).replace(b'"flag":0', b'"flag":00'),
        signed_header(LETTERS).replace(b'"b"', b'"a"'),
        signed_header(LETTERS).replace(b'"b"', b'"AccessKey"'),
        signed_header(LETTERS).replace(b'"b"', b'"\\u0062"'),
        signed_header(LETTERS).replace(b"\\u0001", b"\\ud800"),
        signed_header(LETTERS).replace(b"\\u0001", b"\\u00g1"),
        signed_header(LETTERS).replace(b"\\u0001", b"\\x0001"),
        signed_header(LETTERS).replace(b"\\u0001", b"\x01"),
        signed_header(LETTERS) + b" ",
        signed_header(LETTERS).replace(b'"AccessKey":"till",', b'"AccessKey":"till",,'),
        b"{}",
        b"",
    ],
    ids=lambda header: header[:20].decode(errors="replace") + str(len(header)),
)
def test_any_other_header_is_left_to_the_kernel_in_python(header: bytes) -> None:
    assert kernel.load("compiled").signed_parts(header) is None


@needs_compiled
def test_a_signed_header_that_was_cut_or_changed_is_not_misread() -> None:
    header, compiled = signed_header(LETTERS), kernel.load("compiled")
    for length in range(len(header)):
        assert compiled.signed_parts(header[:length]) is None
    for at in range(len(header)):
        for byte in (0, 31, 32, 34, 44, 48, 58, 91, 92, 93, 110, 117, 123, 125, 127, 195, 255):
            changed = header[:at] + bytes([byte]) + header[at + 1 :]
            found = compiled.signed_parts(changed)
            assert found is None or found == kernel_python.signed_parts(changed), (at, byte)


def test_an_unknown_choice_of_a_kernel_is_refused() -> None:
    with pytest.raises(ConfigError, match="KOUROU_KERNEL=rust is not one of"):
        kernel.load("rust")
    assert kernel.load("python") is kernel_python


@both
def test_a_queue_whose_offsets_end_takes_no_record(made: ModuleType) -> None:
    records = bytearray(order(b"TAGS\x01t") * 2)
    before = bytes(records)
    ends = numbers(5, 2**63 - 2)
    with pytest.raises(ValueError, match="no offsets left"):
        made.append(
            records,
            sizes_of([before[: len(before) // 2]] * 2),
            numbers(0, 0),
            ends,
            *(0, 1 << 20, 1 << 20, 7, HOSTS[0]),
        )
    assert (bytes(records), ends.tolist()) == (before, [5, 2**63 - 2])
