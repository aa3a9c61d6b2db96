"""Symbolic links that somebody else put where files are expected: not one is followed."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path

import pytest

from kourou.store.disk import LinkRefused, read_whole, write_atomically
from kourou.store.real_disk import RealDisk

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
