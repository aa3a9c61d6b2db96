"""What stands between a path and a store."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from kourou.errors import ConfigError
from kourou.store.opening import LOCK_CONTENT, take_lock
from kourou.store.paths import StorePaths
from kourou.store.real_disk import RealDisk
from kourou.store.store import Store
from kourou.testing.disk import SimDisk
from kourou.testing.store import Draft, StoreWriter, small_settings


@pytest.fixture
def paths(tmp_path: Path) -> StorePaths:
    return StorePaths.under(tmp_path)


def open_store(paths: StorePaths) -> Store:
    return Store.open(small_settings(paths.root), RealDisk())


@pytest.mark.parametrize("content", [None, b"", b"lo", b"LOCK"])
def test_the_lock_file_says_what_rocketmqs_does(paths: StorePaths, content: bytes | None) -> None:
    if content is not None:
        paths.lock.write_bytes(content)
    take_lock(RealDisk(), paths).release()
    assert paths.lock.read_bytes() == LOCK_CONTENT


def test_a_lock_file_that_says_so_already_is_not_written(paths: StorePaths) -> None:
    paths.lock.write_bytes(LOCK_CONTENT)
    before = paths.lock.stat().st_mtime_ns
    take_lock(RealDisk(), paths).release()
    assert paths.lock.stat().st_mtime_ns == before


def test_the_first_look_comes_under_the_lock_and_before_any_change(paths: StorePaths) -> None:
    seen: list[list[str]] = []

    def look(given: StorePaths) -> None:
        assert given == paths
        with pytest.raises(ConfigError, match="another broker"):
            take_lock(RealDisk(), paths)
        seen.append([path.name for path in paths.root.iterdir()])
        raise ConfigError("no")

    with pytest.raises(ConfigError, match="no"):
        Store.open(small_settings(paths.root), RealDisk(), look)
    assert seen == [["lock"]]
    assert [path.name for path in paths.root.iterdir()] == ["lock"]
    take_lock(RealDisk(), paths).release()


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
