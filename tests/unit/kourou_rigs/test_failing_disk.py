"""The failing disk fails when it was told to, and at no other time."""

from __future__ import annotations

import errno
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from kourou_rigs.failing_broker import arguments_of
from kourou_rigs.failing_disk import BLOCK, FailingDisk, Faults

THREE_SYNCS = """
import sys
from pathlib import Path
from kourou_rigs.failing_disk import FailingDisk, Faults
log = Path(sys.argv[1])
file = FailingDisk(log.parent, Faults(die_after_sync=2)).open(log / "0", create_size=100)
for number in range(3):
    file.pwrite(b"%d" % number, number)
    file.fdatasync()
"""


@pytest.fixture
def log(tmp_path: Path) -> Path:
    folder = tmp_path / "commitlog"
    folder.mkdir()
    return folder


def test_one_sync_fails_and_takes_what_was_unsynced(tmp_path: Path, log: Path) -> None:
    disk = FailingDisk(tmp_path, Faults(fail_sync=2))
    file = disk.open(log / "0", create_size=100, allocate=True)
    other = disk.open(tmp_path / "checkpoint", create_size=100)
    file.pwrite(b"first", 0)
    for one in (file, other, other):
        one.fdatasync()
    file.pwrite(b"second", 10)
    file.pwrite(b"third", 20)
    with pytest.raises(OSError, match="Input/output error") as failed:
        file.fdatasync()
    assert failed.value.errno == errno.EIO
    assert file.pread(30, 0) == b"first".ljust(30, b"\0")
    file.pwrite(b"fourth", 10)
    file.fdatasync()
    assert file.pread(6, 10) == b"fourth"
    file.close()
    other.close()


def test_the_process_is_gone_when_the_sync_is_done(tmp_path: Path, log: Path) -> None:
    done = subprocess.run([sys.executable, "-c", THREE_SYNCS, str(log)], check=False)
    assert done.returncode == -signal.SIGKILL
    assert (log / "0").read_bytes()[:3] == b"01\0"


def test_the_capacity_counts_what_others_wrote_and_what_is_freed(tmp_path: Path, log: Path) -> None:
    ballast = tmp_path / "ballast"
    ballast.write_bytes(bytes(8 * BLOCK))
    disk = FailingDisk(tmp_path, Faults(capacity_bytes=16 * BLOCK))
    file = disk.open(log / "0", create_size=6 * BLOCK, allocate=True)
    sparse = disk.open(tmp_path / "queue", create_size=100 * BLOCK)
    sparse.pwrite(b"x" * BLOCK, 50 * BLOCK)
    assert disk.usage(tmp_path) == (16 * BLOCK, BLOCK)
    with pytest.raises(OSError, match="No space left") as full:
        sparse.pwrite(b"x" * 2 * BLOCK, 60 * BLOCK)
    assert full.value.errno == errno.ENOSPC
    with pytest.raises(OSError, match="No space left"):
        disk.open(log / "1", create_size=6 * BLOCK, allocate=True)
    assert disk.list_dir(log) == ["0"]
    file.pwrite(b"what is reserved can be written", 5 * BLOCK)
    sparse.pwrite(b"what is there can be changed", 50 * BLOCK + 1)
    ballast.unlink()
    disk.open(log / "1", create_size=6 * BLOCK, allocate=True).close()
    sparse.pwrite(b"x" * 2 * BLOCK, 60 * BLOCK)
    file.close()
    sparse.close()


def test_orders_travel_as_arguments(tmp_path: Path) -> None:
    assert arguments_of(Faults(fail_sync=3)) == ["--within", "commitlog", "--fail-sync", "3"]
    full = arguments_of(Faults(capacity_bytes=4096), tmp_path)
    assert full[2:] == ["--capacity-bytes", "4096", "--capacity-of", str(tmp_path)]
