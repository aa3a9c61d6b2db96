from __future__ import annotations

import errno
from pathlib import Path

import pytest

from kourou.errors import DiskFull, StoreFaulted
from kourou.store.disk import as_store_error, read_whole, write_atomically
from kourou.testing.disk import PowerLost, SimDisk

PATH = Path("/dir/file")


@pytest.mark.feature("F110")
def test_a_power_loss_leaves_the_old_content_or_the_new() -> None:
    seen: set[bytes | None] = set()
    for seed in range(400):
        disk = SimDisk(seed)
        disk.make_dirs(PATH.parent)
        disk.sync_dir(PATH.parent.parent)
        write_atomically(disk, PATH, b"old" * 500)
        disk.cut_power(seed % 3 + 1)
        done = True
        try:
            write_atomically(disk, PATH, b"new!" * 500)
        except PowerLost:
            done = False
        found = read_whole(disk.crash(), PATH, 10_000)
        assert found in (b"old" * 500, b"new!" * 500), seed
        assert not done or found == b"new!" * 500
        seen.add(found)
    assert len(seen) == 2


def test_a_leftover_of_an_interrupted_write_does_no_harm() -> None:
    disk = SimDisk()
    disk.make_dirs(PATH.parent)
    disk.open(PATH.with_name("file.tmp"), create_size=9_999)
    write_atomically(disk, PATH, b"short")
    assert read_whole(disk, PATH, 100) == b"short"


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_no_space_means_later(number: int) -> None:
    assert isinstance(as_store_error(OSError(number, "x"), "writing"), DiskFull)


def test_anything_else_means_that_the_disk_fails() -> None:
    error = as_store_error(OSError(errno.EIO, "Input/output error"), "writing")
    assert isinstance(error, StoreFaulted)
    assert str(error) == "writing: Input/output error"
