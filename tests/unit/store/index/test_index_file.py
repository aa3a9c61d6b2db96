from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kourou.store.index.index_file import IndexFile, IndexHeader, file_size
from kourou.store.open_files import OpenFiles, PooledFile
from kourou.testing.disk import SimDisk

SLOTS, ENTRIES = 7, 40
BEGIN_MS = 1_700_000_000_000


def new_file(header: IndexHeader | None = None, entries: int = ENTRIES) -> IndexFile:
    disk = SimDisk(0)
    disk.make_dirs(Path("/index"))
    file = PooledFile(Path("/index/f"), file_size(SLOTS, entries))
    return IndexFile(file, OpenFiles(disk), SLOTS, entries, header or IndexHeader())


def put(file: IndexFile, keys: list[tuple[int, int, int]]) -> None:
    columns = list(zip(*keys, strict=True))
    file.put(
        np.asarray(columns[0], np.int32),
        np.asarray(columns[1], np.int64),
        np.asarray(columns[2], np.int64),
    )


def walk(file: IndexFile, *wanted: int) -> tuple[list[int], int]:
    """What `find` gives one by one, and the steps it took."""
    steps, positions = file.find(*wanted), []
    while True:
        try:
            positions.append(next(steps))
        except StopIteration as end:
            return positions, end.value


def stored(file: IndexFile) -> tuple[object, ...]:
    return (
        file.header,
        [file.entry(number) for number in range(1, file.header.next_number)],
        [file._slot(place) for place in range(SLOTS)],
    )


def java_put(keys: list[tuple[int, int, int]], begin_ms: int) -> tuple[object, ...]:
    """What RocketMQ's putKey does, one key at a time."""
    slots = [0] * SLOTS
    entries = []
    begin, begin_position, used = begin_ms, 0, 0
    for number, (key_hash, position, at_ms) in enumerate(keys, 1):
        previous = slots[key_hash % SLOTS]
        seconds = int((at_ms - begin) / 1000)
        seconds = 0 if begin <= 0 or seconds < 0 else min(seconds, 2**31 - 1)
        entries.append((key_hash, position, seconds, previous))
        slots[key_hash % SLOTS] = number
        if number == 1:
            begin, begin_position = at_ms, position
        used += previous == 0
    last = keys[-1]
    header = IndexHeader(begin, last[2], begin_position, last[1], used, len(keys) + 1)
    return header, entries, slots


keys = st.lists(
    st.tuples(
        st.integers(0, 2**31 - 1) | st.integers(0, 20),
        st.just(0),
        st.integers(-5_000, 10_000_000),
    ),
    min_size=1,
    max_size=ENTRIES - 1,
)


def spread(drawn: list[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    return [(h, 100 + at * 50, BEGIN_MS + ms) for at, (h, _, ms) in enumerate(drawn)]


@pytest.mark.feature("F077", "F078", "F264")
@given(keys, st.lists(st.integers(1, 12), min_size=40, max_size=40), st.sampled_from([0, BEGIN_MS]))
def test_any_cut_into_batches_gives_what_rocketmq_gives_key_by_key(drawn, sizes, begin_ms):
    wanted = spread(drawn)
    file = new_file(IndexHeader(begin_ms, begin_ms, 7, 7) if begin_ms else None)
    first = 0
    for size in sizes:
        if first < len(wanted):
            put(file, wanted[first : first + size])
            first += size
    assert stored(file) == java_put(wanted, begin_ms)


@given(keys, st.integers(0, 20))
def test_find_gives_the_newest_first_and_only_what_may_be_in_time(drawn, key_hash):
    wanted = spread(drawn)
    wanted.sort(key=lambda key: key[2])  # as a log has them
    wanted = [(h, 100 + at * 50, ms) for at, (h, _, ms) in enumerate(wanted)]
    file = new_file()
    put(file, wanted)
    begin_ms, end_ms = wanted[len(wanted) // 3][2], wanted[-1][2] - 1_000
    found, _ = walk(file, key_hash, begin_ms, end_ms, 10_000)
    exact = [p for h, p, ms in reversed(wanted) if h == key_hash and begin_ms <= ms <= end_ms]
    loose = [
        p for h, p, ms in reversed(wanted) if h == key_hash and begin_ms - 999 <= ms <= end_ms + 999
    ]
    assert found == [p for p in loose if p in found]
    assert set(exact) <= set(found)


def test_a_walk_is_bounded_and_survives_a_damaged_chain():
    file = new_file()
    put(file, [(7 * n, 100 * n, BEGIN_MS) for n in range(1, 30)])
    assert walk(file, 7, 0, 2**62, 5) == ([], 5)
    at = file._entries_at + 20 * 20 + 16
    for previous in (20, 25, -1, 0):
        file._pool.write(file.file, previous.to_bytes(4, "big", signed=True), at)
        assert walk(file, 7, 0, 2**62, 99)[0] == []


@given(keys, st.integers(0, 2_500))
def test_a_cut_file_is_as_if_the_rest_had_never_been(drawn, position):
    wanted = spread(drawn)
    kept = [key for key in wanted if key[1] < position] or wanted[:1]
    position = max(position, 101)
    file, shorter = new_file(), new_file()
    put(file, wanted)
    put(shorter, kept)
    times = {key[1]: key[2] for key in wanted}
    if len(kept) < len(wanted):
        file.cut(position, times.__getitem__)
    assert stored(file) == stored(shorter)


def test_a_new_file_begins_where_the_one_before_ended():
    assert IndexHeader(1, 2, 3, 4, 5, 6).successor() == IndexHeader(2, 2, 4, 4, 0, 1)
