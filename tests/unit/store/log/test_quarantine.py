from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kourou.errors import Corrupt
from kourou.store.disk import write_atomically
from kourou.store.log.quarantine import Quarantine, Region, load_quarantine, save_quarantine
from kourou.store.paths import StorePaths
from kourou.testing.disk import SimDisk

PATHS = StorePaths.under(Path("/store"))


def test_a_position_is_in_a_region_or_not() -> None:
    quarantine = Quarantine([Region(10, 20), Region(30, 31)])
    assert [at for at in range(40) if quarantine.at(at)] == [*range(10, 20), 30]
    assert quarantine.next_start(0) == 10
    assert quarantine.next_start(10) == 10
    assert quarantine.next_start(11) == 30
    assert quarantine.next_start(31) is None


def test_overlapping_regions_become_one() -> None:
    quarantine = Quarantine([Region(10, 20, "first")])
    quarantine.add([Region(15, 25, "second"), Region(10, 12, "third")])
    assert quarantine.regions == [Region(10, 25, "first")]
    quarantine.add([Region(25, 30, "behind")])
    assert len(quarantine) == 2


def test_regions_below_the_log_are_forgotten() -> None:
    quarantine = Quarantine([Region(10, 20), Region(30, 40)])
    quarantine.forget_below(20)
    assert quarantine.regions == [Region(30, 40)]
    assert quarantine.at(15) is None


def test_they_are_kept_on_disk() -> None:
    disk = SimDisk()
    disk.make_dirs(PATHS.kourou)
    assert not len(load_quarantine(disk, PATHS))
    save_quarantine(disk, PATHS, Quarantine([Region(1, 2, "why")]))
    assert load_quarantine(disk, PATHS).regions == [Region(1, 2, "why")]


def test_a_file_that_cannot_be_understood_is_corrupt() -> None:
    disk = SimDisk()
    disk.make_dirs(PATHS.kourou)
    write_atomically(disk, PATHS.quarantine, b"{")
    with pytest.raises(Corrupt, match="quarantine"):
        load_quarantine(disk, PATHS)


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(1, 20)), max_size=12))
def test_it_knows_exactly_the_union(pairs: list[tuple[int, int]]) -> None:
    quarantine = Quarantine([])
    covered: set[int] = set()
    for start, size in pairs:
        quarantine.add([Region(start, start + size)])
        covered |= set(range(start, start + size))
    assert {at for at in range(100) if quarantine.at(at)} == covered
    assert quarantine.regions == sorted(quarantine.regions)
