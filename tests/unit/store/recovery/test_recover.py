from __future__ import annotations

import errno
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from kourou.errors import Corrupt, StoreFaulted
from kourou.protocol.record.hashes import index_hash
from kourou.store.index.key_index import KeyIndex
from kourou.store.log.commit_log import CommitLog
from kourou.store.log.verified import check_stored
from kourou.store.paths import StorePaths
from kourou.store.recovery.recovery_point import load_recovery_point
from kourou.store.recovery.scan import claim_at
from kourou.store.store import Store
from kourou.testing.disk import PowerLost, SimDisk
from kourou_rigs.recovering import PATHS, PROJECTIONS, SETTINGS, SIZE, contents, damage, fill
from kourou_rigs.store import Draft, StoreWriter, Written, delete_before, readable, small_settings


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


@pytest.mark.parametrize("booted", [False, True])
def test_a_gap_ends_the_log_only_if_the_power_may_have_been_lost(booted: bool) -> None:
    """A hole in what was not flushed is damage after a kill: what follows it was written."""
    disk = SimDisk()
    written = fill(disk, close=False)
    damage(disk, written[10].position, bytes(8))
    if booted:
        disk.boot_id = "another"
    store = Store.open(SETTINGS, disk)
    kept = written[:10] if booted else [*written[:10], *written[11:]]
    assert readable(store) == [item.record for item in kept]
    assert len(store.damaged_regions) == (not booted)
    assert store.end == (written[10].position if booted else written[-1].end)


def test_a_recovery_that_is_interrupted_ends_the_log_at_the_same_gap() -> None:
    for step in range(1, 30):
        disk = SimDisk()
        written = fill(disk, close=False)
        damage(disk, written[10].position, bytes(8))
        disk.boot_id = "another"
        disk.fail_sync(step)
        with suppress(StoreFaulted):
            Store.open(SETTINGS, disk)
        disk.kill()
        store = Store.open(SETTINGS, disk)
        kept = readable(store)  # a failed sync may lose what was written before
        assert kept == [item.record for item in written[: min(len(kept), 10)]], step
        assert not store.damaged_regions


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


def test_a_start_without_space_for_the_index_leaves_it_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    disk = SimDisk()
    fill(disk)
    before = contents(disk, *PROJECTIONS)
    disk.remove_tree(PATHS.index)

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(KeyIndex, "_begin_file", full)
        store = Store.open(SETTINGS, disk)
    assert store.indexed < store.dispatched == store.end
    for _ in range(20):  # a call reads a part of the log
        store.catch_up_index()
    assert store.indexed == store.end
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


# -- replay ----------------------------------------------------------------------------------------


REPLAY_PATHS = StorePaths.under(Path("/store"))
REPLAY_SIZE = 1024


@pytest.fixture
def shelf() -> tuple[CommitLog, list[Written], SimDisk]:
    disk = SimDisk()
    store = Store.open(small_settings(REPLAY_PATHS.root, segment_size_bytes=REPLAY_SIZE), disk)
    written = StoreWriter(store).write([Draft(queue_id=n, body=bytes(70)) for n in range(20)])
    end = store.end
    store.close()
    log = CommitLog.open(disk, REPLAY_PATHS, REPLAY_SIZE)
    log.adopt_end(end, end)
    return log, written, disk


def test_a_damaged_record_still_claims_its_place(
    shelf: tuple[CommitLog, list[Written], SimDisk],
) -> None:
    log, written, disk = shelf
    item = written[7]
    claim = claim_at(log, item.position, item.end)
    assert claim == ("TopicA", 7, 0, len(item.record), False)
    assert claim_at(log, item.position, item.end - 1) is None
    assert claim_at(log, item.position + 1, item.end) is None
    # Damage in the body leaves the header to be believed; a damaged size is found from the end.
    disk.overwrite(REPLAY_PATHS.segment(0), b"\xff", written[2].position + 90)
    claim = claim_at(log, written[2].position, log.end)
    assert claim == ("TopicA", 2, 0, len(written[2].record), True)
    disk.overwrite(REPLAY_PATHS.segment(0), b"\xff", written[3].position)
    claim = claim_at(log, written[3].position, written[3].end)
    assert claim == ("TopicA", 3, 0, len(written[3].record), False)
    assert claim_at(log, written[3].position, written[4].end) is None
    disk.overwrite(REPLAY_PATHS.segment(0), bytes(90), written[1].position)
    assert claim_at(log, written[1].position, log.end) is None


# -- foreign ---------------------------------------------------------------------------------------


def external_writes(disk: SimDisk, *, abort: bool = False) -> None:
    disk.remove_tree(PATHS.kourou)
    if abort:
        disk.open(PATHS.abort, create_size=0)
    else:
        disk.unlink(PATHS.abort)


def test_a_store_without_our_files_is_walked_in_its_last_three_segments() -> None:
    disk = SimDisk()
    written = fill(disk, 60)
    before = contents(disk, PATHS.commit_log, *PROJECTIONS)
    external_writes(disk)
    store = Store.open(SETTINGS, disk)
    assert store.report.way == "after RocketMQ"
    assert store.report.walked_from == written[-1].end // SIZE * SIZE - 2 * SIZE
    assert readable(store) == [item.record for item in written]
    store.close()
    assert contents(disk, PATHS.commit_log, *PROJECTIONS) == before


def test_after_a_crash_of_somebody_else_everything_is_made_again() -> None:
    disk = SimDisk()
    written = fill(disk, 60)
    before = contents(disk, *PROJECTIONS)
    external_writes(disk, abort=True)
    path = PATHS.queue("TopicA", 0) / ("0" * 20)
    disk.overwrite(path, b"\x77" * 40, 0)
    store = Store.open(SETTINGS, disk)
    assert store.report.way == "after a crash of RocketMQ"
    assert store.report.walked_from == 0
    assert readable(store) == [item.record for item in written]
    store.close()
    assert contents(disk, *PROJECTIONS) == before


def test_records_that_somebody_else_appended_are_taken_over() -> None:
    disk = SimDisk()
    written = fill(disk, 60)
    point = disk.read(PATHS.recovery_point)
    store = Store.open(SETTINGS, disk)
    new = StoreWriter(store).write([Draft(queue_id=1, body=b"theirs") for _ in range(3)])
    store.close()
    disk.overwrite(PATHS.recovery_point, point, 0)  # they know nothing of our files
    again = Store.open(SETTINGS, disk)
    assert again.report.way == "after RocketMQ"
    assert again.report.external_writes.startswith("3 records lie behind the end at")
    assert again.report.walked_from == new[-1].end // SIZE * SIZE - 2 * SIZE
    assert readable(again) == [item.record for item in [*written, *new]]
    assert again.queue_range("TopicA", 1) == (0, 23)
    again.close()
    assert Store.open(SETTINGS, disk).report.external_writes == ""


@pytest.mark.parametrize("by_other", [True, False])
def test_a_log_that_somebody_else_cut_is_as_long_as_they_left_it(by_other: bool) -> None:
    """Its checkpoint is newer than ours, so a promise of ours that is gone refuses nothing."""
    disk = SimDisk()
    written = fill(disk, 60)
    cut = written[-4]
    for item in written[-4:]:
        disk.overwrite(PATHS.segment(item.position // SIZE * SIZE), bytes(40), item.position % SIZE)
        at = 20 * (item.offset % 20)
        path = PATHS.queue("TopicA", item.queue_id)
        disk.overwrite(path / f"{item.offset // 20 * 400:020d}", bytes(20), at)
    if not by_other:
        with pytest.raises(Corrupt):
            Store.open(SETTINGS, disk)
        return
    disk.overwrite(PATHS.checkpoint, (1_800_000_000_000).to_bytes(8, "big"), 0)
    store = Store.open(SETTINGS, disk)
    cut_bytes = written[-1].end - cut.position
    assert store.report.external_writes == (
        f"these are not ours: checkpoint; {cut_bytes} bytes of ours were cut off"
    )
    assert store.end == cut.position
    assert readable(store) == [item.record for item in written[:-4]]


def test_quarantined_regions_are_judged_again_after_somebody_else() -> None:
    """They wrote good records where a damaged one of ours lay."""
    disk = SimDisk()
    fill(disk, 12)
    last = Store.open(SETTINGS, disk)
    end = last.end
    last.close()
    region = f'{{"regions":[{{"start":{end},"end":{end + 200},"reason":"old"}}]}}'
    file = disk.open(PATHS.quarantine, create_size=0)
    file.pwrite(region.encode(), 0)
    other = disk.open(PATHS.checkpoint)
    other.pwrite((1_800_000_000_000).to_bytes(8, "big"), 0)
    store = Store.open(SETTINGS, disk)
    assert store.report.external_writes
    assert store.damaged_regions == []
    store.close()
    assert b"old" not in disk.read(PATHS.quarantine)


# -- who wrote last ---------------------------------------------------------------------------


def put_back(disk: SimDisk, ours: dict[Path, bytes]) -> None:
    """Our own files are as they were."""
    disk.remove_tree(PATHS.kourou)
    disk.make_dirs(PATHS.kourou)
    for path, data in ours.items():
        disk.open(path, create_size=len(data)).pwrite(data, 0)


def write_as_other(disk: SimDisk, drafts: list[Draft], **changes: object) -> list[Written]:
    """Another broker opens the store, writes and closes it; our own files stay as they were.

    Its checkpoint is of another clock.
    """
    ours = contents(disk, PATHS.kourou)
    disk.remove_tree(PATHS.kourou)
    store = Store.open(replace(SETTINGS, **changes), disk)  # type: ignore[arg-type]  # by name
    written = StoreWriter(store).write(drafts)
    store.close()
    put_back(disk, ours)
    disk.overwrite(PATHS.checkpoint, 2 * (1_600_000_000_000).to_bytes(8, "big"), 0)
    return written


def edit_a_table(disk: SimDisk) -> None:
    disk.make_dirs(PATHS.config)
    disk.open(PATHS.config / "topics.json", create_size=0).pwrite(b"{}", 0)


def keys_found(store: Store, count: int) -> list[int]:
    """How often each of the keys k0, k1, ... is found."""
    return [
        len(store.find_by_key("TopicA", f"k{n}", max_count=64, begin_ms=0, end_ms=1 << 60))
        for n in range(count)
    ]


def test_a_person_who_edits_a_table_and_deletes_the_queues_gets_all_of_them_back() -> None:
    """Taken for another broker's work, the queues would begin with the last three segments."""
    disk = SimDisk()
    written = fill(disk, 60)
    edit_a_table(disk)
    disk.remove_tree(PATHS.consume_queue)
    store = Store.open(SETTINGS, disk)
    assert (store.report.external_writes, store.report.rebuilt) == ("", True)
    assert readable(store) == [item.record for item in written]


def test_an_edited_table_does_not_excuse_a_loss() -> None:
    disk = SimDisk()
    written = fill(disk, 60)
    edit_a_table(disk)
    disk.unlink(PATHS.segment(written[-1].position // SIZE * SIZE))
    with pytest.raises(Corrupt, match=r"there; topics\.json was written by another.*acceptData"):
        Store.open(SETTINGS, disk)


def test_a_closed_store_of_somebody_else_without_queues_is_projected_from_its_start() -> None:
    disk = SimDisk()
    written = fill(disk, 60)
    external_writes(disk)
    disk.remove_tree(PATHS.consume_queue)
    store = Store.open(SETTINGS, disk)
    assert store.report.way == "after RocketMQ"
    assert readable(store) == [item.record for item in written]


def test_queues_that_end_before_the_last_three_segments_are_completed() -> None:
    disk = SimDisk()
    written = fill(disk, 20)
    before = contents(disk, PATHS.consume_queue)
    store = Store.open(SETTINGS, disk)
    more = StoreWriter(store).write([Draft(queue_id=n % 3, body=b"x" * 300) for n in range(40)])
    store.close()
    external_writes(disk)
    disk.remove_tree(PATHS.consume_queue)  # they were restored from an older copy
    for path, data in before.items():
        disk.make_dirs(path.parent)
        disk.open(path, create_size=len(data)).pwrite(data, 0)
    again = Store.open(SETTINGS, disk)
    assert readable(again) == [item.record for item in [*written, *more]]


def test_a_queue_that_another_broker_deleted_by_mistake_comes_back() -> None:
    """It deletes the queues of topics that are not in its table."""
    disk = SimDisk()
    written = fill(disk, 60)
    new = write_as_other(disk, [Draft() for _ in range(9)])
    disk.remove_tree(PATHS.consume_queue / "TopicA" / "1")
    store = Store.open(SETTINGS, disk)
    assert store.report.external_writes
    assert not store.report.rebuilt, "what is there stays"
    assert (store.report.walked_from, written[0].position) == (0, 0)
    assert readable(store) == [item.record for item in [*written, *new]]


def test_what_another_broker_wrote_without_an_index_is_indexed_once() -> None:
    """And then with one again, whose end hides the gap."""
    disk = SimDisk()
    fill(disk, 30)
    drafts = [Draft(body=b"y" * 200, keys=(f"k{n}",)) for n in range(30, 75)]
    new = write_as_other(disk, drafts, index_enabled=False)
    index = KeyIndex(disk, PATHS.index, slot_count=100, entry_count=60)
    index.load(covered=new[30].position, clean=True)
    index.put_many(
        np.array([index_hash(f"TopicA#k{n}") for n in range(60, 75)], np.int32),
        np.array([item.position for item in new[30:]]),
        np.full(15, 1_700_000_000_000),
        start=new[30].position,
        end=new[-1].end,
    )
    index.flush()
    store = Store.open(SETTINGS, disk)
    assert store.report.external_writes
    assert keys_found(store, 75) == [1] * 75


def test_an_index_without_a_readable_record_before_the_cut_is_built_again() -> None:
    disk = SimDisk()
    written = fill(disk, 60)
    write_as_other(disk, [Draft(keys=("k60",))])
    walked_from = written[-1].end // SIZE * SIZE - 2 * SIZE
    bad = next(n for n in reversed(range(60)) if written[n].position < walked_from)
    damage(disk, written[bad].position + 91, b"\xff")
    store = Store.open(SETTINGS, disk)
    assert store.report.walked_from == walked_from
    assert keys_found(store, 61) == [1] * bad + [0] + [1] * (60 - bad)


def test_a_damaged_record_does_not_end_the_log_when_its_rebuild_is_cut_short() -> None:
    """Queues tell how far the log of a crashed RocketMQ goes, and a rebuild begins without them."""
    for seed in range(60):
        disk = SimDisk(seed)
        written = fill(disk, 24)
        external_writes(disk, abort=True)
        damage(disk, written[5].position + 91, b"\xff")
        disk = disk.copy()
        disk.cut_power(1 + seed % 30)
        with suppress(PowerLost):
            Store.open(SETTINGS, disk)
        store = Store.open(SETTINGS, disk.crash())
        assert readable(store) == [item.record for item in written if item is not written[5]], seed


def test_offsets_go_on_after_a_rebuild_of_queues_whose_messages_rocketmq_deleted() -> None:
    disk = SimDisk()
    store = Store.open(SETTINGS, disk)
    writer = StoreWriter(store)
    writer.write([Draft("Old", body=b"o" * 300) for _ in range(10)])
    writer.write([Draft("New", body=b"n" * 300) for _ in range(10)])
    delete_before(store, store.end // SIZE * SIZE)
    store.close()
    external_writes(disk, abort=True)
    for loss in range(1, 30):  # also if the power is lost on the way
        tried = disk.copy()
        tried.cut_power(loss)
        with suppress(PowerLost):
            assert Store.open(SETTINGS, tried).report.rebuilt
        again = Store.open(SETTINGS, tried.crash())
        (new,) = StoreWriter(again).write([Draft("Old")])
        assert new.offset == 10


@pytest.mark.parametrize("crashed", [True, False])
def test_segments_that_we_would_not_have_deleted_yet_tell_of_another(crashed: bool) -> None:
    """Its queues are then the only memory of what lay in them: offsets go on behind it."""
    disk = SimDisk()
    store = Store.open(SETTINGS, disk)
    StoreWriter(store).write([Draft("Old", body=b"o" * 300) for _ in range(10)])
    StoreWriter(store).write([Draft("New", body=b"n" * 300) for _ in range(10)])
    store.flush()
    ours = contents(disk, PATHS.kourou)
    disk.kill()
    disk.remove_tree(PATHS.kourou)
    other = Store.open(SETTINGS, disk)
    delete_before(other, other.end // SIZE * SIZE)
    start = other.log_range()[0]
    disk.kill() if crashed else other.close()
    put_back(disk, ours)
    again = Store.open(SETTINGS, disk)
    assert again.report.external_writes == f"segments up to {start} were deleted, 0 was projected"
    (new,) = StoreWriter(again).write([Draft("Old")])
    assert new.offset == 10
