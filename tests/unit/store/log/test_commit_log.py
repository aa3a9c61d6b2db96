from __future__ import annotations

import errno
import os
import shutil
from contextlib import suppress
from pathlib import Path

import pytest

from kourou.errors import Corrupt, DiskFull, Rejected, StoreFaulted
from kourou.protocol.record.message_record import encode_blank
from kourou.store.disk import Buffer, Disk, File
from kourou.store.log.commit_log import CommitLog, Segment, last_fault_ms, note_fault
from kourou.store.paths import StorePaths
from kourou.store.real_disk import RealDisk
from kourou.testing.disk import PowerLost, SimDisk

PATHS = StorePaths.under(Path("/store"))
SIZE = 4096


def make_log(disk: SimDisk | None = None, *, mapped: bool = True, segments: int = 2) -> CommitLog:
    disk = disk or SimDisk()
    disk.make_dirs(PATHS.commit_log)
    disk.sync_dir(PATHS.root.parent)
    disk.sync_dir(PATHS.root)
    log = CommitLog.open(disk, PATHS, SIZE, mapped=mapped)
    while log.allocated_end < segments * SIZE:
        log.allocate_next()
    return log


@pytest.mark.feature("F063", "F064", "F108")
def test_segments_are_reserved_before_they_are_used() -> None:
    disk = SimDisk()
    log = make_log(disk)
    assert disk.list_dir(PATHS.commit_log) == ["0" * 20, "00000000000000004096"]
    assert all(len(disk.read(path)) == SIZE for path in disk.files())
    assert log.allocated_end == 2 * SIZE
    assert not log.spare_wanted
    log.append(b"x" * SIZE, 0)
    assert not log.spare_wanted
    log.append(b"x", SIZE)
    assert log.spare_wanted


def test_nothing_is_appended_but_at_the_end() -> None:
    log = make_log()
    with pytest.raises(AssertionError):
        log.append(b"x", 1)


def test_without_a_segment_the_disk_counts_as_full() -> None:
    log = make_log(segments=1)
    log.append(b"x" * SIZE, 0)
    with pytest.raises(DiskFull):
        log.append(b"y", SIZE)
    log.allocate_next()
    log.append(b"y", SIZE)


@pytest.mark.parametrize(("position", "size"), [(-1, 1), (0, 11), (9, 2), (10, 1), (SIZE, 1)])
def test_reads_outside_are_rejected(position: int, size: int) -> None:
    log = make_log()
    log.append(bytes(10), 0)
    with pytest.raises(Rejected, match="not in the log"):
        log.view(position, size)


# -- flushing -----------------------------------------------------------------------------------


@pytest.mark.feature("F093", "F110")
def test_a_flush_covers_all_segments_written_before_it() -> None:
    disk = SimDisk(3)
    log = make_log(disk)
    log.append(b"x" * 100, 0)
    log.close_segment(encode_blank(SIZE - 100), 100)
    log.append(b"y" * 50, SIZE)
    assert log.flush() == SIZE + 50
    assert log.flushed == SIZE + 50
    for _ in range(10):
        left = disk.crash()
        assert left.read(PATHS.segment(0))[:100] == b"x" * 100
        assert left.read(PATHS.segment(SIZE))[:50] == b"y" * 50


class _MeanFile:
    """A file during whose write somebody else flushes."""

    def __init__(self, inner: File) -> None:
        self.inner = inner
        self.log: CommitLog | None = None
        self.flushed_meanwhile: list[int] = []

    def __getattr__(self, name: str) -> object:
        return getattr(self.inner, name)

    def pwrite(self, data: Buffer, at: int) -> None:
        self.inner.pwrite(data, at)
        if self.log is not None:
            self.flushed_meanwhile.append(self.log.flush())


class _MeanDisk(SimDisk):
    def open(self, path: Path, *, create_size: int | None = None, allocate: bool = False) -> File:  # type: ignore[override]  # wrapped
        self.last = _MeanFile(super().open(path, create_size=create_size, allocate=allocate))
        return self.last  # type: ignore[return-value]  # it delegates


@pytest.mark.feature("F094")
def test_a_flush_that_began_before_the_write_ended_does_not_cover_it() -> None:
    disk = _MeanDisk()
    log = make_log(disk, segments=1)
    disk.last.log = log
    log.append(b"x" * 10, 0)
    assert disk.last.flushed_meanwhile == [0]
    assert log.flushed == 0
    disk.last.log = None
    syncs = disk.syncs
    assert log.flush() == 10
    assert disk.syncs == syncs + 1, "the segment was forgotten as dirty"


@pytest.mark.fault
def test_the_first_failing_flush_fences_for_good() -> None:
    disk = SimDisk()
    log = make_log(disk)
    log.append(b"x" * 10, 0)
    log.flush()
    log.append(b"y" * 10, 10)
    disk.fail_sync(1)
    with pytest.raises(StoreFaulted, match="Input/output error"):
        log.flush()
    syncs = disk.syncs
    for call in (
        log.flush,
        log.allocate_next,
        lambda: log.append(b"z", 20),
        lambda: log.truncate(10),
    ):
        with pytest.raises(StoreFaulted):
            call()
    assert disk.syncs == syncs, "an fsync was tried again"
    assert log.fault is not None
    assert log.flushed == 10
    assert bytes(log.view(0, 10)) == b"x" * 10
    with pytest.raises(Rejected):
        log.view(10, 1)


@pytest.mark.fault
def test_a_failing_write_fences_too() -> None:
    class Failing(SimDisk):
        broken = False

        def write(self, inode, data, at):  # type: ignore[no-untyped-def]  # as SimDisk
            if self.broken:
                raise OSError(5, "Input/output error")
            super().write(inode, data, at)

    disk = Failing()
    log = make_log(disk)
    disk.broken = True
    with pytest.raises(StoreFaulted, match="writing the log at 0"):
        log.append(b"x", 0)
    assert log.end == 0
    disk.broken = False
    with pytest.raises(StoreFaulted):
        log.append(b"x", 0)


@pytest.mark.fault
def test_a_failing_creation_of_a_segment_fences() -> None:
    disk = SimDisk()
    log = make_log(disk, segments=1)
    disk.fail_sync(1)
    with pytest.raises(StoreFaulted, match="creating"):
        log.allocate_next()
    with pytest.raises(StoreFaulted):
        log.append(b"x", 0)


@pytest.mark.feature("F108")
@pytest.mark.fault
def test_a_full_disk_is_no_fault() -> None:
    disk = SimDisk(capacity_bytes=SIZE + 100)
    log = make_log(disk, segments=1)
    with pytest.raises(DiskFull, match="next log segment"):
        log.allocate_next()
    log.append(b"x" * 10, 0)
    assert log.flush() == 10
    disk.capacity_bytes *= 2
    assert log.allocate_next() == 2 * SIZE


# -- opening ------------------------------------------------------------------------------------


def test_a_missing_segment_is_refused() -> None:
    disk = SimDisk()
    make_log(disk, segments=3)
    disk.unlink(PATHS.segment(SIZE))
    with pytest.raises(Corrupt, match="no segment starts at 4096"):
        CommitLog.open(disk, PATHS, SIZE)


def test_files_that_are_no_segments_are_left_alone() -> None:
    disk = SimDisk()
    make_log(disk)
    disk.open(PATHS.commit_log / "README", create_size=3)
    assert CommitLog.open(disk, PATHS, SIZE).allocated_end == 2 * SIZE


def test_what_a_crash_left_unflushed_is_flushed_when_adopted() -> None:
    disk = SimDisk(1)
    log = make_log(disk)
    log.append(b"x" * 10, 0)
    disk.kill()
    again = CommitLog.open(disk, PATHS, SIZE)
    again.adopt_end(10, 0)
    assert again.flush() == 10
    assert disk.crash().read(PATHS.segment(0))[:10] == b"x" * 10


# -- shrinking ----------------------------------------------------------------------------------


def test_what_is_truncated_never_comes_back() -> None:
    for seed in range(20):
        disk = SimDisk(seed)
        log = make_log(disk, segments=4)
        log.append(b"x" * SIZE, 0)
        log.append(b"y" * SIZE, SIZE)
        log.append(b"z" * 10, 2 * SIZE)
        log.flush()
        log.truncate(100)
        assert (log.end, log.flushed, log.allocated_end) == (100, 100, SIZE)
        left = disk.crash()
        assert left.list_dir(PATHS.commit_log) == ["0" * 20]
        assert left.read(PATHS.segment(0)) == b"x" * 100 + bytes(SIZE - 100)


def test_a_power_loss_while_truncating_leaves_no_hole() -> None:
    for seed in range(60):
        disk = SimDisk(seed)
        log = make_log(disk, segments=5)
        for start in range(0, 5 * SIZE, SIZE):
            log.append(b"x" * SIZE, start)
        log.flush()
        disk.cut_power(seed % 6 + 1)
        with suppress(PowerLost):
            if seed % 2:
                log.truncate(100)
            else:
                for segment in log.detach_before(4 * SIZE):
                    log.remove_detached(segment)
        CommitLog.open(disk.crash(), PATHS, SIZE)


def test_a_spare_segment_survives_a_truncation() -> None:
    log = make_log(segments=2)
    log.append(b"x" * 10, 0)
    log.truncate(5)
    assert log.allocated_end == 2 * SIZE


def test_what_is_not_flushed_is_not_deleted() -> None:
    log = make_log(segments=3)
    log.append(b"x" * SIZE, 0)
    log.append(b"x", SIZE)
    assert log.detach_before(SIZE) == []


# -- segment ---------------------------------------------------------------------------------------


@pytest.fixture(params=["mmap", "pread"])
def segment(request: pytest.FixtureRequest) -> Segment:
    file = SimDisk().open(Path("/segment"), create_size=100_000, allocate=True)
    return Segment(file, 300_000, 100_000, mapped=request.param == "mmap")


@pytest.mark.parametrize("position", [299_999, 399_996, 400_000])
def test_nothing_is_written_outside(segment: Segment, position: int) -> None:
    with pytest.raises(AssertionError):
        segment.write(b"hello", position)


def test_what_was_noted_before_reading_holds_until_done(segment: Segment) -> None:
    segment.write(b"x", 310_000)
    segment.write(b"y", 390_000)
    segment.look(from_device=True)
    found = segment.next_data(300_000)
    assert found is not None
    assert 300_000 <= found <= 310_000
    assert segment.next_data(310_000) == 310_000
    behind = segment.next_data(330_000)
    assert behind is not None
    assert 330_000 < behind <= 390_000
    assert segment.wipe(320_000)
    assert segment.is_zero_from(320_000)
    segment.done_looking()
    assert segment.next_data(330_000) is None


# -- what failed is told to the process that comes next, if the disk lets it -----------------------


def test_the_last_note_counts(tmp_path: Path) -> None:
    disk, paths = RealDisk(), StorePaths.under(tmp_path)
    disk.make_dirs(paths.kourou)
    assert last_fault_ms(disk, paths) is None
    note_fault(disk, paths, "flushing log segment 0 failed: Input/output error")
    note_fault(disk, paths, "no more")
    told_ms = last_fault_ms(disk, paths)
    assert paths.last_fault.read_text() == f"{told_ms} no more\n"
    assert told_ms is not None
    assert abs(told_ms - paths.last_fault.stat().st_mtime_ns // 1_000_000) < 60_000


def test_a_copy_of_the_store_tells_when_it_was_and_not_when_it_was_copied(tmp_path: Path) -> None:
    disk, paths = RealDisk(), StorePaths.under(tmp_path / "store")
    copied = StorePaths.under(tmp_path / "copied")
    disk.make_dirs(paths.kourou)
    disk.make_dirs(copied.kourou)
    note_fault(disk, paths, "flushing log segment 0 failed: Input/output error")
    shutil.copyfile(paths.last_fault, copied.last_fault)
    os.utime(copied.last_fault, (4_000_000_000, 4_000_000_000))
    assert last_fault_ms(disk, copied) == last_fault_ms(disk, paths)


@pytest.mark.parametrize("text", [b"", b"no more\n", b"-5 no\n", "² no\n".encode()])
def test_what_says_no_time_tells_nothing(text: bytes) -> None:
    disk = SimDisk()
    disk.make_dirs(PATHS.kourou)
    file = disk.open(PATHS.last_fault, create_size=0)
    file.pwrite(text, 0)
    file.close()
    assert last_fault_ms(disk, PATHS) is None


def test_no_sync_is_asked_of_a_disk_that_failed() -> None:
    disk = SimDisk()
    disk.make_dirs(PATHS.kourou)
    syncs = disk.syncs
    note_fault(disk, PATHS, "it failed")
    assert disk.syncs == syncs
    assert last_fault_ms(disk, PATHS) == 0


@pytest.mark.fault
@pytest.mark.parametrize("call", ["unlink", "open"])
def test_a_disk_that_takes_no_note_is_left_alone(
    call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk: Disk = SimDisk()

    def refused(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(disk, call, refused)
    note_fault(disk, PATHS, "it failed")
    assert last_fault_ms(disk, PATHS) is None
