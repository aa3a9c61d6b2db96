"""A store whose files are symbolic links is not opened; its folders may be links."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from kourou.errors import ConfigError
from kourou.store.paths import StorePaths
from kourou.store.real_disk import RealDisk
from kourou.store.store import Store
from kourou_rigs.store import Draft, StoreWriter, small_settings


def filled(root: Path) -> StorePaths:
    """A store that was closed after messages of two topics."""
    settings = small_settings(root)
    store = Store.open(settings, RealDisk())
    StoreWriter(store).write([Draft(topic, keys=("k",)) for topic in ("TopicA", "TopicB") * 3])
    store.close()
    return settings.paths


def contents(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


@pytest.mark.fault
def test_no_file_of_a_store_may_be_a_link(tmp_path: Path) -> None:
    """What a link leads to is neither read as the store's nor changed."""
    paths = filled(tmp_path / "store")
    outside = tmp_path / "outside"
    first_segment = min(paths.commit_log.iterdir())
    names = [paths.lock, first_segment, paths.checkpoint, paths.recovery_point]
    for number, path in enumerate(names):
        there = outside / str(number)
        there.mkdir(parents=True)
        shutil.move(path, there / path.name)
        path.symlink_to(there / path.name)
        before = contents(outside)
        with pytest.raises(ConfigError, match="links to files are not followed") as caught:
            Store.open(small_settings(paths.root), RealDisk())
        assert str(path) in str(caught.value)
        assert contents(outside) == before
        path.unlink()
        shutil.move(there / path.name, path)
    Store.open(small_settings(paths.root), RealDisk()).close()


def test_a_folder_of_a_store_may_be_a_link(tmp_path: Path) -> None:
    paths = filled(tmp_path / "store")
    for folder in (paths.commit_log, paths.consume_queue, paths.index):
        there = tmp_path / "other-disk" / folder.name
        there.parent.mkdir(exist_ok=True)
        shutil.move(folder, there)
        folder.symlink_to(there)
    store = Store.open(small_settings(paths.root), RealDisk())
    StoreWriter(store).write([Draft("TopicA")])
    store.close()
    assert paths.commit_log.is_symlink()
