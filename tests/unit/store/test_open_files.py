from __future__ import annotations

from pathlib import Path

import pytest

from kourou.store import open_files
from kourou.store.open_files import OpenFiles, PooledFile
from kourou.store.recovery.recovery_point import Checkpoint, load_checkpoint, save_checkpoint
from kourou.testing.disk import SimDisk

ROOT = Path("/s")


def sim(count_max: int = 4, **options: int) -> tuple[SimDisk, OpenFiles]:
    disk = SimDisk(1, **options)
    disk.make_dirs(ROOT)
    disk.sync_dir(Path("/"))
    return disk, OpenFiles(disk, count_max)


def files(count: int) -> list[PooledFile]:
    return [PooledFile(ROOT / str(number), 100) for number in range(count)]


@pytest.mark.feature("F055")
def test_no_more_files_are_open_than_allowed_and_the_longest_unused_goes_first():
    _, pool = sim(count_max=3)
    made = files(10)
    for number, file in enumerate(made):
        pool.write(file, bytes([number]), 0)
    assert pool.open_count == 3
    pool.read(made[7], 1, 0)
    pool.write(made[0], b"x", 1)
    assert [file.handle is not None for file in made[7:]] == [True, False, True]
    assert [pool.read(file, 1, 0)[0] for file in made] == list(range(10))


def test_a_removed_file_is_not_written_again_and_needs_no_flush():
    disk, pool = sim()
    (file,) = files(1)
    pool.write(file, b"1", 0)
    pool.remove(file)
    assert not disk.exists(file.path)
    assert pool.flush() == 0
    with pytest.raises(FileNotFoundError):
        pool.write(file, b"2", 0)
    assert not disk.exists(file.path)


def test_a_write_that_fails_leaves_the_pool_usable():
    _, pool = sim(capacity_bytes=4096)
    file, other = files(2)
    pool.write(file, b"1", 0)
    with pytest.raises(OSError, match="No space"):
        pool.write(other, b"2", 0)
    pool.write(file, b"3", 1)
    assert pool.read(file, 2, 0) == b"13"
    assert file.pins == other.pins == 0


@pytest.mark.feature("F055")
def test_as_many_files_are_open_as_the_process_can_afford(monkeypatch):
    for granted, expected in ((20_000, 12_000), (1_024, 614), (1 << 20, 12_288), (-1, 12_288)):
        monkeypatch.setattr(
            open_files.resource, "getrlimit", lambda _, granted=granted: (granted, granted)
        )
        assert open_files.affordable_files() == expected


# -- checkpoint ------------------------------------------------------------------------------------


PATH = Path("/checkpoint")


@pytest.mark.feature("F080")
def test_three_times_in_a_page() -> None:
    disk = SimDisk()
    save_checkpoint(disk, PATH, Checkpoint(1, 2, 3))
    data = disk.read(PATH)
    assert len(data) == 4096
    assert data[:24] == b"".join(value.to_bytes(8, "big") for value in (1, 2, 3))
    assert not any(data[24:])
    assert load_checkpoint(disk, PATH) == Checkpoint(1, 2, 3)


def test_it_survives_a_power_loss() -> None:
    for seed in range(20):
        disk = SimDisk(seed)
        save_checkpoint(disk, PATH, Checkpoint(1, 2, 3))
        assert load_checkpoint(disk.crash(), PATH) == Checkpoint(1, 2, 3)


def test_none_or_a_stump_says_nothing() -> None:
    disk = SimDisk()
    assert load_checkpoint(disk, PATH) == Checkpoint()
    disk.open(PATH, create_size=10)
    assert load_checkpoint(disk, PATH) == Checkpoint()
