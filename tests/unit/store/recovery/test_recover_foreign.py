"""A store that somebody else wrote last, or crashed on: what each way of opening must not lose."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from kourou.errors import Corrupt
from kourou.protocol.record.hashes import index_hash
from kourou.store.index.key_index import KeyIndex
from kourou.store.store import Store
from kourou.testing.disk import PowerLost, SimDisk
from kourou_rigs.recovering import PATHS, PROJECTIONS, SETTINGS, SIZE, contents, damage, fill
from kourou_rigs.store import Draft, StoreWriter, Written, delete_before, readable


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
