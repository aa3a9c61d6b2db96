from __future__ import annotations

import random
import threading
from pathlib import Path

import numpy as np
import pytest

from kourou.errors import ConfigError, Corrupt, DiskFull, Rejected, StoreFaulted
from kourou.model.limits import MEMBERS_MAX
from kourou.protocol.record.columns import RecordColumns, columns
from kourou.protocol.record.message_record import encode_blank
from kourou.store import store as store_module
from kourou.store.paths import StorePaths
from kourou.store.real_disk import RealDisk
from kourou.store.recovery import scan
from kourou.store.recovery.scan import good_run
from kourou.store.replica import chunks
from kourou.store.replica.chunks import check_chunk, filler_end
from kourou.store.replica.copies import _PIECES_MAX, FreshAppends
from kourou.store.store import Store
from kourou.testing.disk import PowerLost, SimDisk
from kourou_rigs.records import RecordRun
from kourou_rigs.store import Draft, StoreWriter, Written, follow, readable, small_settings

ROOT = Path("/store")
PATHS = StorePaths.under(ROOT)
SIZE = 2048


def opened(disk: SimDisk | None = None, **changes: object) -> Store:
    settings = small_settings(ROOT, **{"segment_size_bytes": SIZE, **changes})
    return Store.open(settings, disk or SimDisk())


def traffic(
    store: Store, seed: int = 0, batches: int = 30, *, without_crc: float = 0
) -> list[Written]:
    """Batches of one to nine messages in three queues of two topics; segments end anywhere."""
    rng = random.Random(seed)
    writer = StoreWriter(store)
    written: list[Written] = []
    for number in range(batches):
        drafts = [
            Draft(
                rng.choice(("TopicA", "TopicB")),
                rng.randrange(3),
                rng.randbytes(rng.choice((0, 7, 90, 400, 1200))),
                tag=rng.choice(("", "red")),
                keys=(f"k{number}",),
                with_crc=rng.random() >= without_crc,
            )
            for _ in range(rng.randrange(1, 10))
        ]
        written += writer.write(drafts)
    return written


def log_files(disk: SimDisk, end: int) -> dict[str, bytes]:
    """The segments that have records, whole."""
    return {
        path.name: disk.read(path)
        for path in disk.files()
        if path.parent == PATHS.commit_log and int(path.name) < end
    }


def projections(disk: SimDisk) -> dict[str, bytes]:
    return {
        str(path): disk.read(path)
        for path in disk.files()
        if path.is_relative_to(PATHS.consume_queue) or path.is_relative_to(PATHS.index)
    }


def flip(disk: SimDisk, item: Written, at: int = 100) -> None:
    path = PATHS.segment(item.position - item.position % SIZE)
    place = item.position % SIZE + at
    disk.overwrite(path, bytes([disk.read(path)[place] ^ 1]), place)


@pytest.mark.feature("F131")
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("max_bytes", [1, 500, 4096, 1 << 20])
def test_a_copied_log_is_byte_for_byte_the_leaders(seed: int, max_bytes: int) -> None:
    ours, theirs = SimDisk(), SimDisk()
    leader, follower = opened(ours), opened(theirs)
    written = traffic(leader, seed, without_crc=0.1)
    chunks = follow(leader, follower, max_bytes=max_bytes)
    assert chunks >= (leader.end - 1) // SIZE
    assert follower.end == leader.end
    assert follower.dispatch_behind_bytes == 0
    assert log_files(theirs, leader.end) == log_files(ours, leader.end)
    for topic in ("TopicA", "TopicB"):
        assert readable(follower, topic) == readable(leader, topic)
    hit = follower.find_by_key(written[-1].topic, "k29", max_count=64, begin_ms=0, end_ms=1 << 60)
    assert written[-1].record in [bytes(record) for record in hit]
    leader.close()
    follower.close()
    assert not theirs.exists(PATHS.abort)
    assert projections(theirs) == projections(ours)
    theirs.remove_tree(PATHS.consume_queue)
    theirs.remove_tree(PATHS.index)
    opened(theirs).close()
    assert projections(theirs) == projections(ours)


@pytest.fixture
def checked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The positions at which records were looked at, to be sent."""
    found: list[int] = []

    def counted(view: memoryview, position: int) -> RecordColumns:
        found.append(position)
        return good_run(view, position)

    monkeypatch.setattr(chunks, "good_run", counted)
    return found


@pytest.mark.parametrize("changes", [{}, {"read_mode": "pread"}])
def test_followers_in_step_are_sent_what_was_checked_once(
    checked: list[int], changes: dict[str, object]
) -> None:
    leader = opened(**changes)
    traffic(leader)
    first = leader.read_chunk(0, leader.end, 500)
    assert leader.read_chunk(0, leader.end, 500) == first
    assert checked == ([0, 0] if changes else [0])
    following = leader.read_chunk(first.end, leader.end, 500)
    assert leader.read_chunk(0, leader.end, 500) == first  # not in step
    assert leader.read_chunk(0, leader.end, 600).position == 0  # nor of that length
    assert checked[-3:] == [following.position, 0, 0]


@pytest.mark.parametrize("changes", [{}, {"read_mode": "pread"}])
def test_what_was_appended_a_moment_ago_is_sent_as_it_is(
    checked: list[int], changes: dict[str, object]
) -> None:
    leader = opened(**changes)
    writer = StoreWriter(leader)
    writer.write([Draft(body=bytes(10))])
    start = leader.end
    written = writer.write([Draft(body=bytes(100)), Draft(body=bytes(50))])
    chunk = leader.read_chunk(start, leader.end, 1 << 20)
    assert chunk.data == b"".join(bytes(one.record) for one in written)
    assert checked == ([start] if changes else [])
    writer.write([Draft(body=bytes(10))])
    leader.read_chunk(start, leader.end, 1 << 20)
    assert checked[-1:] == [start]  # not all of it was appended at once


def test_what_a_follower_refuses_again_and_again_is_checked_again() -> None:
    disk = SimDisk()
    leader = opened(disk)
    first, *_ = traffic(leader)
    assert not leader.read_chunk(0, leader.end, 1).damage
    flip(disk, first)
    for _ in range(MEMBERS_MAX - 1):
        assert not leader.read_chunk(0, leader.end, 1).damage
    assert leader.read_chunk(0, leader.end, 1).damage


def test_a_chunk_ends_where_a_segment_does_and_a_filler_travels_as_its_header() -> None:
    leader = opened()
    StoreWriter(leader).write([Draft(body=bytes(1000)) for _ in range(3)])
    first = leader.read_chunk(0, leader.end, 1 << 20)
    assert first.end == SIZE
    assert len(first.data) < SIZE
    assert bytes(first.data[-4:]) == bytes.fromhex("cbd43194")
    only_record = leader.read_chunk(0, len(first.data) - 8, 1 << 20)
    assert only_record.end == len(first.data) - 8
    filler = leader.read_chunk(only_record.end, leader.end, 1 << 20)
    assert (len(filler.data), filler.end) == (8, SIZE)
    empty = leader.read_chunk(leader.end, leader.end, 1 << 20)
    assert (len(empty.data), empty.end) == (0, leader.end)


def test_a_record_larger_than_asked_for_comes_alone() -> None:
    leader = opened()
    first, _, _ = StoreWriter(leader).write([Draft(body=bytes(500)) for _ in range(3)])
    assert leader.read_chunk(0, leader.end, 100).end == first.end
    assert leader.read_chunk(0, leader.end, len(first.record) + 50).end == first.end


def test_nothing_is_copied_out_of_a_mapped_log(tmp_path: Path) -> None:
    settings = small_settings(tmp_path)
    store = Store.open(settings, RealDisk())
    StoreWriter(store).write([Draft(body=bytes(500)) for _ in range(3)])
    chunk = store.read_chunk(0, store.end, 1 << 20)
    assert chunk.data.readonly
    assert chunk.data.obj is store.record_at(0).obj
    store.close()


def test_what_does_not_follow_is_refused_and_changes_nothing() -> None:
    ours, theirs = SimDisk(), SimDisk()
    leader, follower = opened(ours), opened(theirs)
    traffic(leader, batches=3)
    chunk = leader.read_chunk(0, leader.end, 600)
    data = bytes(chunk.data)
    before = theirs.read(PATHS.segment(0))
    for position in (8, SIZE):
        with pytest.raises(Rejected, match="ends at 0"):
            follower.append_chunk(position, data)
    for bad in (data[:-1], data + b"\0", data[1:], b"\0" * 100, b"x", data + data):
        with pytest.raises(Corrupt):
            follower.append_chunk(0, bad)
    for bit in range(0, 8 * len(data), 5):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        try:
            follower.append_chunk(0, bytes(flipped))
        except Corrupt:
            continue
        raise AssertionError(f"bit {bit} was flipped and nobody saw it")
    assert theirs.read(PATHS.segment(0)) == before
    assert follower.end == 0
    assert follower.append_chunk(0, data) == chunk.end
    with pytest.raises(Rejected, match="ends at"):
        follower.append_chunk(0, data)


def test_a_chunk_from_another_place_is_refused() -> None:
    leader, follower = opened(), opened()
    StoreWriter(leader).write([Draft(body=bytes(50)), Draft(body=bytes(50))])
    first = leader.read_chunk(0, leader.end, 1)
    second = bytes(leader.read_chunk(first.end, leader.end, 1).data)
    with pytest.raises(Corrupt, match="fails its check"):
        follower.append_chunk(0, second)


def test_a_store_that_stages_appends_copies_nothing() -> None:
    leader, follower = opened(), opened(staging_buffers=2)
    traffic(leader, batches=1)
    with pytest.raises(ConfigError, match="cannot stage its log"):
        follower.append_chunk(0, bytes(leader.read_chunk(0, leader.end, 1 << 20).data))


def test_without_room_nothing_is_written_and_later_it_goes_on() -> None:
    leader, follower = opened(), opened()
    traffic(leader, batches=4)
    while follower.end < SIZE:
        follow(leader, follower, limit=leader.read_chunk(follower.end, leader.end, 1).end)
    follow(leader, follower, limit=leader.read_chunk(follower.end, leader.end, SIZE).end)
    disk = follower._disk
    assert isinstance(disk, SimDisk)
    used = disk.capacity_bytes - disk.usage(ROOT)[1]
    capacity, disk.capacity_bytes = disk.capacity_bytes, used
    end = follower.end
    with pytest.raises(DiskFull):
        follow(leader, follower)
    assert follower.end >= end
    disk.capacity_bytes = capacity
    follow(leader, follower)
    assert readable(follower) == readable(leader)


def test_a_failed_flush_ends_copying() -> None:
    leader, follower = opened(), opened()
    traffic(leader, batches=4)
    follow(leader, follower, limit=leader.read_chunk(0, leader.end, 1).end)
    follower._disk.fail_sync(1)  # type: ignore[attr-defined]  # it is a SimDisk
    with pytest.raises(StoreFaulted):
        follower.flush()
    with pytest.raises(StoreFaulted):
        follow(leader, follower)


def test_what_is_only_staged_is_not_read() -> None:
    leader = opened(staging_buffers=2)
    StoreWriter(leader).write([Draft()])
    assert leader.read_chunk(0, leader.end, 1000).end == 0
    leader.write_out()
    assert leader.read_chunk(0, leader.end, 1000).end == leader.end


def test_damage_is_said_remembered_and_never_shipped_as_good() -> None:
    disk = SimDisk()
    leader = opened(disk)
    written = traffic(leader, 3)
    victim = written[len(written) // 2]
    flip(disk, victim)
    found = leader.read_chunk(0, leader.end, 1 << 20)
    while found.end < victim.position:
        assert not found.damage
        found = leader.read_chunk(found.end, leader.end, 1 << 20)
    if not found.damage:
        found = leader.read_chunk(found.end, leader.end, 1 << 20)
    assert found.damage
    assert (found.position, found.end) == (victim.position, victim.end)
    assert [(one.start, one.end) for one in leader.damaged_regions] == [
        (victim.position, victim.end)
    ]
    assert opened(disk.kill()).damaged_regions == leader.damaged_regions


def test_a_place_inside_a_record_is_no_damage() -> None:
    leader = opened()
    (only,) = StoreWriter(leader).write([Draft(body=bytes(300))])
    for position in (1, 88, only.end - 1):
        with pytest.raises(Rejected, match="no record begins"):
            leader.read_chunk(position, leader.end, 1000)
    for position in (-1, only.end + 1):
        with pytest.raises(Rejected, match="not in the log"):
            leader.read_chunk(position, leader.end, 1000)
    assert not leader.damaged_regions


def test_a_damaged_region_is_copied_as_what_it_is() -> None:
    ours, theirs = SimDisk(), SimDisk()
    leader, follower = opened(ours), opened(theirs)
    written = traffic(leader, 4)
    victim = written[40]
    flip(ours, victim)
    follow(leader, follower, max_bytes=256)
    assert log_files(theirs, leader.end) == log_files(ours, leader.end)
    rest = [item.record for item in written if item is not victim]
    assert sorted(readable(follower, "TopicA") + readable(follower, "TopicB")) == sorted(rest)
    (low, high) = follower.queue_range(victim.topic, victim.queue_id) or (0, 0)
    assert (low, high) == (leader.queue_range(victim.topic, victim.queue_id))
    again = opened(theirs.kill())
    assert again.end == leader.end
    assert sorted(readable(again, "TopicA") + readable(again, "TopicB")) == sorted(rest)


def test_damage_in_pieces_is_one_region_which_a_record_over_their_border_repairs() -> None:
    disk = SimDisk()
    leader, follower = opened(disk), opened()
    first, only = StoreWriter(leader).write([Draft(), Draft(body=bytes(300))])
    good = bytes(leader.read_chunk(only.position, only.end, 1 << 20).data)
    flip(disk, only)
    follow(leader, follower, max_bytes=100)
    (region,) = follower.damaged_regions
    assert (region.start, region.end) == (only.position, only.end) == (first.end, follower.end)
    assert follower.repair(only.position, good) == only.end
    assert not follower.damaged_regions


def test_damage_of_two_segments_is_two_regions() -> None:
    follower = opened()
    follower.append_damaged(0, bytes(SIZE), SIZE, "rot")
    follower.append_damaged(SIZE, bytes(10), SIZE + 10, "rot")
    follower.append_damaged(SIZE + 10, bytes(10), SIZE + 20, "rot")
    found = [(one.start, one.end) for one in follower.damaged_regions]
    assert found == [(0, SIZE), (SIZE, SIZE + 20)]


def test_a_damaged_chunk_must_be_as_long_as_it_says() -> None:
    follower = opened()
    for data, end in ((b"x" * 10, 11), (b"", 0), (b"x" * (SIZE + 1), SIZE + 1)):
        with pytest.raises(Corrupt):
            follower.append_damaged(0, data, end, "rotten")


@pytest.mark.parametrize("reopened", [False, True])
def test_a_peers_bytes_repair_what_is_damaged_here(reopened: bool) -> None:
    ours, theirs = SimDisk(), SimDisk()
    leader, follower = opened(ours), opened(theirs)
    written = traffic(leader, 5)
    follow(leader, follower)
    leader.checkpoint()
    victim = written[30]
    flip(ours, victim)
    assert any(
        leader.read_chunk(item.position, item.end, 1 << 20).damage
        for item in written
        if item is victim
    )
    if reopened:
        leader.close()
        leader = opened(ours.kill())
    region = leader.damaged_regions[0]
    chunk = follower.read_chunk(region.start, region.end, 1 << 20)
    bad = bytearray(chunk.data)
    bad[100] ^= 1
    with pytest.raises(Corrupt):
        leader.repair(region.start, bytes(bad))
    assert leader.damaged_regions == [region]
    assert leader.repair(region.start, bytes(chunk.data)) == region.end
    assert not leader.damaged_regions
    for store in (leader, opened(ours.crash())):
        assert not store.damaged_regions
        found = readable(store, "TopicA") + readable(store, "TopicB")
        assert sorted(found) == sorted(item.record for item in written)


def test_repair_gives_a_lost_unit_back() -> None:
    ours, theirs = SimDisk(), SimDisk()
    leader, follower = opened(ours), opened(theirs)
    written = traffic(leader, 5)
    follow(leader, follower)
    victim = written[30]
    flip(ours, victim, 12)  # its queue id
    leader.read_chunk(victim.position, victim.end, 1 << 20)
    leader.close()
    ours.remove_tree(PATHS.consume_queue)
    leader = opened(ours.kill())
    assert leader.report.rebuilt
    assert len(readable(leader, victim.topic)) < len(readable(follower, victim.topic))
    chunk = follower.read_chunk(victim.position, victim.end, 1 << 20)
    leader.repair(chunk.position, bytes(chunk.data))
    for topic in ("TopicA", "TopicB"):
        assert readable(leader, topic) == readable(follower, topic)


def test_only_what_is_damaged_is_repaired() -> None:
    leader = opened()
    traffic(leader, batches=2)
    chunk = leader.read_chunk(0, leader.end, 1)
    with pytest.raises(Rejected, match="no damaged region"):
        leader.repair(0, bytes(chunk.data))


def test_a_crash_during_repair_leaves_the_region_or_mends_it() -> None:
    for step in range(1, 12):
        ours, theirs = SimDisk(step), SimDisk()
        leader, follower = opened(ours), opened(theirs)
        written = traffic(leader, 6, batches=12)
        follow(leader, follower)
        leader.checkpoint()
        victim = written[len(written) // 2]
        flip(ours, victim)
        leader.read_chunk(victim.position, victim.end, 1 << 20)
        chunk = bytes(follower.read_chunk(victim.position, victim.end, 1 << 20).data)
        ours.cut_power(step)
        done = False
        try:
            leader.repair(victim.position, chunk)
            done = True
        except PowerLost:
            pass
        again = opened(ours.crash())
        if again.damaged_regions:
            assert not done, step
            again.repair(victim.position, chunk)
        for topic in ("TopicA", "TopicB"):
            assert readable(again, topic) == readable(follower, topic), step


def test_flushing_goes_on_in_another_thread_while_chunks_come() -> None:
    leader, follower = opened(), opened()
    traffic(leader, 1, batches=60)
    done = threading.Event()

    def flush() -> None:
        while not done.is_set():
            follower.flush()

    thread = threading.Thread(target=flush)
    thread.start()
    try:
        follow(leader, follower, max_bytes=300)
    finally:
        done.set()
        thread.join()
    assert follower.flush() == leader.end


@pytest.mark.parametrize("replicated", [True, False])
def test_damage_that_a_reader_meets_is_remembered_where_others_can_mend_it(
    *, replicated: bool
) -> None:
    disk = SimDisk()
    store = opened(disk, replicated=replicated)
    written = StoreWriter(store).write([Draft(body=bytes([n]) * 30) for n in range(9)])
    flip(disk, written[4])
    found = store.read_queue(
        "TopicA", 0, 0, max_messages=9, max_bytes=1 << 20, codes=None, below=1 << 60
    )
    assert found.corrupt_offsets == [4]
    regions = [(one.start, one.end) for one in store.damaged_regions]
    assert regions == ([(written[4].position, written[4].end)] if replicated else [])


def test_a_queue_that_names_no_record_damages_no_log() -> None:
    store = opened(replicated=True)
    written = StoreWriter(store).write([Draft(body=bytes([n]) * 30) for n in range(9)])
    store._met_damage([-1, written[4].position + 7, store.end, store.end + 9])
    assert not store.damaged_regions


# -- chunks ----------------------------------------------------------------------------------------


CHUNKS_SIZE = 1024


def run_of(count: int, position: int = 0) -> RecordRun:
    run = RecordRun(position=position)
    for number in range(count):
        run.add("TopicA", number % 2, body=bytes(number))
    return run


def test_a_filler_of_another_size_or_with_something_behind_it_is_none() -> None:
    run = run_of(3, CHUNKS_SIZE)
    room = 2 * CHUNKS_SIZE - run.end
    for tail in (
        encode_blank(room - 1),
        encode_blank(room)[:7],
        encode_blank(room) + b"\0",
        encode_blank(room) + run.data,
    ):
        with pytest.raises(Corrupt, match=str(run.end)):
            check_chunk(run.data + tail, CHUNKS_SIZE, CHUNKS_SIZE)
    assert filler_end(encode_blank(room), run.end, CHUNKS_SIZE) == 2 * CHUNKS_SIZE
    assert filler_end(b"", run.end, CHUNKS_SIZE) is None


def test_a_chunk_lies_in_one_segment() -> None:
    run = run_of(12, CHUNKS_SIZE)
    assert run.end > 2 * CHUNKS_SIZE
    with pytest.raises(Corrupt, match="exceed the end"):
        check_chunk(run.data, CHUNKS_SIZE, CHUNKS_SIZE)
    assert check_chunk(run.data, CHUNKS_SIZE, 4 * CHUNKS_SIZE).end == run.end


# -- what was just appended is projected from memory, and that makes no difference -----------------


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
        walk = scan.runs

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


# -- whether a copy was ever complete --------------------------------------------------------------


@pytest.mark.parametrize("complete", [False, True])
def test_a_store_knows_after_a_power_loss_whether_its_copy_was_ever_complete(complete) -> None:
    disk, leader = SimDisk(), opened()
    traffic(leader)
    follower = opened(disk)
    assert follower.uncopied, "its log is empty"
    follower.mark_uncopied()
    follow(leader, follower)
    follower.flush()
    if complete:
        follower.copy_completed()
        follower.copy_completed()
    again = opened(disk.crash())
    assert again.end == leader.end
    assert again.uncopied is not complete


def test_a_mark_that_cannot_be_kept_is_an_error() -> None:
    disk = SimDisk()
    follower = opened(disk)
    disk.fail_sync(1)
    with pytest.raises(StoreFaulted, match="uncopied"):
        follower.mark_uncopied()
