"""How full the disk is decides what the broker does; each change is told once."""

from __future__ import annotations

import pytest

from kourou.engine.disk_pressure import DiskLevel, DiskPressure
from kourou.engine.policy import EffectivePolicy

TB = 10**12


@pytest.fixture
def policy() -> EffectivePolicy:
    return EffectivePolicy("c", "b")


@pytest.fixture
def pressure(policy: EffectivePolicy) -> DiskPressure:
    return DiskPressure(policy)


def use(pressure: DiskPressure, percent: float, *, full: bool = False) -> list[str]:
    warnings = pressure.measured(TB, round(TB * (100 - percent) / 100), full=full)
    return [str(warning) for warning in warnings]


@pytest.mark.feature("F123")
@pytest.mark.parametrize(
    ("percent", "level"),
    [
        (0, DiskLevel.NORMAL),
        (74.9, DiskLevel.NORMAL),
        (75, DiskLevel.CLEANING),
        (84.9, DiskLevel.CLEANING),
        (85, DiskLevel.FORCING),
        (90, DiskLevel.REFUSING),
        (94.9, DiskLevel.REFUSING),
        (95, DiskLevel.STARVING),
        (100, DiskLevel.STARVING),
    ],
)
def test_levels(pressure: DiskPressure, percent: float, level: DiskLevel) -> None:
    use(pressure, percent)
    assert pressure.level is level


def test_thresholds_change_while_it_runs_and_never_cross(
    pressure: DiskPressure, policy: EffectivePolicy
) -> None:
    policy.change(disk_clean_percent=50)
    use(pressure, 55)
    assert pressure.level is DiskLevel.CLEANING
    policy.change(disk_clean_percent=95)
    use(pressure, 94)
    assert pressure.level is DiskLevel.NORMAL, "85 and 90 may not come before the first threshold"
    policy.change(disk_clean_percent=10, disk_force_percent=100, disk_refuse_percent=100)
    use(pressure, 99)
    assert pressure.level is DiskLevel.CLEANING
    assert not pressure.refusing


def test_how_much_must_go(pressure: DiskPressure) -> None:
    pressure.measured(1_000, 100, full=False)
    assert pressure.bytes_over() == 51, "849 of 1,000 bytes are below 85 %"
    pressure.measured(1_000, 151, full=False)
    assert pressure.bytes_over() == 0
    pressure.measured(1_000, 150, full=False)
    assert pressure.level is DiskLevel.FORCING
    assert pressure.bytes_over() == 1


@pytest.mark.feature("F124")
def test_less_than_four_gigabytes_are_warned_of_once(pressure: DiskPressure) -> None:
    four = 4 << 30
    told = []
    for free in (four, four - 1, four - 2, four + 1, four - 1, four * 2, four - 1):
        warnings = map(str, pressure.measured(TB, free, full=False))
        told.append(any(text.startswith("disk-space-low: ") for text in warnings))
        assert pressure.low is (free != four and free != four * 2)
    assert told == [False, True, False, False, False, False, True]


def test_percents_are_rounded_up(pressure: DiskPressure) -> None:
    assert pressure.used_percent == 0
    pressure.measured(1_000, 999, full=False)
    assert pressure.used_percent == 1
