import time
from contextlib import suppress
from functools import partial
from itertools import islice
from pathlib import Path

import numpy as np
import pytest

from kourou.errors import ConfigError, StoreFaulted
from kourou.store.index import key_index
from kourou.store.index.index_file import IndexFile, IndexHeader, file_size
from kourou.store.index.key_index import IndexState, KeyIndex, index_file_name
from kourou.store.real_disk import RealDisk
from kourou.testing.disk import SimDisk
from kourou_rigs.store import disk_with

INDEX = Path("/s/index")
SLOTS, ENTRIES = 11, 20
BEGIN_MS = 1_700_000_000_000
SIZE = 100
new_disk = partial(disk_with, INDEX)


def index_on(disk: SimDisk, slots: int = SLOTS, entries: int = ENTRIES) -> KeyIndex:
    return KeyIndex(disk, INDEX, slot_count=slots, entry_count=entries)


def key_hash(record: int, key: int = 0) -> int:
    """Keys of a record share slots with those of others."""
    return record * 3 + key * 1_000


def keys_of(record: int) -> int:
    return record % 4


def put(index: KeyIndex, first: int, end: int) -> None:
    """Records [first, end) of 100 bytes, one a millisecond, with 0 to 3 keys each."""
    rows = [(r, k) for r in range(first, end) for k in range(keys_of(r))]
    index.put_many(
        np.asarray([key_hash(r, k) for r, k in rows], np.int32),
        np.asarray([r * SIZE for r, _ in rows], np.int64),
        np.asarray([BEGIN_MS + r for r, _ in rows], np.int64),
        start=first * SIZE,
        end=end * SIZE,
    )


def store_ms_of(position: int) -> int:
    return BEGIN_MS + position // SIZE


def find(index: KeyIndex, record: int, key: int = 0, **options: int) -> list[int]:
    wanted = {"begin_ms": 0, "end_ms": 2**62, **options}
    return list(index.find(key_hash(record, key), **wanted))


def knows(index: KeyIndex, count: int) -> bool:
    """Every key of the first `count` records is found, and none of later ones."""
    present = all(find(index, r, k) == [r * SIZE] for r in range(count) for k in range(keys_of(r)))
    absent = not any(find(index, r, k) for r in range(count, count + 50) for k in range(keys_of(r)))
    return present and absent


def of_one_key(step_ms: int = 1) -> KeyIndex:
    """Sixty records that all have the key 5, in several files."""
    index, at = index_on(new_disk()), np.arange(60, dtype=np.int64)
    hashes = np.full(60, 5, np.int32)
    index.put_many(hashes, at * SIZE, BEGIN_MS + at * step_ms, start=0, end=60 * SIZE)
    return index


def content(disk: SimDisk) -> dict[str, bytes]:
    return {path.name: disk.read(path) for path in disk.files()}


def built(count: int, disk: SimDisk | None = None, batch: int = 7) -> KeyIndex:
    index = index_on(disk or new_disk())
    for first in range(0, count, batch):
        put(index, first, min(count, first + batch))
    return index


@pytest.mark.feature("F013", "F079", "F263")
def test_every_key_leads_to_its_record_through_many_files():
    disk = new_disk()
    index = built(100, disk)
    assert knows(index, 100)
    assert index.entry_total == sum(keys_of(r) for r in range(100))
    assert index.statistics()["files"] == -(-index.entry_total // (ENTRIES - 1))
    assert len(disk.files()) == index.statistics()["files"]


@pytest.mark.feature("F263")
def test_a_span_of_time_narrows_the_search():
    index = of_one_key(step_ms=10_000)

    def span(begin: int, end: int, max_count: int = 64) -> list[int]:
        found = index.find(5, begin_ms=BEGIN_MS + begin * 10_000, end_ms=BEGIN_MS + end * 10_000)
        return [position // SIZE for position in islice(found, max_count)]

    assert span(10, 14) == [14, 13, 12, 11, 10]
    assert span(0, 59) == list(range(59, -1, -1))
    assert span(18, 21) == [21, 20, 19, 18]  # over the border of two files
    assert span(0, 59, max_count=3) == [59, 58, 57]
    assert span(60, 90) == []


def test_who_has_enough_stops_the_walk_and_nothing_further_is_read(monkeypatch):
    index = of_one_key()
    read: list[int] = []
    entry = IndexFile.entry
    monkeypatch.setattr(IndexFile, "entry", lambda file, n: read.append(n) or entry(file, n))
    found = index.find(5, begin_ms=0, end_ms=2**62)
    assert read == []
    assert list(islice(found, 3)) == [59 * SIZE, 58 * SIZE, 57 * SIZE]
    assert len(read) == 3


def test_all_files_together_are_walked_so_far_and_no_further(monkeypatch):
    index = of_one_key()
    for steps in (1, 20, 21, 25, 59, 60, 99):
        monkeypatch.setattr(key_index, "INDEX_CHAIN_STEPS_MAX", steps)
        assert len(list(index.find(5, begin_ms=0, end_ms=2**62))) == min(steps, 60)


def test_a_message_that_names_a_key_twice_is_found_once():
    """In one file, and over the border of two."""
    for before in range(ENTRIES):
        index = index_on(new_disk())
        hashes = np.asarray([5] * before + [7, 12, 7], np.int32)
        positions = np.asarray([*range(before), 100, 100, 100]) * SIZE
        index.put_many(hashes, positions, np.full(before + 3, BEGIN_MS), start=0, end=101 * SIZE)
        assert list(index.find(7, begin_ms=0, end_ms=2**62)) == [100 * SIZE]


@pytest.mark.feature("F079")
def test_files_are_named_by_the_local_time_of_their_first_record(monkeypatch):
    monkeypatch.setenv("TZ", "Asia/Shanghai")
    time.tzset()
    try:
        assert index_file_name(BEGIN_MS + 7, "") == "20231115061320007"
        disk = new_disk()
        built(10, disk)
        assert disk.list_dir(INDEX) == ["20231115061320001"]  # record 0 has no key
    finally:
        monkeypatch.undo()
        time.tzset()


def test_names_ascend_even_if_the_clock_does_not():
    name = index_file_name(BEGIN_MS, "")
    after = index_file_name(BEGIN_MS, name)
    assert after > name
    assert index_file_name(BEGIN_MS - 3_600_000, after) > after
    assert index_file_name(BEGIN_MS, "20231231235959999") == "20240101000000000"


def test_a_record_handed_in_again_changes_nothing():
    disk = new_disk()
    index = built(50, disk)
    index.flush()
    before = content(disk)
    for first in (0, 13, 40, 49):
        put(index, first, 50)
    index.flush()
    assert content(disk) == before


@pytest.mark.feature("F074")
def test_a_rebuild_gives_the_same_bytes_whatever_the_batches_and_flushes():
    wanted = new_disk()
    built(90, wanted).flush()
    for batch in (1, 2, 30, 90):
        disk = new_disk()
        index = index_on(disk)
        for first in range(0, 90, batch):
            put(index, first, min(90, first + batch))
            if first % 3 == 0:
                index.flush()
        index.flush()
        assert content(disk) == content(wanted)
        index.wipe()
        assert content(disk) == {}
        put(index, 0, 90)
        index.flush()
        assert content(disk) == content(wanted)


def test_a_clean_stop_keeps_everything():
    disk = new_disk()
    built(33, disk).flush()
    index = index_on(disk)
    assert index.load(covered=33 * SIZE, clean=True) == []
    assert knows(index, 33)
    put(index, 33, 70)
    assert knows(index, 70)
    index.flush()
    wanted = new_disk()
    built(70, wanted).flush()
    assert content(disk) == content(wanted)


@pytest.mark.fault
@pytest.mark.feature("F074")
def test_after_a_power_loss_every_key_is_there_or_comes_back(rounds):
    for seed in range(rounds(2_000)):
        rng = np.random.default_rng(seed)
        disk = new_disk(seed)
        index = index_on(disk)
        count = flushed = 0
        for _ in range(int(rng.integers(1, 14))):
            end = count + int(rng.integers(1, 14))
            put(index, count, end)
            count = end
            if rng.random() < 0.3:
                index.flush()
                flushed = count
            if rng.random() < 0.05:  # the power fails in the middle of a flush
                disk.fail_sync(int(rng.integers(1, 4)))
                with suppress(StoreFaulted):
                    while True:
                        index.flush()
                        flushed = count
                        put(index, count, count + 4)
                        count += 4
                break
        after = disk.crash()
        found = index_on(after)
        found.load(covered=flushed * SIZE, clean=False)
        # The log may have lost its unflushed end.
        count = int(rng.integers(flushed, count + 1))
        if found.end_position >= count * SIZE:
            found.truncate(count * SIZE, store_ms_of)
        put(found, found.covered // SIZE, count)
        assert found.state is IndexState.CURRENT, seed
        assert knows(found, count), seed
        found.flush()
        again = index_on(after)
        assert again.load(covered=count * SIZE, clean=True) == [], seed
        assert knows(again, count), seed


def test_a_file_begun_and_never_flushed_is_begun_again():
    disk = new_disk()
    index = built(12, disk)
    index.flush()
    put(index, 12, 40)
    found = index_on(disk)
    assert found.load(covered=12 * SIZE, clean=False) == []
    assert len(disk.files()) == 1
    put(found, 12, 40)
    assert knows(found, 40)


@pytest.mark.parametrize(
    ("at", "data"),
    [
        (36, b"\x7f\xff\xff\xff"),  # index count
        (36, b"\xff\xff\xff\xff"),
        (36, b"\x00\x00\x00\x09"),  # smaller than it was: the end does not fit
        (24, bytes(7) + b"\x05"),  # end position
        (8, bytes(8)),  # end time
    ],
)
def test_a_damaged_header_costs_that_file_and_the_newer_ones(at, data):
    disk = new_disk()
    index = built(40, disk)
    index.flush()
    names = disk.list_dir(INDEX)
    disk.overwrite(INDEX / names[-1], data, at)
    found = index_on(disk)
    problems = found.load(covered=40 * SIZE, clean=False)
    assert len(problems) == 1
    assert names[-1] in problems[0]
    assert disk.list_dir(INDEX) == names[:-1]
    assert found.covered < 40 * SIZE
    put(found, found.covered // SIZE, 40)
    assert knows(found, 40)


def test_a_wrong_count_of_slots_is_corrected_after_an_unclean_stop():
    disk = new_disk()
    built(12, disk).flush()
    wanted = content(disk)
    disk.overwrite(disk.files()[0], b"\x00\x00\x00\x01", 32)
    found = index_on(disk)
    assert found.load(covered=12 * SIZE, clean=False) == []
    found.flush()
    assert content(disk) == wanted


def test_a_damaged_file_in_the_middle_takes_the_newer_ones_along():
    disk = new_disk()
    built(60, disk).flush()
    names = disk.list_dir(INDEX)
    assert len(names) > 3
    disk.overwrite(INDEX / names[1], b"\x00\x00\x00\x05", 36)
    found = index_on(disk)
    assert found.load(covered=60 * SIZE, clean=True)
    put(found, found.covered // SIZE, 60)
    assert knows(found, 60)


def test_files_of_other_sizes_are_refused_and_left_alone():
    disk = new_disk()
    built(40, disk).flush()
    before = content(disk)
    with pytest.raises(ConfigError, match="maxHashSlotNum"):
        index_on(disk, slots=12).load(covered=0, clean=True)
    assert content(disk) == before


def test_other_files_in_the_directory_are_left_alone():
    disk = new_disk()
    built(5, disk).flush()
    disk.open(INDEX / "README", create_size=3)
    found = index_on(disk)
    assert found.load(covered=500, clean=False) == []
    assert "README" in disk.list_dir(INDEX)


@pytest.mark.parametrize("kept", [0, 1, 2, 13, 29, 30, 45, 59, 60])
def test_truncation_forgets_exactly_the_later_records(kept):
    index = built(60)
    index.flush()
    index.truncate(kept * SIZE, store_ms_of)
    assert index.covered <= kept * SIZE
    assert knows(index, kept)
    put(index, kept, 70)
    assert knows(index, 70)


def test_truncation_survives_a_restart_before_and_after_its_flush():
    for flushes in (False, True):
        disk = new_disk()
        index = built(60, disk)
        index.flush()
        index.truncate(31 * SIZE, store_ms_of)
        if flushes:
            index.flush()
        found = index_on(disk)
        assert found.load(covered=31 * SIZE, clean=False) == []
        if found.end_position >= 31 * SIZE:
            found.truncate(31 * SIZE, store_ms_of)
        assert knows(found, 31)


@pytest.mark.feature("F120")
def test_expired_files_go_but_never_the_last():
    index = built(60)
    count = index.statistics()["files"]
    detached = index.detach_before(30 * SIZE)
    assert len(detached) == 2
    for file in detached:
        index.remove_detached(file)
    assert find(index, 59) == [59 * SIZE]
    assert find(index, 1) == []
    assert len(index.detach_before(99_999)) == count - 3
    assert index.statistics()["files"] == 1


@pytest.mark.feature("F079")
def test_a_full_disk_leaves_the_index_behind_and_later_it_catches_up():
    disk = new_disk(capacity_bytes=4096)
    index = index_on(disk, slots=5_000, entries=5_000)
    put(index, 0, 40)
    assert index.state is IndexState.BEHIND
    assert (index.covered, index.seen) == (0, 4_000)
    put(index, 40, 50)  # live records go on; their keys are left out
    assert index.keys_left_out == sum(keys_of(r) for r in range(50))
    assert index.statistics()["behind_bytes"] == 5_000
    assert "no space" in index.last_failure
    put(index, 0, 20)  # still no space: still behind
    assert index.state is IndexState.BEHIND
    disk.capacity_bytes = 1 << 20
    put(index, 50, 51)
    assert index.state is IndexState.BEHIND
    put(index, 0, 30)
    put(index, 30, 51)
    assert index.state is IndexState.CURRENT
    assert knows(index, 51)
    assert index.flush() == 1
    assert index.flushed == 51 * SIZE


def test_a_full_disk_at_a_flush_holds_back_what_is_promised_and_loses_nothing():
    disk = new_disk(capacity_bytes=10_000)
    index = index_on(disk, slots=5_000, entries=5_000)
    put(index, 0, 10)
    disk.capacity_bytes = 0
    assert index.flush() == 0
    assert index.flushed == 0
    assert index.write_failures == 1
    assert knows(index, 10)
    disk.capacity_bytes = 1 << 20
    assert index.flush() == 1
    assert index.flushed == 10 * SIZE
    after = index_on(disk.crash(), slots=5_000, entries=5_000)
    assert after.load(covered=10 * SIZE, clean=False) == []
    assert knows(after, 10)


def test_a_failed_sync_is_for_good():
    disk = new_disk()
    index = built(10, disk)
    disk.fail_sync(1)
    with pytest.raises(StoreFaulted):
        index.flush()
    with pytest.raises(StoreFaulted):
        index.flush()
    assert index.flushed == 0


@pytest.mark.feature("F075")
def test_an_idle_index_takes_no_space_on_a_real_disk(tmp_path):
    index = KeyIndex(RealDisk(), tmp_path)
    assert list(tmp_path.iterdir()) == []
    index.put_many(
        np.arange(3, dtype=np.int32),
        np.asarray([0, 0, 100]),
        np.full(3, BEGIN_MS),
        start=0,
        end=200,
    )
    assert index.flush() == 1
    (file,) = tmp_path.iterdir()
    assert file.stat().st_size == 420_000_040 == file_size(5_000_000, 20_000_000)
    assert file.stat().st_blocks * 512 < 100_000
    assert list(index.find(1, begin_ms=0, end_ms=2**62)) == [0]
    index.close()
    again = KeyIndex(RealDisk(), tmp_path)
    assert again.load(covered=200, clean=True) == []
    assert list(again.find(2, begin_ms=0, end_ms=2**62)) == [100]
    with file.open("rb") as raw:
        header = IndexHeader.decode(raw.read(40))
    assert header == IndexHeader(BEGIN_MS, BEGIN_MS, 0, 100, 3, 4)
    again.close()
