"""What stands between a path and a store."""

from __future__ import annotations

import errno
import logging
import shutil
from pathlib import Path

import pytest

from kourou.errors import BadRequest, ConfigError, Corrupt
from kourou.store.disk import write_atomically
from kourou.store.paths import StorePaths, start_of
from kourou.store.real_disk import RealDisk, RealLock
from kourou.store.startup import LOCK_CONTENT, StoreLock, check_format
from kourou.store.store import Store
from kourou.testing.disk import SimDisk
from kourou_rigs.store import Draft, StoreWriter, small_settings


@pytest.fixture
def paths(tmp_path: Path) -> StorePaths:
    return StorePaths.under(tmp_path)


def open_store(paths: StorePaths) -> Store:
    return Store.open(small_settings(paths.root), RealDisk())


@pytest.mark.parametrize("content", [None, b"", b"lo", b"LOCK"])
def test_the_lock_file_says_what_rocketmqs_does(paths: StorePaths, content: bytes | None) -> None:
    if content is not None:
        paths.lock.write_bytes(content)
    StoreLock(RealDisk(), paths).release()
    assert paths.lock.read_bytes() == LOCK_CONTENT


def test_a_lock_file_that_says_so_already_is_not_written(paths: StorePaths) -> None:
    paths.lock.write_bytes(LOCK_CONTENT)
    before = paths.lock.stat().st_mtime_ns
    StoreLock(RealDisk(), paths).release()
    assert paths.lock.stat().st_mtime_ns == before


def test_the_first_look_comes_under_the_lock_and_before_any_change(paths: StorePaths) -> None:
    seen: list[list[str]] = []

    def look(given: StorePaths) -> None:
        assert given == paths
        with pytest.raises(ConfigError, match="another broker"):
            StoreLock(RealDisk(), paths)
        seen.append([path.name for path in paths.root.iterdir()])
        raise ConfigError("no")

    with pytest.raises(ConfigError, match="no"):
        Store.open(small_settings(paths.root), RealDisk(), look)
    assert seen == [["lock"]]
    assert [path.name for path in paths.root.iterdir()] == ["lock"]
    StoreLock(RealDisk(), paths).release()


SHARED = {
    "commit_log": "storePathCommitLog",
    "consume_queue": "storePathConsumeQueue",
    "index": "storePathIndex",
    "checkpoint": "storeCheckpoint",
    "abort": "abortFile",
    "events": "eventStoreUrl",
}
"""Paths that may be outside of the root: name -> setting."""


@pytest.mark.feature("F082")
@pytest.mark.parametrize("name", SHARED)
def test_two_stores_cannot_share_a_path(tmp_path: Path, name: str) -> None:
    """The second one is refused before anything is made for it, until the first one is closed."""
    path = tmp_path / "disk" / name
    path.parent.mkdir()
    first = Store.open(small_settings(tmp_path / "first", **{name: path}), RealDisk())
    settings = small_settings(tmp_path / "second", **{name: path})
    with pytest.raises(ConfigError) as caught:
        Store.open(settings, RealDisk())
    assert str(caught.value) == (
        f"another broker uses {SHARED[name]}={path} "
        f"(stop it, or give this one another {SHARED[name]})"
    )
    assert not settings.root.exists()
    first.close()
    Store.open(settings, RealDisk()).close()


@pytest.mark.parametrize("name", ["commit_log", "consume_queue", "index"])
def test_a_path_below_the_root_of_another_store_is_refused(tmp_path: Path, name: str) -> None:
    """As with a copied settings file in which only storePathRootDir was changed."""
    first = Store.open(small_settings(tmp_path / "first"), RealDisk())
    settings = small_settings(tmp_path / "second", **{name: getattr(first.paths, name)})
    with pytest.raises(ConfigError, match=f"another broker uses {SHARED[name]}="):
        Store.open(settings, RealDisk())
    first.close()


def test_directories_stay_locked_when_their_files_are_built_again(tmp_path: Path) -> None:
    settings = small_settings(tmp_path / "first")
    first = Store.open(settings, RealDisk())
    StoreWriter(first).write([Draft()])
    first.close()
    settings.paths.recovery_point.unlink()
    settings.paths.abort.touch()
    first = Store.open(settings, RealDisk())
    assert first.report.rebuilt
    for name in ("consume_queue", "index"):
        other = small_settings(tmp_path / "second", **{name: getattr(first.paths, name)})
        with pytest.raises(ConfigError, match=f"another broker uses {SHARED[name]}="):
            Store.open(other, RealDisk())
    first.close()


def test_a_file_system_without_locks_of_directories_is_named(
    paths: StorePaths, caplog: pytest.LogCaptureFixture
) -> None:
    class Without(RealDisk):
        def lock(self, path: Path) -> RealLock:
            if path.is_dir():
                raise OSError(errno.ENOLCK, "No locks available", str(path))
            return super().lock(path)

    Store.open(small_settings(paths.root), Without()).close()
    warned = f"storePathIndex={paths.index} cannot be locked: No locks available"
    assert f"store-lock-unavailable: {warned}" in caplog.messages


def test_a_store_that_is_not_known_is_taken_over_and_said_so(
    paths: StorePaths, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "kourou.store"):
        store = open_store(paths)
        StoreWriter(store).write([Draft()])
        store.close()
        open_store(paths).close()
        assert caplog.text == "", "neither a new store nor one of ours"
        paths.format_version.unlink()
        open_store(paths).close()
    assert f"the store {paths.root} has a log but no kourou/format.json" in caplog.text
    assert "opened by RocketMQ's rules" in caplog.text
    assert paths.format_version.exists()
    caplog.clear()
    open_store(paths).close()
    assert caplog.text == ""


@pytest.mark.parametrize("content", [b"", b"{}", b'{"format":"x"}', b"\xff\xfe", b"[1]"])
def test_a_format_file_that_cannot_be_read_is_corrupt(content: bytes) -> None:
    disk, sim_paths = SimDisk(), StorePaths.under(Path("/store"))
    disk.make_dirs(sim_paths.kourou)
    write_atomically(disk, sim_paths.format_version, content)
    with pytest.raises(Corrupt, match=r"format\.json"):
        check_format(disk, sim_paths)


@pytest.mark.fault
@pytest.mark.parametrize("seed", range(12))
def test_a_segment_whose_name_was_not_durable_yet_is_made_so(seed: int) -> None:
    """A kill between making the next segment and syncing its directory, and a power loss later."""
    disk = SimDisk(seed)
    settings = small_settings(Path("/store"), segment_size_bytes=2_048)
    sim_paths = StorePaths.under(settings.root)
    Store.open(settings, disk)
    disk.open(sim_paths.segment(2_048), create_size=2_048, allocate=True)
    disk.kill()
    store = Store.open(settings, disk)
    written = StoreWriter(store).write([Draft(body=bytes(900)) for _ in range(4)])
    assert written[-1].position > 2_048
    store.flush()
    again = Store.open(settings, disk.crash())
    assert again.queue_range("TopicA", 0) == (0, 4)


@pytest.mark.fault
@pytest.mark.parametrize("seed", range(30))
def test_a_store_below_folders_that_were_missing_survives_a_power_loss(seed: int) -> None:
    root = Path("/srv/kourou/brokers/a/store")
    disk = SimDisk(seed)
    store = Store.open(small_settings(root), disk)
    (written,) = StoreWriter(store).write([Draft(body=b"promised")])
    store.flush()
    after = disk.crash()
    again = Store.open(small_settings(root), after)
    assert bytes(again.record_at(written.position)) == written.record
    again.close()


# -- paths -----------------------------------------------------------------------------------------


PATHS = StorePaths.under(Path("/data/store"))


@pytest.mark.parametrize(
    "name", ["", "1", "0000000000000000000a", "-0000000000000000001", "٠" * 20]
)
def test_other_names_are_no_files_of_ours(name: str) -> None:
    assert start_of(name) is None


@pytest.mark.parametrize("topic", ["", "..", "a/b", "a\0b", "x" * 128, "a.b", "topic "])
def test_a_name_that_would_leave_the_directory_is_refused(topic: str) -> None:
    with pytest.raises(BadRequest):
        PATHS.queue(topic, 0)


def test_a_negative_queue_is_refused() -> None:
    with pytest.raises(BadRequest, match="-1"):
        PATHS.queue("T", -1)


# -- A store whose files are symbolic links is not opened; its folders may be links ----------------


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
