"""What every disk promises, asked of the machine's own and of the simulated one."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from kourou.store.disk import Disk, read_whole, write_atomically
from kourou.store.real_disk import RealDisk
from kourou.testing.disk import MemoryDisk, SimDisk
from kourou_rigs.failing_disk import FailingDisk, Faults


@pytest.fixture(params=["real", "simulated", "in memory", "failing"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Disk:
    if request.param == "failing":
        return FailingDisk(tmp_path, Faults(capacity_bytes=1 << 30))
    if request.param == "in memory":
        return MemoryDisk(1)
    return RealDisk() if request.param == "real" else SimDisk(1)


@pytest.fixture
def root(disk: Disk, tmp_path: Path) -> Path:
    root = tmp_path / "store"
    disk.make_dirs(root)
    return root


def test_a_file_that_is_missing_is_not_opened(disk: Disk, root: Path) -> None:
    with pytest.raises(FileNotFoundError):
        disk.open(root / "missing")
    assert not disk.exists(root / "missing")


@pytest.mark.parametrize("allocate", [False, True])
@pytest.mark.feature("F108")
def test_a_new_file_has_its_length_and_zeros(disk: Disk, root: Path, allocate: bool) -> None:
    file = disk.open(root / "file", create_size=16_384, allocate=allocate)
    assert file.size() == 16_384
    assert file.next_data(0) is None, "nothing was written yet"
    assert file.pread(20_000, 0) == bytes(16_384)
    assert disk.list_dir(root) == ["file"]
    file.close()


def test_opening_again_keeps_content_and_length(disk: Disk, root: Path) -> None:
    file = disk.open(root / "file", create_size=100)
    file.pwrite(b"abc", 7)
    file.close()
    again = disk.open(root / "file", create_size=5_000, allocate=True)
    assert again.size() == 100
    assert again.pread(3, 7) == b"abc"
    again.close()


def test_what_is_written_is_read_by_every_handle(disk: Disk, root: Path) -> None:
    one = disk.open(root / "file", create_size=4096)
    two = disk.open(root / "file")
    one.pwrite(b"hello", 10)
    one.pwrite(bytearray(b"wor"), 15)
    one.pwrite(memoryview(b"ld!"), 18)
    assert two.pread(11, 10) == b"helloworld!"
    assert bytes(two.mapped()[10:21]) == b"helloworld!"
    one.pwrite(b"J", 10)
    assert bytes(two.mapped()[10:15]) == b"Jello"
    one.close()
    two.close()


def test_reads_stop_at_the_end(disk: Disk, root: Path) -> None:
    file = disk.open(root / "file", create_size=10)
    assert file.pread(5, 8) == bytes(2)
    assert file.pread(5, 100) == b""
    file.close()


def test_a_mapping_is_read_only_and_outlives_the_file(disk: Disk, root: Path) -> None:
    file = disk.open(root / "file", create_size=4096, allocate=True)
    file.pwrite(b"kept", 0)
    view = file.mapped()
    with pytest.raises(TypeError):
        view[0] = 1
    file.close()
    disk.unlink(root / "file")
    assert bytes(view[:4]) == b"kept"


def test_written_data_is_found_behind_holes(disk: Disk, root: Path) -> None:
    file = disk.open(root / "file", create_size=1 << 20, allocate=True)
    file.pwrite(b"x", 700_000)
    found = file.next_data(0)
    assert found is not None
    assert found <= 700_000
    assert 700_000 - found < 65_536
    assert file.next_data(700_000) == 700_000
    file.pwrite(b"y", 5)
    (first, second) = file.written_ranges()
    assert first[0] <= 5 < first[1] <= second[0] <= 700_000 < second[1] <= 1 << 20
    file.close()


def test_forgetting_the_cache_loses_nothing_that_is_dirty_or_flushed(
    disk: Disk, root: Path
) -> None:
    file = disk.open(root / "file", create_size=8192)
    file.pwrite(b"flushed", 0)
    file.fdatasync()
    file.pwrite(b"dirty", 4096)
    file.forget_cached()
    assert file.pread(7, 0) == b"flushed"
    assert file.pread(5, 4096) == b"dirty"
    file.close()


def test_closing_twice_does_nothing(disk: Disk, root: Path) -> None:
    file = disk.open(root / "file", create_size=1)
    file.close()
    file.close()


def test_rename_replaces(disk: Disk, root: Path) -> None:
    for name in ("a", "b"):
        file = disk.open(root / name, create_size=0)
        file.pwrite(name.encode(), 0)
        file.close()
    disk.rename(root / "a", root / "b")
    disk.sync_dir(root)
    assert disk.list_dir(root) == ["b"]
    assert read_whole(disk, root / "b", 10) == b"a"
    with pytest.raises(FileNotFoundError):
        disk.rename(root / "a", root / "b")


def test_directories(disk: Disk, root: Path) -> None:
    assert disk.list_dir(root / "none") == []
    disk.make_dirs(root / "x" / "y")
    disk.make_dirs(root / "x" / "y")
    disk.open(root / "x" / "y" / "f", create_size=3).close()
    assert disk.list_dir(root / "x") == ["y"]
    assert disk.exists(root / "x" / "y")
    disk.remove_tree(root / "x")
    assert not disk.exists(root / "x")
    disk.remove_tree(root / "x")
    disk.unlink(root / "gone")
    with pytest.raises(FileNotFoundError):
        disk.sync_dir(root / "x")


def test_a_file_is_no_directory(disk: Disk, root: Path) -> None:
    disk.open(root / "f", create_size=0).close()
    with pytest.raises(NotADirectoryError):
        disk.list_dir(root / "f")
    with pytest.raises(FileExistsError):
        disk.make_dirs(root / "f")
    with pytest.raises(OSError):
        disk.open(root)


def test_nothing_is_created_in_a_directory_that_is_missing(disk: Disk, root: Path) -> None:
    with pytest.raises(FileNotFoundError):
        disk.open(root / "none" / "f", create_size=1)


@pytest.mark.feature("F082")
@pytest.mark.parametrize("name", ["lock", "directory"])
def test_a_lock_is_exclusive_until_released(disk: Disk, root: Path, name: str) -> None:
    disk.make_dirs(root / "directory")
    lock = disk.lock(root / name)
    with pytest.raises(BlockingIOError):
        disk.lock(root / name)
    # The refused attempt must not have dropped the lock, as POSIX locks would.
    with pytest.raises(BlockingIOError):
        disk.lock(root / name)
    lock.release()
    lock.release()
    disk.lock(root / name).release()


def test_a_cleared_directory_stays_and_so_does_its_lock(disk: Disk, root: Path) -> None:
    disk.make_dirs(root / "directory" / "below")
    for file in ("file", "below/file"):
        disk.open(root / "directory" / file, create_size=1).close()
    lock = disk.lock(root / "directory")
    disk.clear_dir(root / "directory")
    assert disk.list_dir(root / "directory") == []
    with pytest.raises(BlockingIOError):
        disk.lock(root / "directory")
    lock.release()
    disk.clear_dir(root / "missing")
    assert not disk.exists(root / "missing")


def test_usage_is_reported(disk: Disk, root: Path) -> None:
    total, free = disk.usage(root)
    assert 0 < free <= total


def test_replacing_a_file_atomically(disk: Disk, root: Path) -> None:
    write_atomically(disk, root / "f", b"one")
    write_atomically(disk, root / "f", b"three")
    assert read_whole(disk, root / "f", 100) == b"three"
    assert disk.list_dir(root) == ["f"]


def test_reading_whole_files(disk: Disk, root: Path) -> None:
    assert read_whole(disk, root / "none", 10) is None
    write_atomically(disk, root / "f", b"12345")
    with pytest.raises(OSError) as caught:
        read_whole(disk, root / "f", 4)
    assert caught.value.errno == errno.EFBIG
