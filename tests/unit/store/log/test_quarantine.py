from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from kourou.store.log.quarantine import Quarantine, Region
from kourou.store.paths import StorePaths

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


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(1, 20)), max_size=12))
def test_it_knows_exactly_the_union(pairs: list[tuple[int, int]]) -> None:
    quarantine = Quarantine([])
    covered: set[int] = set()
    for start, size in pairs:
        quarantine.add([Region(start, start + size)])
        covered |= set(range(start, start + size))
    assert {at for at in range(100) if quarantine.at(at)} == covered
    assert quarantine.regions == sorted(quarantine.regions)
