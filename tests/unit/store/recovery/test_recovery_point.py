from __future__ import annotations

import struct
import zlib
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kourou.store.disk import write_atomically
from kourou.store.recovery.recovery_point import (
    FILE_BYTES,
    SECTOR_BYTES,
    RecoveryFile,
    RecoveryPoint,
    load_recovery_point,
    load_recovery_points,
)
from kourou.testing.disk import SimDisk

PATH = Path("/recovery")
POINT = RecoveryPoint(
    flushed=900,
    projected=800,
    indexed=700,
    store_ms=5,
    queue_count=4,
    offset_total=30,
    index_entries=31,
)


def test_neither_no_file_nor_an_empty_one_holds_a_point() -> None:
    disk = SimDisk()
    assert load_recovery_point(disk, PATH) is None
    RecoveryFile(disk, PATH, RecoveryPoint())
    assert len(disk.read(PATH)) == FILE_BYTES
    assert load_recovery_point(disk, PATH) is None


def test_the_newest_point_is_found() -> None:
    disk = SimDisk()
    file = RecoveryFile(disk, PATH, RecoveryPoint())
    for flushed in range(900, 910):
        file.save(replace(POINT, flushed=flushed))
        assert load_recovery_point(disk, PATH) == replace(
            POINT, flushed=flushed, sequence=flushed - 899
        )


def test_a_flush_moves_the_flushed_position_only() -> None:
    disk = SimDisk()
    file = RecoveryFile(disk, PATH, RecoveryPoint())
    file.save(POINT)
    file.note_flushed(1000)
    file.note_flushed(950)  # an older flush that comes late changes nothing
    found = load_recovery_point(disk, PATH)
    assert found is not None
    assert found == replace(POINT, flushed=1000, sequence=2)


def test_a_flush_before_the_first_checkpoint_tells_nothing() -> None:
    """It would name projections of a file that was there before this one."""
    disk = SimDisk()
    RecoveryFile(disk, PATH, POINT).note_flushed(1000)
    assert load_recovery_points(disk, PATH) == []


@pytest.mark.parametrize("saves", [1, 2, 3])
def test_after_a_restart_the_newest_point_is_not_the_first_to_be_overwritten(saves: int) -> None:
    """Torn, the first write after a restart would take it, and an older one would count."""
    disk = SimDisk()
    file = RecoveryFile(disk, PATH, RecoveryPoint())
    for flushed in range(1000, 1000 + saves):
        file.save(replace(POINT, flushed=flushed))
        file.note_flushed(flushed + 500)
    last = load_recovery_point(disk, PATH)
    assert last is not None
    before = {point.sequence: point for point in load_recovery_points(disk, PATH)}
    again = RecoveryFile(disk, PATH, last)
    again.note_flushed(5000)
    again.save(POINT)
    after = {point.sequence: point for point in load_recovery_points(disk, PATH)}
    assert after.keys() >= {2 * saves - 1, 2 * saves, 2 * saves + 1, 2 * saves + 2}
    assert all(after[sequence] == before[sequence] for sequence in (2 * saves - 1, 2 * saves))


@pytest.mark.feature("F110")
def test_after_a_power_loss_the_last_synced_point_or_a_newer_one_is_found() -> None:
    for seed in range(300):
        disk = SimDisk(seed)
        file = RecoveryFile(disk, PATH, RecoveryPoint())
        synced = 0
        written = 0
        for step in range(1, seed % 9 + 2):
            written = 1000 * step
            if (seed + step) % 3:
                file.note_flushed(written)
            else:
                file.save(replace(POINT, flushed=written))
                synced = written
        found = load_recovery_point(disk.crash(), PATH)
        flushed = 0 if found is None else found.flushed
        assert synced <= flushed <= written, seed
        if found is not None and synced:
            assert found.projected == POINT.projected


@pytest.mark.parametrize("at", range(0, 72, 7))
def test_a_damaged_sector_is_passed_over(at: int) -> None:
    disk = SimDisk()
    file = RecoveryFile(disk, PATH, RecoveryPoint())
    file.save(POINT)
    file.save(replace(POINT, flushed=1000))
    newest = next(
        sector * SECTOR_BYTES
        for sector in range(2)
        if disk.read(PATH)[sector * SECTOR_BYTES + 11] == 2
    )
    old = disk.read(PATH)[newest + at]
    disk.overwrite(PATH, bytes([old ^ 0x10]), newest + at)
    found = load_recovery_point(disk, PATH)
    assert found is not None
    assert found.flushed == POINT.flushed


NUMBERS = st.integers(-(2**63), 2**63 - 1)


@pytest.mark.fuzz
@given(st.binary(max_size=FILE_BYTES), st.lists(NUMBERS, min_size=8, max_size=8))
def test_any_bytes_are_points_that_can_be_or_none(noise: bytes, numbers: list[int]) -> None:
    """Also with a checksum that is right: another program, or a bug, may have written it."""
    body = struct.pack(">4s8q", b"KRP1", *numbers)
    disk = SimDisk()
    for data in (noise, body + struct.pack(">I", zlib.crc32(body)) + noise):
        write_atomically(disk, PATH, data[:FILE_BYTES])
        for point in load_recovery_points(disk, PATH):
            assert 0 <= point.projected <= point.flushed
