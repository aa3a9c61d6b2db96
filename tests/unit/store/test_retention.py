"""Deleting the old end of a log: readers, crashes, rebuilds, and the space kept in reserve."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from kourou.engine.inputs import ClosedSegment
from kourou.protocol.record.message_record import decode_record
from kourou.store.real_disk import RealDisk
from kourou.store.retention import (
    Now,
    Reserve,
    keep_queue_ends,
    load_queue_ends,
    save_queue_ends,
)
from kourou.store.store import Store
from kourou.testing.disk import SimDisk
from kourou_rigs.store import Draft, StoreWriter, delete_before, small_settings

ROOT = Path("/store")
SETTINGS = small_settings(ROOT)
SIZE = SETTINGS.segment_size_bytes


@pytest.fixture
def disk() -> SimDisk:
    return SimDisk()


def filled(disk: SimDisk | RealDisk, count: int = 200, root: Path = ROOT) -> Store:
    """Messages of 500 bytes, with keys, in one queue; and five of another topic before them."""
    store = Store.open(small_settings(root), disk)
    writer = StoreWriter(store)
    writer.write([Draft("Early", 3) for _ in range(5)])
    writer.write([Draft(body=bytes(400), keys=(f"k{n}",)) for n in range(count)])
    store.checkpoint()
    return store


def offsets(store: Store) -> list[int]:
    low, high = store.queue_range("TopicA", 0) or (0, 0)
    read = store.read_queue(
        "TopicA", 0, low, max_messages=999, max_bytes=1 << 30, codes=None, below=store.end
    )
    assert not read.corrupt_offsets
    assert read.next_offset == high
    return [decode_record(record).offset for record in read.records]


def names(disk: SimDisk) -> list[str]:
    return disk.list_dir(ROOT / "commitlog")


@pytest.mark.feature("F120", "F121", "F126")
def test_segments_go_with_all_that_only_names_them(disk: SimDisk) -> None:
    store = filled(disk)
    before = {str(path) for path in disk.files()}
    assert delete_before(store, 3 * SIZE + 1) == 3
    assert store.log_range()[0] == 3 * SIZE
    low, high = store.queue_range("TopicA", 0) or (0, 0)
    assert 80 < low < high == 200
    assert offsets(store) == list(range(low, 200))
    assert store.queue_range("Early", 3) == (5, 5), "an empty queue goes on counting"
    gone = before - {str(path) for path in disk.files()}
    assert {"commitlog", "consumequeue", "index"} <= {name.split("/")[2] for name in gone}
    store.close()
    again = Store.open(SETTINGS, disk.kill())
    assert not again.report.rebuilt
    assert offsets(again) == list(range(low, 200))
    assert again.queue_range("Early", 3) == (5, 5)


def test_neither_the_last_segment_nor_what_no_checkpoint_covers_goes(disk: SimDisk) -> None:
    store = filled(disk)
    covered = store.deletable_end
    StoreWriter(store).write([Draft(body=bytes(400)) for _ in range(200)])
    store.flush()
    assert store.deletable_end == covered
    deletion = store.deletion(1 << 50)
    for _ in deletion.forget():
        pass
    assert store.remove(deletion) == covered // SIZE
    assert store.log_range()[0] == covered - covered % SIZE
    assert delete_before(store, 1 << 50) == store.end // SIZE - covered // SIZE
    assert store.log_range()[0] == store.end - store.end % SIZE
    assert offsets(store)[-1] == 399


def test_in_between_readers_never_see_a_message_as_damaged(disk: SimDisk) -> None:
    """At every step of a deletion all that lies between minimum and maximum can be read."""
    store = filled(disk)
    deletion = store.deletion(4 * SIZE)
    lowest = [offsets(store)[0] for _ in deletion.forget()]
    assert store.remove(deletion) == 4
    assert offsets(store)[0] == lowest[-1] > lowest[0] - 1 > 0
    assert store.corrupt_met == 0


@pytest.mark.parametrize("mode", ["mmap", "pread"])
def test_views_that_were_handed_out_stay_readable(tmp_path: Path, mode: str) -> None:
    settings = small_settings(tmp_path, read_mode=mode)
    store = Store.open(settings, RealDisk())
    written = StoreWriter(store).write([Draft(body=bytes([n % 256]) * 400) for n in range(200)])
    store.checkpoint()
    read = store.read_queue(
        "TopicA", 0, 0, max_messages=30, max_bytes=1 << 20, codes=None, below=store.end
    )
    segment = store.closed_segments()[0]
    assert delete_before(store, 4 * SIZE) == 4
    assert not (tmp_path / "commitlog" / ("0" * 20)).exists()
    assert [bytes(view) for view in read.records] == [item.record for item in written[:30]]
    if mode == "mmap":
        # A thread that found the segment before may go on with it.
        assert bytes(segment.view(0, 8)) == written[0].record[:8]
    store.close()


def test_other_threads_read_while_it_is_deleted(tmp_path: Path) -> None:
    store = filled(RealDisk(), 2_000, tmp_path)
    failures: list[BaseException] = []
    ending = threading.Event()

    def read() -> None:
        try:
            while not ending.is_set():
                low, _ = store.queue_range("TopicA", 0) or (0, 0)
                store.store_time("TopicA", 0, low)
                store.offset_position("TopicA", 0, low)
        except Exception as error:  # noqa: BLE001 - whatever it is, the test tells it
            failures.append(error)

    reader = threading.Thread(target=read)
    reader.start()
    for segment in range(1, 30):
        delete_before(store, segment * SIZE)
    ending.set()
    reader.join()
    assert not failures
    store.close()


def test_files_that_a_crash_left_behind_go_with_the_next_deletion(disk: SimDisk) -> None:
    store = filled(disk)
    deletion = store.deletion(4 * SIZE)
    for _ in deletion.forget():
        pass
    store.checkpoint()
    for segment in deletion._segments:
        store._log.remove_detached(segment)
    again = Store.open(SETTINGS, disk.kill())
    assert not again.report.rebuilt
    left = len(disk.list_dir(ROOT / "consumequeue/TopicA/0"))
    cleaning = again.deletion(0)
    for _ in cleaning.forget():
        pass
    assert cleaning.found
    assert again.remove(cleaning) == 0
    assert len(disk.list_dir(ROOT / "consumequeue/TopicA/0")) < left
    assert offsets(again)[-1] == 199


# -- built again --------------------------------------------------------------------------------


def test_queues_are_built_again_from_a_log_without_its_beginning(disk: SimDisk) -> None:
    store = filled(disk)
    delete_before(store, 3 * SIZE)
    ranges = [store.queue_range("TopicA", 0), store.queue_range("Early", 3)]
    store.close()
    disk.remove_tree(ROOT / "consumequeue")
    disk.remove_tree(ROOT / "index")
    for _ in range(2):
        again = Store.open(SETTINGS, disk.kill())
        assert [again.queue_range("TopicA", 0), again.queue_range("Early", 3)] == ranges
        assert offsets(again) == list(range(*ranges[0]))
        again.close()
    assert not again.report.rebuilt, "what was built again is found whole"
    last = Store.open(SETTINGS, disk)
    (item,) = StoreWriter(last).write([Draft("Early", 3)])
    assert item.offset == 5, "an offset is given once, even if its message is gone"


def test_ends_of_queues_are_remembered_and_kept(disk: SimDisk) -> None:
    store = Store.open(SETTINGS, disk)
    paths = store.paths
    assert load_queue_ends(disk, paths) == {}
    ends = {"A": {0: 45, 7: 1}, "%RETRY%g": {0: 3}}
    save_queue_ends(disk, paths, ends)
    assert load_queue_ends(disk, paths) == ends
    StoreWriter(store).write([Draft("A"), Draft("A", 7), Draft("A", 7)])
    assert keep_queue_ends(store._queues, ends) == 2
    store._queues.correct_min_offsets(0)
    assert store.queue_range("A", 0) == (0, 45)
    assert store.queue_range("A", 7) == (0, 2)
    assert store.queue_range("%RETRY%g", 0) == (3, 3)
    assert keep_queue_ends(store._queues, ends) == 0


@pytest.mark.parametrize("damage", [b"", b"[1]", b'{"A":{"x":1}}'])
def test_a_file_of_ends_that_cannot_be_read_is_none(disk: SimDisk, damage: bytes) -> None:
    store = Store.open(SETTINGS, disk)
    disk.open(store.paths.queue_ends, create_size=0).pwrite(damage, 0)
    assert load_queue_ends(disk, store.paths) == {}


def test_a_full_disk_keeps_no_log_for_want_of_that_file(disk: SimDisk) -> None:
    store = filled(disk)
    disk.capacity_bytes = disk._used
    assert delete_before(store, 2 * SIZE) == 2


# -- ages ---------------------------------------------------------------------------------------


def test_a_store_that_closes_writes_its_ages_down(disk: SimDisk) -> None:
    store = filled(disk)
    closed = store.closed_segments()
    assert [segment.start for segment in closed] == [n * SIZE for n in range(store.end // SIZE)]
    store.ages.look(Now(1_000, 1_000, "one"), closed)
    store.ages.look(Now(5_000, 5_000, "one"), closed)
    store.close()
    again = Store.open(SETTINGS, disk.kill())
    aged, _ = again.ages.look(Now(6_000, 1, "one"), again.closed_segments())
    assert aged[0] == ClosedSegment(0, SIZE, 5_000)
    assert len(aged) == len(closed)


# -- the reserve --------------------------------------------------------------------------------


def test_the_reserve_is_taken_given_back_and_taken_again(disk: SimDisk) -> None:
    store = Store.open(small_settings(ROOT, reserve_bytes=1 << 20), disk)
    _, free = store.usage()
    assert disk.open(store.paths.reserve).size() == 1 << 20
    store.reserve.release()
    store.reserve.release()
    assert store.usage()[1] == free + (1 << 20)
    store.reserve.take()
    store.reserve.take()
    assert store.usage()[1] == free


def test_a_small_disk_has_a_small_reserve_and_a_full_one_none(disk: SimDisk) -> None:
    store = Store.open(SETTINGS, disk)
    disk.capacity_bytes = 64 * 10_000
    reserve = Reserve(disk, store.paths, 1 << 20)
    reserve.take()
    assert disk.open(store.paths.reserve).size() == 10_000
    reserve.release()
    disk.capacity_bytes = disk._used + 100
    reserve.take()
    assert not reserve.held


def test_with_the_reserve_given_back_small_files_can_be_written(disk: SimDisk) -> None:
    store = Store.open(small_settings(ROOT, reserve_bytes=1 << 20), disk)
    StoreWriter(store).write([Draft()])
    disk.capacity_bytes = disk._used
    store.ages.look(Now(1, 1), [])
    with pytest.raises(OSError, match="No space"):
        store.ages.save(store.ages.encoded())
    store.reserve.release()
    store.ages.save(store.ages.encoded())


def test_a_held_index_falls_behind_and_catches_up(disk: SimDisk) -> None:
    store = Store.open(SETTINGS, disk)
    writer = StoreWriter(store)
    store.hold_index(True)
    writer.write([Draft(keys=("k",)) for _ in range(5)])
    store.checkpoint()
    find = {"max_count": 9, "begin_ms": 0, "end_ms": 1 << 60}
    assert store.find_by_key("TopicA", "k", **find) == []
    assert len(offsets(store)) == 5, "readers of the queue do not notice"
    store.hold_index(False)
    store.checkpoint()
    assert len(store.find_by_key("TopicA", "k", **find)) == 5
