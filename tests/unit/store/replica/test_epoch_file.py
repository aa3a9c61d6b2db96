from __future__ import annotations

from pathlib import Path

import pytest

from kourou.errors import Corrupt
from kourou.store.config.sealed_file import SealedFile
from kourou.store.paths import StorePaths
from kourou.store.replica.epoch_file import (
    MAGIC,
    load_epochs,
    remove_epochs,
    save_epochs,
    trim_epochs,
)
from kourou.store.store import Store
from kourou.testing.disk import SimDisk, disk_with
from kourou_rigs.store import Draft, StoreWriter, small_settings

PATHS = StorePaths.under(Path("/store"))
PAIRS = [(1, 0), (3, 100), (7, 260)]


def test_what_is_saved_is_found_after_a_power_loss() -> None:
    disk = disk_with(PATHS.kourou)
    assert load_epochs(disk, PATHS) is None
    save_epochs(disk, PATHS, PAIRS[:1])
    save_epochs(disk, PATHS, PAIRS)
    assert load_epochs(disk.crash(), PATHS) == PAIRS
    remove_epochs(disk, PATHS)
    assert load_epochs(disk.crash(), PATHS) is None


def test_trimming_drops_epochs_without_a_byte() -> None:
    for end, kept in ((261, PAIRS), (260, PAIRS[:2]), (100, PAIRS[:1]), (0, [])):
        disk = disk_with(PATHS.kourou)
        save_epochs(disk, PATHS, PAIRS)
        trim_epochs(disk, PATHS, end)
        assert load_epochs(disk.crash(), PATHS) == kept
    trim_epochs(disk_with(PATHS.kourou), PATHS, 5)


def test_epochs_that_do_not_ascend_are_refused() -> None:
    for pairs in ([(2, 0), (2, 5)], [(1, 5), (2, 5)], [(0, 0)], [(1, -1)]):
        with pytest.raises(AssertionError):
            save_epochs(disk_with(PATHS.kourou), PATHS, pairs)
        disk = disk_with(PATHS.kourou)
        body = b"".join(n.to_bytes(8, "big", signed=True) for pair in pairs for n in pair)
        for written in (body, body[:-1]):
            SealedFile(disk, PATHS.epochs, MAGIC).save(written)
            with pytest.raises(Corrupt, match="epochs"):
                load_epochs(disk, PATHS)


def test_a_log_that_lost_its_end_has_lost_the_epochs_there() -> None:
    disk = SimDisk()
    settings = small_settings(Path("/store"))
    store = Store.open(settings, disk)
    StoreWriter(store).write([Draft(body=bytes(200))])
    store.checkpoint()
    save_epochs(disk, PATHS, [(1, 0), (2, store.end)])
    disk = disk.crash()
    store = Store.open(settings, disk)
    assert load_epochs(disk, PATHS) == [(1, 0)]
