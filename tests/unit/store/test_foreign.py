"""Whose work are checkpoint and tables?"""

from __future__ import annotations

from pathlib import Path

import pytest

from kourou.store.config_files import OFFSETS, TOPICS, ConfigFiles
from kourou.store.foreign import Signs, look_for_signs
from kourou.store.paths import StorePaths
from kourou.store.store import Store
from kourou.testing.disk import SimDisk
from kourou.testing.store import Draft, StoreWriter, small_settings

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


def test_our_own_work_shows_no_sign(disk: SimDisk) -> None:
    assert look_for_signs(disk, PATHS) == Signs()
    assert not look_for_signs(disk, PATHS)


@pytest.mark.parametrize("at", [0, 8])
def test_a_checkpoint_of_later_times_is_not_ours(disk: SimDisk, at: int) -> None:
    disk.overwrite(PATHS.checkpoint, (1_700_000_000_001).to_bytes(8, "big"), at)
    signs = look_for_signs(disk, PATHS)
    assert (signs.newer_checkpoint, str(signs)) == (True, "checkpoint")


def test_a_lost_or_older_checkpoint_says_nothing(disk: SimDisk) -> None:
    disk.overwrite(PATHS.checkpoint, bytes(24), 0)
    assert not look_for_signs(disk, PATHS)
    disk.unlink(PATHS.checkpoint)
    assert not look_for_signs(disk, PATHS)


def test_tables_that_we_did_not_write_are_named(disk: SimDisk) -> None:
    for name, content in ((OFFSETS, b"{}"), (TOPICS, b"{}")):
        disk.open(PATHS.config / name, create_size=0).pwrite(content, 0)
    assert look_for_signs(disk, PATHS).tables == [TOPICS, OFFSETS]
