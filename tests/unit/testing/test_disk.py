from __future__ import annotations

import errno
from collections import Counter
from pathlib import Path

import pytest

from kourou.testing.disk import PowerLost, SimDisk

ROOT = Path("/d")
PATH = ROOT / "f"


def make(seed: int, *, named: bool = True) -> SimDisk:
    disk = SimDisk(seed)
    disk.make_dirs(ROOT)
    disk.sync_dir(Path("/"))
    disk.open(PATH, create_size=4096, allocate=True)
    if named:
        disk.sync_dir(ROOT)
    return disk


def test_what_was_synced_stays() -> None:
    for seed in range(50):
        disk = make(seed)
        file = disk.open(PATH)
        file.pwrite(b"a" * 2000, 100)
        file.fdatasync()
        assert disk.crash().read(PATH)[100:2100] == b"a" * 2000


def test_what_was_not_synced_may_be_kept_lost_torn_or_garbled() -> None:
    outcomes: Counter[str] = Counter()
    for seed in range(300):
        disk = make(seed)
        disk.open(PATH).pwrite(b"a" * 512, 512)
        left = disk.crash().read(PATH)
        assert not any(left[:512])
        assert not any(left[1024:])
        sector = left[512:1024]
        if sector == b"a" * 512:
            outcomes["kept"] += 1
        elif not any(sector):
            outcomes["lost"] += 1
        elif sector.rstrip(b"\0").strip(b"a"):
            outcomes["garbled"] += 1
        else:
            outcomes["torn"] += 1
    assert set(outcomes) == {"kept", "lost", "garbled", "torn"}


def test_later_versions_of_a_sector_include_the_earlier_ones() -> None:
    for seed in range(200):
        disk = make(seed)
        file = disk.open(PATH)
        file.pwrite(b"one", 0)
        file.pwrite(b"two", 10)
        left = disk.crash().read(PATH)
        if left[10:13] == b"two":
            assert left[:3] == b"one"


def test_names_that_were_not_synced_may_vanish() -> None:
    found = {make(seed, named=False).crash().exists(PATH) for seed in range(60)}
    assert found == {True, False}
    assert all(make(seed).crash().exists(PATH) for seed in range(60))


def test_a_removed_name_may_come_back_with_its_old_content() -> None:
    found = set()
    for seed in range(60):
        disk = make(seed)
        disk.unlink(PATH)
        found.add(disk.crash().exists(PATH))
    assert found == {True, False}


def test_what_lies_in_a_lost_directory_is_lost() -> None:
    for seed in range(60):
        disk = SimDisk(seed)
        disk.make_dirs(ROOT / "sub")
        disk.open(ROOT / "sub" / "f", create_size=1)
        disk.sync_dir(ROOT / "sub")
        left = disk.crash()
        if left.exists(ROOT / "sub" / "f"):
            assert left.exists(ROOT / "sub")
            assert left.exists(ROOT)


def test_a_failed_sync_lies_afterwards_as_linux_does() -> None:
    disk = make(1)
    file = disk.open(PATH)
    file.pwrite(b"data", 0)
    disk.fail_sync(1)
    with pytest.raises(OSError) as caught:
        file.fdatasync()
    assert caught.value.errno == errno.EIO
    file.fdatasync()
    assert file.pread(4, 0) == b"data"
    assert disk.crash().read(PATH)[:4] == bytes(4)
    file.forget_cached()
    assert file.pread(4, 0) == bytes(4)


def test_power_goes_at_the_nth_sync_and_stays_off() -> None:
    disk = make(1)
    file = disk.open(PATH)
    disk.cut_power(2)
    file.fdatasync()
    for _ in range(2):
        with pytest.raises(PowerLost):
            disk.sync_dir(ROOT)


def test_space_is_counted_and_freed() -> None:
    disk = SimDisk(capacity_bytes=10_000)
    file = disk.open(Path("/sparse"), create_size=1 << 20)
    assert disk.usage(Path("/"))[1] == 10_000
    file.pwrite(b"x", 5_000)
    assert disk.usage(Path("/"))[1] == 10_000 - 4096
    with pytest.raises(OSError) as caught:
        disk.open(Path("/reserved"), create_size=6_000, allocate=True)
    assert caught.value.errno == errno.ENOSPC
    assert not disk.exists(Path("/reserved"))
    disk.unlink(Path("/sparse"))
    disk.open(Path("/reserved"), create_size=6_000, allocate=True)


def test_the_same_seed_gives_the_same_outcome() -> None:
    def kind(seed: int) -> bytes:
        disk = make(seed)
        for at in range(0, 4000, 37):
            disk.open(PATH).pwrite(bytes([at % 251]) * 30, at)
        return disk.crash().read(PATH)

    assert kind(7) == kind(7)
    assert kind(7) != kind(8)


def test_a_killed_process_loses_its_locks_and_nothing_else() -> None:
    disk = make(1)
    disk.lock(ROOT / "lock")
    disk.open(PATH).pwrite(b"data", 0)
    disk.cut_power(1)
    after = disk.kill()
    after.lock(ROOT / "lock")
    assert after.read(PATH)[:4] == b"data"
    after.sync_dir(ROOT)
