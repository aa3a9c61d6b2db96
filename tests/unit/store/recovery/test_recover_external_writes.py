"""Whose work are checkpoint and tables?"""

from __future__ import annotations

from pathlib import Path

import pytest

from kourou.store.config.config_files import DELAYS, OFFSETS, TOPICS, ConfigFiles
from kourou.store.paths import StorePaths
from kourou.store.recovery.recover import Signs, look_for_signs
from kourou.store.store import Store
from kourou.testing.disk import SimDisk
from kourou_rigs.store import Draft, StoreWriter, small_settings

ROOT = Path("/store")
PATHS = StorePaths.under(ROOT)


@pytest.fixture
def disk() -> SimDisk:
    disk = SimDisk()
    store = Store.open(small_settings(ROOT), disk)
    StoreWriter(store).write([Draft()])
    ConfigFiles(disk, PATHS).save_offsets({"t@g": {0: 1}})
    store.close()
    return disk


@pytest.mark.parametrize("at", [0, 8])
def test_a_checkpoint_of_later_times_is_not_ours(disk: SimDisk, at: int) -> None:
    disk.overwrite(PATHS.checkpoint, (1_700_000_000_001).to_bytes(8, "big"), at)
    signs = look_for_signs(disk, PATHS)
    assert signs == Signs(newer_checkpoint=True, other_checkpoint=True)
    assert str(signs) == "checkpoint"


def test_a_checkpoint_of_a_clock_behind_ours_is_another_but_not_newer(disk: SimDisk) -> None:
    disk.overwrite(PATHS.checkpoint, (1_600_000_000_000).to_bytes(8, "big"), 8)
    assert look_for_signs(disk, PATHS) == Signs(other_checkpoint=True)


def test_a_lost_checkpoint_says_nothing(disk: SimDisk) -> None:
    disk.overwrite(PATHS.checkpoint, bytes(24), 0)
    assert look_for_signs(disk, PATHS) == Signs()
    disk.unlink(PATHS.checkpoint)
    assert look_for_signs(disk, PATHS) == Signs()


def test_a_checkpoint_left_behind_a_newer_point_is_ours(disk: SimDisk) -> None:
    """The power was lost between the two writes of a checkpoint, also right after a start."""
    for number in range(1, 4):
        store = Store.open(small_settings(ROOT), disk)
        before = disk.read(PATHS.checkpoint)
        StoreWriter(store, now_ms=1_700_000_000_000 + number).write([Draft()])
        store.checkpoint()
        disk.kill()
        disk.overwrite(PATHS.checkpoint, before, 0)
        assert look_for_signs(disk, PATHS) == Signs()


def test_the_progress_of_delay_levels_is_no_sign(disk: SimDisk) -> None:
    """RocketMQ leaves that file, and nobody here writes it: it would be a sign for ever."""
    disk.open(PATHS.config / DELAYS, create_size=0).pwrite(b"{}", 0)
    assert look_for_signs(disk, PATHS) == Signs()


def test_tables_that_we_did_not_write_are_named(disk: SimDisk) -> None:
    for name, content in ((OFFSETS, b"{}"), (TOPICS, b"{}")):
        disk.open(PATHS.config / name, create_size=0).pwrite(content, 0)
    assert look_for_signs(disk, PATHS).tables == [TOPICS, OFFSETS]
