"""What is appended and not yet written: where it lies, who sees it, what a kill takes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from kourou.errors import StoreFaulted
from kourou.store.log.commit_log import CommitLog
from kourou.store.paths import StorePaths
from kourou.store.store import Store
from kourou.testing.disk import SimDisk
from kourou_rigs.store import Draft, StoreWriter, small_settings

ROOT = Path("/store")
PATHS = StorePaths.under(ROOT)
SIZE = 1_024


@pytest.fixture
def disk() -> SimDisk:
    made = SimDisk()
    made.make_dirs(PATHS.commit_log)
    return made


def open_log(disk: SimDisk, buffers: int = 2, segments: int = 3) -> CommitLog:
    log = CommitLog.open(disk, PATHS, SIZE, staging_buffers=buffers)
    for _ in range(segments):
        log.allocate_next()
    return log


def on_disk(disk: SimDisk, start: int = 0) -> bytes:
    return disk.read(PATHS.segment(start))


@pytest.mark.feature("F102", "F107")
def test_what_is_appended_reaches_the_file_when_it_is_written_out(disk: SimDisk) -> None:
    log = open_log(disk)
    log.append(b"abc", 0)
    log.append(b"defg", 3)
    assert (log.end, log.written, log.readable_end, log.unwritten_bytes) == (7, 0, 0, 7)
    assert on_disk(disk) == bytes(SIZE)
    assert log.dirty_bytes == 0
    assert log.write_out() == 7
    assert on_disk(disk)[:8] == b"abcdefg\0"
    assert (log.readable_end, log.unwritten_bytes, log.dirty_bytes) == (7, 0, 7)
    assert bytes(log.view(0, 7)) == b"abcdefg"
    log.append(b"h", 7)
    assert log.flush() == 7, "a flush covers what is written, and promises no more"
    assert log.write_out() == 8
    assert log.flush() == 8


def test_a_filler_ends_a_segment_and_stale_bytes_stay_in_memory(disk: SimDisk) -> None:
    log = open_log(disk, buffers=1)
    log.append(b"x" * SIZE, 0)
    log.append(b"y" * 100, SIZE)  # the one buffer again: the first segment was written for it
    log.close_segment(b"filler!!", SIZE + 100)
    log.append(b"z", 2 * SIZE)
    assert log.end == 2 * SIZE + 1
    log.write_out()
    assert on_disk(disk) == b"x" * SIZE
    assert on_disk(disk, SIZE) == b"y" * 100 + b"filler!!" + bytes(SIZE - 108)
    assert on_disk(disk, 2 * SIZE) == b"z" + bytes(SIZE - 1)


@pytest.mark.feature("F102")
def test_a_full_pool_makes_the_append_write_out(disk: SimDisk) -> None:
    log = open_log(disk, buffers=2)
    log.append(b"a" * SIZE, 0)
    assert not log.staging_full
    log.append(b"b" * SIZE, SIZE)
    assert log.staging_full
    assert log.written == 0
    log.append(b"c", 2 * SIZE)
    assert log.written == 2 * SIZE, "those that were full went to their files"
    assert (log.unwritten_bytes, log.staging_full) == (1, False)


@pytest.mark.fault
def test_a_failing_write_out_fences(disk: SimDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    log = open_log(disk)
    log.append(b"abc", 0)
    log.write_out()
    log.flush()
    log.append(b"def", 3)

    def broken(*_args: object) -> None:
        raise OSError(5, "EIO")

    monkeypatch.setattr(type(log.segments[0]), "write", broken)
    with pytest.raises(StoreFaulted):
        log.write_out()
    monkeypatch.undo()
    for call in (log.write_out, log.flush, lambda: log.append(b"x", 6)):
        with pytest.raises(StoreFaulted):
            call()
    assert log.readable_end == 3


# -- the whole store ------------------------------------------------------------------------------

SETTINGS = small_settings(ROOT, segment_size_bytes=2_048, staging_buffers=2)


def offsets(store: Store) -> tuple[int, int]:
    return store.queue_range("TopicA", 0) or (0, 0)


@pytest.mark.feature("F102")
def test_a_clean_stop_loses_nothing() -> None:
    disk = SimDisk()
    store = Store.open(SETTINGS, disk)
    StoreWriter(store).write([Draft(body=bytes(300)) for _ in range(20)])
    assert offsets(store)[1] < 20, "queues name only what is in the file"
    store.close()
    again = Store.open(SETTINGS, disk)
    assert again.report.way == "after a clean stop"
    assert offsets(again) == (0, 20)


@pytest.mark.fault
@pytest.mark.feature("F102", "F106")
def test_a_kill_loses_at_most_what_was_not_written() -> None:
    disk = SimDisk()
    store = Store.open(SETTINGS, disk)
    writer = StoreWriter(store)
    written = writer.write([Draft() for _ in range(3)])
    store.write_out()
    store.dispatch()
    writer.write([Draft() for _ in range(4)])
    assert offsets(store) == (0, 3)
    disk.kill()
    again = Store.open(SETTINGS, disk)
    assert offsets(again) == (0, 3)
    assert again.end == written[-1].end
    (new,) = StoreWriter(again).write([Draft(body=b"next")])
    assert (new.offset, new.position) == (3, written[-1].end)


@pytest.mark.feature("F093", "F106")
def test_without_the_pool_a_kill_loses_nothing() -> None:
    disk = SimDisk()
    store = Store.open(replace(SETTINGS, staging_buffers=0), disk)
    assert not store.staged
    StoreWriter(store).write([Draft() for _ in range(7)])
    assert store.flushed < store.end
    disk.kill()
    assert offsets(Store.open(SETTINGS, disk)) == (0, 7)
