from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from kourou.errors import DiskFull, StoreFaulted
from kourou.store.disk import LinkRefused, as_store_error, read_whole, write_atomically
from kourou.store.real_disk import RealDisk
from kourou.testing.disk import PowerLost, SimDisk


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


def test_other_users_of_the_machine_read_nothing_of_a_store(tmp_path: Path) -> None:
    """Whatever the umask: rights are decided by the broker, not by who has an account here."""
    root = tmp_path / "data" / "store"
    before = os.umask(0)
    try:
        RealDisk().make_dirs(root / "kourou")
        RealDisk().make_dirs(root / "kourou")
        RealDisk().open(root / "lock", create_size=0).close()
        write_atomically(RealDisk(), root / "checkpoint", b"x")
    finally:
        os.umask(before)
    modes = {one.name: one.stat().st_mode & 0o777 for one in (tmp_path / "data").rglob("*")}
    assert modes == {"store": 0o700, "kourou": 0o700, "lock": 0o600, "checkpoint": 0o600}
    assert root.parent.stat().st_mode & 0o777 == 0o700
    with pytest.raises(FileExistsError):
        RealDisk().make_dirs(root / "lock")


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


# -- disk ------------------------------------------------------------------------------------------


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


# -- symbolic links that somebody else put where files are expected: not one is followed -----------


SECRET = b"what belongs to somebody else"
Use = Callable[[RealDisk, Path], object]

USES: dict[str, tuple[str, Use]] = {
    "opening": ("f", lambda disk, path: disk.open(path)),
    "opening or creating": ("f", lambda disk, path: disk.open(path, create_size=10)),
    "creating": ("f.creating", lambda disk, path: disk.open(path, create_size=10)),
    "creating with its blocks": (
        "f.creating",
        lambda disk, path: disk.open(path, create_size=4_096, allocate=True),
    ),
    "reading whole": ("f", lambda disk, path: read_whole(disk, path, 100)),
    "replacing": ("f.tmp.creating", lambda disk, path: write_atomically(disk, path, b"new")),
    "locking": ("f", lambda disk, path: disk.lock(path)),
}
"""The name of the link, and what is done to `f`."""


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    """A file outside of the folder in which the disk works."""
    (tmp_path / "outside").mkdir()
    path = tmp_path / "outside" / "victim"
    path.write_bytes(SECRET)
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "folder"
    path.mkdir()
    return path


@pytest.mark.fault
@pytest.mark.parametrize(("name", "use"), USES.values(), ids=USES)
@pytest.mark.parametrize("exists", [True, False])
def test_a_link_in_the_place_of_a_file_is_refused(
    folder: Path, victim: Path, name: str, use: Use, exists: bool
) -> None:
    if not exists:
        victim.unlink()
    link = folder / name
    link.symlink_to(victim)
    open_before = len(list(Path("/proc/self/fd").iterdir()))
    with pytest.raises(LinkRefused) as caught:
        use(RealDisk(), folder / "f")
    assert (caught.value.errno, caught.value.filename) == (errno.ELOOP, str(link))
    assert link.is_symlink()
    assert not (folder / "f").exists() or name == "f"
    assert victim.exists() == exists
    assert not exists or victim.read_bytes() == SECRET
    assert len(list(Path("/proc/self/fd").iterdir())) == open_before


@pytest.mark.fault
@pytest.mark.parametrize("name", ["f", "f.tmp"])
def test_replacing_a_file_replaces_a_link_and_not_what_it_leads_to(
    folder: Path, victim: Path, name: str
) -> None:
    (folder / name).symlink_to(victim)
    write_atomically(RealDisk(), folder / "f", b"new")
    assert (folder / "f").read_bytes() == b"new"
    assert [one.name for one in folder.iterdir()] == ["f"]
    assert not (folder / "f").is_symlink()
    assert victim.read_bytes() == SECRET


@pytest.mark.fault
def test_removing_ends_at_links(folder: Path, victim: Path) -> None:
    disk = RealDisk()
    (folder / "below").mkdir()
    for where in (folder, folder / "below"):
        (where / "file").symlink_to(victim)
        (where / "outside").symlink_to(victim.parent)
    disk.unlink(folder / "file")
    disk.clear_dir(folder)
    assert list(folder.iterdir()) == []
    (folder / "outside").symlink_to(victim.parent)
    with pytest.raises(OSError, match="symbolic link"):
        disk.remove_tree(folder / "outside")
    disk.remove_tree(folder)
    assert not folder.exists()
    assert victim.read_bytes() == SECRET


def test_folders_may_be_links_to_other_disks(folder: Path, tmp_path: Path) -> None:
    linked, disk = tmp_path / "linked", RealDisk()
    linked.symlink_to(folder)
    disk.open(linked / "f", create_size=3).close()
    lock = disk.lock(linked)
    write_atomically(disk, linked / "g", b"new")
    lock.release()
    assert disk.list_dir(folder) == ["f", "g"]


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells")
def test_the_machine_says_when_it_was_started(monkeypatch: pytest.MonkeyPatch) -> None:
    assert RealDisk().boot_id == RealDisk().boot_id != ""
    monkeypatch.setattr("kourou.store.real_disk._BOOT_ID", Path("/proc/no-such-file"))
    assert RealDisk().boot_id == ""
