from __future__ import annotations

import errno

import pytest

from kourou.errors import Corrupt, Rejected, StoreFaulted
from kourou.store.config.durable_files import SealedFile
from kourou.store.replica import truncation as cutting
from kourou.testing.disk import PowerLost, SimDisk
from kourou_rigs.parted import (
    PATHS,
    SIZE,
    all_records,
    boundaries,
    len_common,
    opened,
    pair,
    records_below,
    state,
    write,
)
from kourou_rigs.store import Draft, StoreWriter, delete_before, follow


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("how", ["live", "closed", "flushed", "checkpointed"])
def test_after_a_cut_the_store_is_what_it_was_at_that_position(seed: int, how: str) -> None:
    disk = SimDisk(seed)
    store = opened(disk)
    before = write(store, 12, seed)
    # What a store looks like that never had the tail.
    other = SimDisk(seed)
    alike = opened(other)
    write(alike, 12, seed)
    position = store.end
    tail = write(store, 15, seed + 1)
    StoreWriter(store).write([Draft("New", 0, b"only in the tail")])
    if how == "closed":
        store.close()
        store = opened(disk.kill())
    elif how == "flushed":
        store.flush()
    elif how == "checkpointed":
        store.checkpoint()
    end = store.end
    cut = store.cut(position, position)
    assert (cut.position, cut.end, cut.saved_bytes) == (position, end, end - position)
    assert cut.saved is not None
    data = disk.read(cut.saved)
    assert len(data) == end - position
    for item in tail:
        assert data[item.position - position : item.end - position] == item.record
    again = opened(disk.kill())
    assert not again.report.rebuilt, again.report.problems
    assert state(again) == state(alike)
    assert all_records(again) == sorted(item.record for item in before)
    assert again.find_by_key("New", "x", max_count=9, begin_ms=0, end_ms=1 << 60) == []
    for item in tail:
        for name in ("TopicA", "TopicB"):
            number = tail.index(item)
            key = f"s{seed + 1}n{number}"
            assert not again.find_by_key(name, key, max_count=9, begin_ms=0, end_ms=1 << 60)
    assert not disk.exists(PATHS.cut)
    write(again, 5, seed + 2)
    write(alike, 5, seed + 2)
    assert state(again) == state(alike)
    again.close()
    alike.close()
    assert log_of(disk) == log_of(other)
    third = opened(disk)
    assert third.report.way == "after a clean stop"
    assert not third.report.problems
    assert state(third) == state(opened(other))


def log_of(disk: SimDisk) -> dict[str, bytes]:
    return {p.name: disk.read(p) for p in disk.files() if p.parent == PATHS.commit_log}


def test_a_tail_of_records_of_the_same_sizes_does_not_come_back() -> None:
    """RocketMQ's bug: behind a shorter new tail the old records stand where they would follow."""
    leader, disk = pair(5, fixed=100)
    member = opened(disk.kill())
    common = 12
    position = next(
        p for p in boundaries(leader) if p > 0 and len(records_below(leader, p)) == common
    )
    member.cut(position, 0)
    member = opened(disk.kill())
    follow(leader, member, limit=leader.read_chunk(position, leader.end, 1).end)
    member.flush()
    again = opened(disk.crash())
    assert again.end == leader.read_chunk(position, leader.end, 1).end
    assert len(all_records(again)) == common + 1


def test_what_was_confirmed_is_never_cut() -> None:
    leader, disk = pair(3)
    member = opened(disk.kill())
    position = len_common(leader, member)
    before = state(member)
    with pytest.raises(Corrupt, match="was committed"):
        member.cut(position, position + 1)
    assert state(member) == before
    assert not disk.exists(PATHS.cut)
    assert not disk.list_dir(PATHS.diverged)
    write(member, 1, 9)


def test_only_boundaries_of_the_log_are_cut_at() -> None:
    disk = SimDisk()
    store = opened(disk)
    write(store, 20, 1)
    delete_before(store, SIZE)
    with pytest.raises(Corrupt, match="begins at"):
        store.cut(0, 0)
    for position in (store.end - 1, SIZE + 1):
        with pytest.raises(Rejected, match="no record begins"):
            store.cut(position, 0)
    with pytest.raises(Rejected, match="ends at"):
        store.cut(store.end + 1, 0)
    store.cut(store.end, 0)
    assert opened(disk.kill()).log_range()[0] == SIZE


def test_a_whole_log_can_be_cut_and_a_crash_leaves_it_empty() -> None:
    for step in range(0, 40, 3):
        disk = SimDisk(step)
        store = opened(disk)
        write(store, 30, 1)
        delete_before(store, 2 * SIZE)
        start = store.log_range()[0]
        assert start == 2 * SIZE
        store.cut(start, start)
        disk.kill()
        if step:
            disk.cut_power(step)
            try:
                opened(disk)
            except PowerLost:
                disk = disk.crash()
            disk.kill()
        again = opened(disk)
        assert again.log_range() == (start, start), step
        assert not all_records(again)


def test_what_was_damaged_in_the_tail_is_no_concern_any_more() -> None:
    leader, disk = pair(7)
    member = opened(disk.kill())
    position = len_common(leader, member)
    victim = [p for p in boundaries(member) if p > position][2]
    disk.overwrite(PATHS.segment(victim - victim % SIZE), b"\xff\xff\xff", victim % SIZE + 4)
    assert member.read_chunk(victim, member.end, 1 << 20).damage
    member.cut(position, position)
    member = opened(disk.kill())
    assert not member.damaged_regions
    follow(leader, member)
    assert state(member)["records"] == state(leader)["records"]
    assert not opened(disk.kill()).damaged_regions


def test_queues_that_are_built_again_do_not_remember_offsets_of_the_tail() -> None:
    disk = SimDisk()
    store = opened(disk)
    write(store, 20, 1)
    position = store.end
    before = state(store)["queues"]
    write(store, 20, 2)
    delete_before(store, SIZE)  # writes down where queues end, the tail included
    store.cut(position, position)
    store = opened(disk.kill())
    store.close()
    disk.remove_tree(PATHS.consume_queue)
    store = opened(disk.kill())
    assert store.report.rebuilt
    ends = {target: span[1] for target, span in state(store)["queues"].items()}  # type: ignore[attr-defined]  # a dict
    assert ends == {target: span[1] for target, span in before.items()}  # type: ignore[attr-defined]  # a dict


def test_tails_that_are_kept_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cutting, "DIVERGED_FILES_MAX", 3)
    monkeypatch.setattr(cutting, "DIVERGED_BYTES_MAX", 4_000)
    disk = SimDisk()
    store = opened(disk)
    write(store, 3, 0)
    for seed in range(9):
        position = store.end
        write(store, seed + 1, seed)
        cut = store.cut(position, 0)
        assert cut.saved is not None
        assert cut.saved_bytes == min(cut.end - position, 4_000)
        kept = disk.list_dir(PATHS.diverged)
        assert cut.saved.name == kept[-1]
        assert len(kept) <= 3
        assert sum(len(disk.read(PATHS.diverged / name)) for name in kept) <= 4_000
        store = opened(disk.kill())


def test_a_tail_is_kept_once_however_often_the_cut_is_tried() -> None:
    disk = SimDisk()
    store = opened(disk)
    write(store, 3, 0)
    position = store.end
    write(store, 5, 1)
    store.flush()
    for step in range(1, 4):
        disk.cut_power(step)
        with pytest.raises(PowerLost):
            store.cut(position, 0)
        store = opened(disk.crash())
        disk = store._disk  # type: ignore[assignment]  # a SimDisk
    store.cut(position, 0)
    assert len(disk.list_dir(PATHS.diverged)) == 1


def test_without_room_the_tail_is_cut_all_the_same(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    disk = SimDisk()
    store = opened(disk)
    write(store, 3, 0)
    position = store.end
    write(store, 5, 1)

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(cutting, "_write", full)
    cut = store.cut(position, 0)
    assert (cut.saved, cut.saved_bytes) == (None, 0)
    assert "no disk space" in caplog.text
    assert opened(disk.kill()).end == position


def test_a_failing_disk_ends_the_store_and_nothing_is_cut() -> None:
    for nth in range(1, 4):
        disk = SimDisk()
        store = opened(disk)
        write(store, 8, 0)
        store.flush()
        end = store.end
        disk.fail_sync(nth)
        with pytest.raises(StoreFaulted):
            store.cut(store.read_chunk(0, end, 1).end, 0)
        assert store.fault
        assert opened(disk.kill()).end == end


def test_an_intent_that_cannot_be_read_keeps_the_store_shut() -> None:
    disk = SimDisk()
    store = opened(disk)
    write(store, 8, 0)
    store.cut(store.read_chunk(0, store.end, 1).end, 0)
    for copy in SealedFile(disk, PATHS.cut, cutting.MAGIC).copies:
        disk.overwrite(copy, b"\xff", 20)
    with pytest.raises(Corrupt, match="cut"):
        opened(disk.kill())
