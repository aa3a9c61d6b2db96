"""What failed is told to the process that comes next, if the disk lets it."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

import pytest

from kourou.store.disk import Disk
from kourou.store.log.commit_log import last_fault_ms, note_fault
from kourou.store.paths import StorePaths
from kourou.store.real_disk import RealDisk
from kourou.testing.disk import SimDisk

PATHS = StorePaths.under(Path("/store"))


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
