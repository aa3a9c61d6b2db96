"""What was just appended is projected from memory, and that makes no difference."""

import numpy as np
import pytest

from kourou.protocol.record.columns import columns
from kourou.store import store as store_module
from kourou.store.recovery import replay
from kourou.store.replica.copies import _PIECES_MAX, FreshAppends
from kourou.store.store import Store
from kourou.testing.disk import SimDisk
from kourou_rigs.store import Draft, StoreWriter, small_settings


def drafts(count: int, first: int = 0) -> list[Draft]:
    return [
        Draft(f"Topic{n % 2}", n % 3, bytes([n % 251]) * n, f"T{n % 3}", (f"k{n}", "all"))
        for n in range(first, first + count)
    ]


def files(disk: SimDisk) -> dict[str, bytes]:
    return {
        str(path): disk.read(path)
        for path in disk.files()
        if "consumequeue" in str(path) or "index" in str(path)
    }


@pytest.mark.parametrize("known", [False, True])
def test_projections_are_the_same_whether_the_log_is_read_again_or_not(
    tmp_path, monkeypatch, known
) -> None:
    made: dict[bool, dict[str, bytes]] = {}
    for fresh in (False, True):
        disk = SimDisk(0)
        store = Store.open(small_settings(tmp_path), disk)
        writer = StoreWriter(store)
        read_again = []
        walk = replay.runs

        def watched(*args, walk=walk, read_again=read_again):
            for found in walk(*args):
                read_again.append(found)
                yield found

        monkeypatch.setattr(store_module, "runs", watched)
        for turn, count in enumerate([1, 7, 1, 30, 2, 1, 1, 12]):
            written = writer.stamp(drafts(count, turn * 31))
            if store.space.allocated_end < writer._end:
                store.allocate_next(writer._end)
            ((_, _, position),) = writer._runs
            data = b"".join(item.record for item in written)
            sizes = np.array([len(item.record) for item in written], np.int64)
            records = columns(data, np.cumsum(sizes) - sizes, sizes) if known else None
            if not fresh:
                store._fresh.take()
            store.append([(position, data)], [], writer._end, records)
            if not fresh:
                store._fresh.take()
            advanced = store.dispatch()
            assert sum(one.max_offset - one.first_offset for one in advanced) == count
        assert bool(read_again) is not fresh
        store.flush()
        store.checkpoint()
        made[fresh] = files(disk)
        store.close()
    assert made[True] == made[False]


def test_what_lies_before_is_projected_first(tmp_path) -> None:
    """On a full disk the queues fall behind; what comes then must not overtake it."""
    disk = SimDisk(0)
    store = Store.open(small_settings(tmp_path, index_enabled=False), disk)
    writer = StoreWriter(store)
    writer.write(drafts(1), dispatch=False)
    store._fresh.take()
    writer.write(drafts(1, 1), dispatch=False)
    advanced = store.dispatch()
    assert [(one.topic, one.queue_id) for one in advanced] == [("Topic0", 0), ("Topic1", 1)]
    assert store.dispatch_behind_bytes == 0
    store.close()


@pytest.mark.parametrize("count", [1, 2, 7, 40])
def test_the_records_of_a_piece_are_projected_without_reading_the_log(
    tmp_path, monkeypatch, count
) -> None:
    store = Store.open(small_settings(tmp_path), SimDisk(0))
    writer = StoreWriter(store)
    monkeypatch.setattr(store_module, "runs", lambda *_: iter(()))
    written = writer.stamp(drafts(count))
    ((_, _, position),) = writer._runs
    data = b"".join(item.record for item in written)
    store.append([(position, data)], [], writer._end)
    advanced = store.dispatch()
    assert sum(one.max_offset - one.first_offset for one in advanced) == count
    assert store.dispatched == writer._end
    store.close()


def test_only_single_pieces_are_kept_and_not_without_end(tmp_path) -> None:
    fresh = FreshAppends()
    store = Store.open(small_settings(tmp_path), SimDisk(0))
    whole = StoreWriter(store).stamp(drafts(1))[0].record
    store.close()
    fresh.note(0, [(0, whole), (500, whole)], None)
    assert list(fresh.take()) == []
    for number in range(_PIECES_MAX + 5):
        fresh.note(number, [(number, whole)], None)
    assert len(list(fresh.take())) == _PIECES_MAX
    assert list(fresh.take()) == []
