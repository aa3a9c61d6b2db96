from __future__ import annotations

import pytest

from kourou.errors import Corrupt
from kourou.store.log.verified import check_stored
from kourou.store.recovery.recovery_point import load_recovery_point
from kourou.store.store import Store
from kourou.testing.disk import SimDisk
from kourou_rigs.recovering import PATHS, PROJECTIONS, SETTINGS, SIZE, contents, damage, fill
from kourou_rigs.store import Draft, StoreWriter, readable, small_settings


@pytest.mark.feature("F081")
def test_after_a_clean_stop_nothing_is_read() -> None:
    disk = SimDisk()
    written = fill(disk)
    assert not disk.exists(PATHS.abort)
    store = Store.open(SETTINGS, disk)
    assert store.report.way == "after a clean stop"
    assert store.report.records_walked == 0
    assert store.report.records_dispatched == 0
    assert readable(store) == [item.record for item in written]
    assert store.store_ms == 1_700_000_000_000
    assert disk.exists(PATHS.abort)


@pytest.mark.feature("F081")
def test_after_a_kill_everything_appended_is_there() -> None:
    disk = SimDisk()
    written = fill(disk, close=False)
    store = Store.open(SETTINGS, disk)
    assert store.report.way == "after a crash"
    assert store.report.records_dispatched == 24
    assert not store.report.rebuilt
    assert readable(store) == [item.record for item in written]
    assert store.flushed == store.end


def test_a_second_start_walks_only_what_came_since_the_checkpoint() -> None:
    disk = SimDisk()
    fill(disk, close=False)
    store = Store.open(SETTINGS, disk)
    StoreWriter(store).write([Draft(body=b"more") for _ in range(5)])
    disk.kill()
    again = Store.open(SETTINGS, disk)
    assert again.report.records_walked == 5


@pytest.mark.parametrize("close", [True, False])
@pytest.mark.feature("F074")
def test_deleted_projections_come_back_byte_for_byte(close: bool) -> None:
    disk = SimDisk()
    written = fill(disk)
    if not close:
        Store.open(SETTINGS, disk)
        disk.kill()
    before = contents(disk, *PROJECTIONS)
    for directory in PROJECTIONS:
        disk.remove_tree(directory)
    store = Store.open(SETTINGS, disk)
    assert store.report.rebuilt
    assert readable(store) == [item.record for item in written]
    store.close()
    assert contents(disk, *PROJECTIONS) == before


@pytest.mark.parametrize("name", ["TopicA", "TopicA/1", "TopicA/2/00000000000000000000"])
def test_one_missing_queue_is_noticed(name: str) -> None:
    disk = SimDisk()
    fill(disk)
    before = contents(disk, *PROJECTIONS)
    if name.endswith("0"):
        disk.unlink(PATHS.consume_queue / name)
    else:
        disk.remove_tree(PATHS.consume_queue / name)
    store = Store.open(SETTINGS, disk)
    assert store.report.rebuilt
    store.close()
    assert contents(disk, *PROJECTIONS) == before


def test_a_missing_index_is_built_again_alone() -> None:
    disk = SimDisk()
    fill(disk)
    before = contents(disk, *PROJECTIONS)
    disk.remove_tree(PATHS.index)
    store = Store.open(SETTINGS, disk)
    assert not store.report.rebuilt
    store.close()
    assert contents(disk, *PROJECTIONS) == before


def test_queue_units_beyond_the_log_are_cut() -> None:
    disk = SimDisk()
    written = fill(disk)
    queue = PATHS.queue("TopicA", 0) / ("0" * 20)
    end = written[-1].end
    for index in range(8, 12):
        unit = (end + 1000 * index).to_bytes(8, "big") + (200).to_bytes(4, "big") + bytes(8)
        disk.overwrite(queue, unit, 20 * index)
    store = Store.open(SETTINGS, disk)
    assert store.queue_range("TopicA", 0) == (0, 8)
    assert readable(store) == [item.record for item in written]
    assert not any(disk.read(queue)[160:])


def test_neither_file_times_nor_store_times_decide_anything() -> None:
    reports = []
    for seed in range(6):
        disk = SimDisk()
        store = Store.open(SETTINGS, disk)
        for step in range(8):
            # The clock jumps about, also backwards; one store is all in the far past.
            now_ms = [5, 1 << 41, 1_700_000_000_000][(seed + step) % 3] if seed else 1
            StoreWriter(store, now_ms=now_ms).write([Draft(body=b"x" * 90) for _ in range(5)])
            if step == 3:
                store.checkpoint()
        disk.kill()
        for index, path in enumerate(disk.files()):
            disk.set_modified_ms(path, (index * 7919 + seed * 104_729) % 1_000 * (1 << 31))
        report = Store.open(SETTINGS, disk).report
        reports.append((report.walked_from, report.end, report.records_walked))
    assert len(set(reports)) == 1, reports
    assert reports[0][2] == 20


def test_after_a_failed_flush_the_disk_is_asked_and_not_the_cache() -> None:
    disk = SimDisk()
    store = Store.open(SETTINGS, disk)
    writer = StoreWriter(store)
    first = writer.write([Draft(body=b"kept")])
    store.flush()
    writer.write([Draft(body=b"lost")])
    disk.fail_sync(1)
    with pytest.raises(Exception, match="Input/output"):
        store.flush()
    again = Store.open(SETTINGS, disk.kill())  # the page cache still shows the second one
    assert readable(again) == [first[0].record]
    assert again.end == first[0].end


# -- damage -------------------------------------------------------------------------------------


def test_a_damaged_record_is_quarantined_when_the_log_is_walked() -> None:
    disk = SimDisk()
    written = fill(disk, close=False)
    bad = written[4]
    damage(disk, bad.position + 91, b"\xff")
    store = Store.open(SETTINGS, disk)
    assert [(region.start, region.end) for region in store.damaged_regions] == [
        (bad.position, bad.end)
    ]
    assert store.report.new_regions == store.damaged_regions
    assert readable(store) == [item.record for item in written if item is not bad]
    read = store.read_queue(
        "TopicA", 1, 0, max_messages=9, max_bytes=1 << 20, codes=None, below=store.end
    )
    assert read.corrupt_offsets == [bad.offset]
    with pytest.raises(Corrupt, match="damaged region"):
        store.record_at(bad.position)
    before = disk.read(PATHS.segment(bad.position - bad.position % SIZE))
    assert before[bad.position % SIZE + 91] == 0xFF, "its bytes are kept"
    store.close()
    again = Store.open(SETTINGS, disk)
    assert again.damaged_regions == store.damaged_regions
    assert again.report.new_regions == []


@pytest.mark.parametrize("queue_id", [0, 1, 2])
@pytest.mark.parametrize("header", [False, True])
def test_the_offset_of_a_damaged_record_is_never_given_again(queue_id: int, header: bool) -> None:
    disk = SimDisk()
    written = fill(disk, close=False, flush=True)
    bad = [item for item in written if item.queue_id == queue_id][-1]
    damage(disk, bad.position, bytes(40)) if header else damage(disk, bad.position + 91, b"\xff")
    store = Store.open(SETTINGS, disk)
    (new,) = StoreWriter(store).write([Draft(queue_id=queue_id)])
    assert new.offset == bad.offset + 1


def test_without_queues_a_lost_end_keeps_the_store_shut() -> None:
    disk = SimDisk()
    written = fill(disk, close=False, flush=True)
    damage(disk, written[-1].position, bytes(40))
    disk.remove_tree(PATHS.consume_queue)
    with pytest.raises(Corrupt, match="flushed up to"):
        Store.open(SETTINGS, disk)


def test_a_damaged_record_keeps_its_offset_when_queues_are_rebuilt() -> None:
    disk = SimDisk()
    written = fill(disk)
    bad = written[-1]
    damage(disk, bad.position + 91, b"\xff")
    disk.remove_tree(PATHS.consume_queue)
    store = Store.open(SETTINGS, disk)
    assert store.report.rebuilt
    assert store.queue_range("TopicA", bad.queue_id) == (0, bad.offset + 1)
    assert readable(store) == [item.record for item in written[:-1]]


def test_a_torn_tail_is_truncated_and_cannot_come_back() -> None:
    disk = SimDisk()
    store = Store.open(SETTINGS, disk)
    written = StoreWriter(store).write([Draft(body=bytes([n]) * 50) for n in range(5)])
    last = written[-1]
    disk.kill()
    damage(disk, last.position + 60, bytes(30))
    store = Store.open(SETTINGS, disk)
    assert store.end == last.position
    segment = disk.read(PATHS.segment(0))
    assert not any(segment[last.position :])
    assert store.queue_range("TopicA", 0) == (0, 4)


def test_promised_messages_that_are_gone_keep_the_store_shut() -> None:
    disk = SimDisk()
    store = Store.open(SETTINGS, disk)
    writer = StoreWriter(store)
    writer.write([Draft(body=b"x" * 300) for _ in range(9)])
    store.flush()
    disk.kill()
    end = store.end
    assert end > SIZE
    disk.unlink(PATHS.segment(2 * SIZE))
    disk.unlink(PATHS.segment(SIZE))
    before = {path: disk.read(path) for path in disk.files()}
    with pytest.raises(Corrupt, match=rf"flushed up to {end}.*--set acceptDataLoss={SIZE}"):
        Store.open(SETTINGS, disk)
    assert {path: disk.read(path) for path in disk.files()} == before, "nothing was touched"
    wrong = small_settings(PATHS.root, segment_size_bytes=SIZE, accept_loss_at=SIZE + 1)
    with pytest.raises(Corrupt):
        Store.open(wrong, disk)
    accept = small_settings(PATHS.root, segment_size_bytes=SIZE, accept_loss_at=SIZE)
    opened = Store.open(accept, disk)
    assert opened.end == end
    assert [(region.start, region.end) for region in opened.damaged_regions] == [(SIZE, end)]
    (new,) = StoreWriter(opened).write([Draft(body=b"new")])
    assert new.position >= end
    assert new.offset == 9
    opened.close()
    assert Store.open(SETTINGS, disk).report.way == "after a clean stop"


def test_a_log_that_is_gone_altogether_keeps_the_store_shut() -> None:
    disk = SimDisk()
    fill(disk)
    point = load_recovery_point(disk, PATHS.recovery_point)
    assert point is not None
    disk.remove_tree(PATHS.commit_log)
    with pytest.raises(Corrupt, match="--set acceptDataLoss=0"):
        Store.open(SETTINGS, disk)
    accept = small_settings(PATHS.root, segment_size_bytes=SIZE, accept_loss_at=0)
    store = Store.open(accept, disk)
    assert store.end == point.flushed
    (new,) = StoreWriter(store).write([Draft(queue_id=0)])
    assert new.offset == 8, "offsets are never given again"


@pytest.mark.parametrize("flush", [True, False])
def test_a_forged_record_in_a_body_is_not_served_when_the_header_around_it_is_gone(
    flush: bool,
) -> None:
    """It says where it lies and what comes next in its queue; whoever sends can tell both."""
    disk = SimDisk()
    store = Store.open(SETTINGS, disk)
    writer = StoreWriter(store)
    (template,) = writer.stamp([Draft("TopicB", with_crc=False)])
    forged = template.record[:28] + (200).to_bytes(8, "big") + template.record[36:]
    (outer, behind) = StoreWriter(store).write(
        [Draft(body=bytes(200 - 88) + forged), Draft(body=b"behind")]
    )
    segment = disk.read(PATHS.segment(0))
    assert check_stored(memoryview(segment), 200, SIZE, 200).position == 200, "it is good"
    if flush:
        store.flush()
    disk.kill()
    damage(disk, outer.position, bytes(40))
    again = Store.open(SETTINGS, disk)
    assert again.queue_range("TopicB", 0) is None
    assert readable(again) == [behind.record]
    assert [(region.start, region.end) for region in again.damaged_regions] == [(0, outer.end)]
    with pytest.raises(Corrupt, match="damaged region"):
        again.record_at(200)
