from __future__ import annotations

from pathlib import Path

import pytest

from kourou.store.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from kourou.testing.disk import SimDisk

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
