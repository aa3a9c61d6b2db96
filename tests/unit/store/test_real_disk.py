from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kourou.store.real_disk import RealDisk


def test_short_writes_are_finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = os.pwrite
    file = RealDisk().open(tmp_path / "f", create_size=0)
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: whole(fd, data[:3], at))
    file.pwrite(b"0123456789", 0)
    monkeypatch.undo()
    assert file.pread(100, 0) == b"0123456789"
    file.close()


def test_short_reads_are_finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = os.pread
    file = RealDisk().open(tmp_path / "f", create_size=0)
    file.pwrite(b"0123456789", 0)
    monkeypatch.setattr(os, "pread", lambda fd, size, at: whole(fd, min(size, 3), at))
    assert file.pread(8, 1) == b"12345678"
    assert file.pread(100, 5) == b"56789"
    file.close()


def test_a_file_appears_only_when_it_is_complete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = RealDisk()
    seen: list[list[str]] = []

    def full(fd: int, at: int, size: int) -> None:
        seen.append(disk.list_dir(tmp_path))
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    before = len(list(Path("/proc/self/fd").iterdir()))
    with pytest.raises(OSError, match="No space left"):
        disk.open(tmp_path / "f", create_size=4096, allocate=True)
    assert seen == [[]]
    assert list(tmp_path.iterdir()) == []
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_what_an_interrupted_creation_left_is_not_listed_and_replaced(tmp_path: Path) -> None:
    (tmp_path / "f.creating").write_bytes(b"x" * 10)
    disk = RealDisk()
    assert disk.list_dir(tmp_path) == []
    disk.open(tmp_path / "f", create_size=5).close()
    assert (tmp_path / "f").read_bytes() == bytes(5)


@pytest.mark.feature("F108")
def test_reserved_space_is_really_reserved(tmp_path: Path) -> None:
    disk = RealDisk()
    disk.open(tmp_path / "reserved", create_size=1 << 20, allocate=True).close()
    disk.open(tmp_path / "sparse", create_size=1 << 20).close()
    assert (tmp_path / "reserved").stat().st_blocks * 512 >= 1 << 20
    assert (tmp_path / "sparse").stat().st_blocks == 0


@pytest.mark.feature("F082")
def test_the_lock_binds_other_processes_as_rocketmq_takes_it(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    lock = RealDisk().lock(path)
    # Java's FileChannel.tryLock(0, 1, false) is this POSIX lock.
    taking = (
        "import fcntl, sys; f = open(sys.argv[1], 'r+');\n"
        "try: fcntl.lockf(f, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)\n"
        "except OSError: print('taken')\n"
        "else: print('free')\n"
    )

    def other() -> str:
        command = [sys.executable, "-c", taking, str(path)]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    assert other() == "taken"
    lock.release()
    assert other() == "free"


def test_what_is_kept_for_root_counts_neither_as_used_nor_as_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a file system with a large reserve would seem full when it is half empty."""
    whole = os.statvfs(tmp_path)
    fields = list(whole)
    block, blocks, bfree, bavail = 1, 2, 3, 4
    fields[block], fields[blocks], fields[bfree], fields[bavail] = 4_096, 1_000, 800, 150
    monkeypatch.setattr(os, "statvfs", lambda _path: os.statvfs_result(fields))
    assert RealDisk().usage(tmp_path) == (350 * 4_096, 150 * 4_096)
