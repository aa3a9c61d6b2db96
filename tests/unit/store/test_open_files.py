from __future__ import annotations

from pathlib import Path

import pytest

from kourou.errors import StoreFaulted
from kourou.store import open_files
from kourou.store.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from kourou.store.open_files import OpenFiles, PooledFile
from kourou.store.real_disk import RealDisk
from kourou.testing.disk import SimDisk

ROOT = Path("/s")


def sim(count_max: int = 4, **options: int) -> tuple[SimDisk, OpenFiles]:
    disk = SimDisk(1, **options)
    disk.make_dirs(ROOT)
    disk.sync_dir(Path("/"))
    return disk, OpenFiles(disk, count_max)


def files(count: int, root: Path = ROOT, size: int = 100) -> list[PooledFile]:
    return [PooledFile(root / str(number), size) for number in range(count)]


def test_a_file_is_created_sparse_at_its_full_length_by_its_first_write(tmp_path):
    pool = OpenFiles(RealDisk(), 2)
    (file,) = files(1, tmp_path, 6_000_000)
    pool.write(file, b"abc", 10)
    assert pool.length(file) == 6_000_000
    assert pool.read(file, 5, 9) == b"\0abc\0"
    assert (tmp_path / "0").stat().st_blocks * 512 < 100_000
    pool.close()


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


def test_flush_syncs_what_was_written_even_if_it_was_closed_meanwhile():
    disk, pool = sim(count_max=1)
    made = files(3)
    for file in made:
        pool.write(file, b"data", 0)
    assert pool.flush() == 3
    assert pool.flush() == 0
    after = disk.crash()
    assert [after.read(file.path)[:4] for file in made] == [b"data"] * 3


def test_new_names_are_synced_down_from_the_root():
    for seed in range(20):
        disk = SimDisk(seed)
        disk.make_dirs(ROOT)
        disk.sync_dir(Path("/"))
        pool = OpenFiles(disk)
        pool.make_dirs(ROOT / "topic" / "0", ROOT)
        file = PooledFile(ROOT / "topic" / "0" / "f", 8)
        pool.write(file, b"12345678", 0)
        pool.flush()
        assert disk.crash().read(file.path) == b"12345678"


def test_a_failed_flush_is_for_good():
    disk, pool = sim()
    file, other = files(2)
    pool.write(file, b"1", 0)
    disk.fail_sync(1)
    with pytest.raises(StoreFaulted):
        pool.flush()
    pool.write(other, b"2", 0)
    with pytest.raises(StoreFaulted):
        pool.flush()


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
