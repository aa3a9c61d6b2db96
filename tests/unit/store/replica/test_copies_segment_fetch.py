from __future__ import annotations

from pathlib import Path

import pytest

from kourou.errors import Corrupt, DiskFull, Rejected
from kourou.store.paths import StorePaths
from kourou.store.replica.copies import SegmentFetch
from kourou.store.store import Store
from kourou.testing.disk import PowerLost, SimDisk
from kourou_rigs.store import Draft, StoreWriter, follow, readable, small_settings

ROOT = Path("/store")
PATHS = StorePaths.under(ROOT)
SIZE = 2048
SETTINGS = small_settings(ROOT, segment_size_bytes=SIZE, replicated=True)


def filled() -> Store:
    leader = Store.open(SETTINGS, SimDisk())
    StoreWriter(leader).write([Draft(queue_id=n % 3, body=bytes(10 * n)) for n in range(40)])
    return leader


def fetch(leader: Store, member: Store, pieces: int = 1 << 30) -> SegmentFetch:
    """Fetch, of the member's next segment, so many pieces."""
    segment = member.fetch_segment()
    while segment.have < segment.end and pieces:
        chunk = leader.read_chunk(segment.have, leader.end, 400)
        assert segment.write(chunk.position, bytes(chunk.data)) == chunk.end
        pieces -= 1
    return segment


def test_whole_segments_make_the_same_log_and_projections() -> None:
    leader, ours, theirs = filled(), SimDisk(1), SimDisk(2)
    member, alike = Store.open(SETTINGS, ours), Store.open(SETTINGS, theirs)
    while leader.end - member.end > SIZE:
        segment = fetch(leader, member)
        segment.finish()
        assert member.adopt_segment(segment) == segment.end
        if segment.start == 0:
            member.dispatch()
    follow(leader, member)
    follow(leader, alike)
    assert readable(member) == readable(alike) == readable(leader)
    assert member.flush() == leader.end
    assert member.dispatch_behind_bytes == 0
    member.close()
    alike.close()
    for path in ours.files():
        if path.parent in (PATHS.commit_log, PATHS.index) or "consumequeue" in path.parts:
            assert ours.read(path) == theirs.read(path), path
    assert ours.list_dir(PATHS.incoming) == []


def test_a_fetch_goes_on_where_it_was_interrupted() -> None:
    leader, disk = filled(), SimDisk(1)
    member = Store.open(SETTINGS, disk)
    begun = fetch(leader, member, 2)
    assert begun.have > 0
    begun.close()
    member.close()
    again = Store.open(SETTINGS, disk).fetch_segment()
    assert again.have == begun.have


def test_only_the_next_whole_segment_is_adopted() -> None:
    leader = filled()
    member = Store.open(SETTINGS, SimDisk(1))
    segment = fetch(leader, member, 2)
    with pytest.raises(Rejected, match="is here up to"):
        segment.finish()
    with pytest.raises(Rejected, match="is fetched up to"):
        member.adopt_segment(segment)
    chunk = leader.read_chunk(segment.have, leader.end, 1)
    with pytest.raises(Corrupt):
        segment.write(chunk.position, bytes(chunk.data)[:-1])
    with pytest.raises(Rejected, match="is here up to"):
        segment.write(chunk.end, bytes(chunk.data))
    follow(leader, member, limit=leader.read_chunk(0, leader.end, 1).end)
    with pytest.raises(Rejected, match="middle of a segment"):
        member.fetch_segment()
    with pytest.raises(Rejected, match="ends at"):
        member.adopt_segment(segment)


def test_without_room_there_is_no_fetch() -> None:
    disk = SimDisk(1)
    member = Store.open(SETTINGS, disk)
    disk.capacity_bytes = disk.capacity_bytes - disk.usage(ROOT)[1]
    with pytest.raises(DiskFull):
        member.fetch_segment()


def test_a_crash_anywhere_leaves_the_segment_or_not() -> None:
    leader = filled()
    for step in range(1, 12):
        disk = SimDisk(step)
        member = Store.open(SETTINGS, disk)
        disk.cut_power(step)
        flushed = 0
        try:
            segment = fetch(leader, member)
            segment.finish()
            member.adopt_segment(segment)
            member.dispatch()
            flushed = member.flush()
        except PowerLost:
            pass
        member = Store.open(SETTINGS, disk.crash())
        assert member.end >= flushed, step
        follow(leader, member)
        assert readable(member) == readable(leader), step
