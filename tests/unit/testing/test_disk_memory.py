"""Faults of a disk in memory last until they are mended, and threads do not hurt it."""

from __future__ import annotations

import errno
import threading
from pathlib import Path

import pytest

from kourou.testing.disk import CAPACITY_BYTES, MemoryDisk

ROOT = Path("/store")


@pytest.fixture
def disk() -> MemoryDisk:
    disk = MemoryDisk()
    disk.have(ROOT)
    return disk


def test_directories_that_were_there_for_long_survive_every_power_loss():
    for seed in range(50):
        disk = MemoryDisk(seed)
        disk.have(ROOT / "a" / "b")
        assert disk.lose_power().exists(ROOT / "a" / "b")


def test_a_broken_disk_makes_nothing_durable_until_it_is_repaired(disk):
    file = disk.open(ROOT / "file", create_size=4_096)
    disk.broken = True
    assert disk.ailing
    for sync in (file.fdatasync, file.fdatasync, lambda: disk.sync_dir(ROOT)):
        with pytest.raises(OSError, match="Input/output") as failed:
            sync()
        assert failed.value.errno == errno.EIO
    disk.repair()
    assert not disk.ailing
    file.fdatasync()


def test_a_full_disk_takes_nothing_until_it_is_repaired(disk):
    file = disk.open(ROOT / "file", create_size=4_096, allocate=True)
    disk.make_dirs(ROOT / "deleted")
    disk.open(ROOT / "deleted" / "file", create_size=4_096, allocate=True)
    disk.full = True
    assert disk.ailing
    assert disk.usage(ROOT) == (CAPACITY_BYTES, 0)
    disk.remove_tree(ROOT / "deleted")
    assert disk.usage(ROOT) == (CAPACITY_BYTES, 0), "somebody else takes what becomes free"
    file.pwrite(b"its own space", 0)
    with pytest.raises(OSError, match="No space") as full:
        disk.open(ROOT / "other", create_size=1, allocate=True)
    assert full.value.errno == errno.ENOSPC
    disk.repair()
    disk.open(ROOT / "other", create_size=1, allocate=True)


def test_a_power_loss_keeps_what_was_synced_and_nothing_is_out_of_order_then(disk):
    file = disk.open(ROOT / "file", create_size=1_024)
    file.pwrite(b"kept", 0)
    file.fdatasync()
    disk.sync_dir(ROOT)
    disk.broken = disk.full = True
    after = disk.lose_power()
    assert isinstance(after, MemoryDisk)
    assert not after.ailing
    found = after.open(ROOT / "file")
    assert (found.pread(4, 0), found.size()) == (b"kept", 1_024)
    assert after.list_dir(ROOT) == ["file"]


def test_what_is_written_while_another_thread_syncs_is_not_forgotten(disk):
    rounds = 2_000
    file = disk.open(ROOT / "file", create_size=4 * rounds)
    disk.sync_dir(ROOT)
    ended = threading.Event()

    def sync_all_the_time() -> None:
        while not ended.is_set():
            file.fdatasync()

    syncing = threading.Thread(target=sync_all_the_time)
    syncing.start()
    for number in range(rounds):
        file.pwrite(number.to_bytes(4, "big"), 4 * number)
    ended.set()
    syncing.join()
    file.fdatasync()
    wanted = b"".join(number.to_bytes(4, "big") for number in range(rounds))
    assert disk.lose_power().read(ROOT / "file") == wanted
