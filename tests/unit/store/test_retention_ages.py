"""A segment's age follows time, not what somebody sets the wall clock to."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from kourou.store.log.commit_log import Segment
from kourou.store.paths import StorePaths
from kourou.store.retention import SAVE_INTERVAL_MS, UNWATCHED_MS_MAX, AgeClock, Now
from kourou.testing.disk import SimDisk

PATHS = StorePaths.under(Path("/store"))
HOUR = 3_600_000
DAY = 24 * HOUR
WALL = 1_700_000_000_000
SIZE = 4_096


class Machine:
    """Clocks and a disk; `restart` is a new process, `reboot` a new start of the machine."""

    def __init__(self) -> None:
        self.disk = SimDisk()
        self.disk.make_dirs(PATHS.kourou)
        self.disk.make_dirs(PATHS.commit_log)
        self.wall, self.monotonic, self.boot = WALL, 50_000, "one"
        self.segments: list[Segment] = []
        self.ages = AgeClock(self.disk, PATHS)

    @property
    def now(self) -> Now:
        return Now(self.monotonic, self.wall, self.boot)

    def close_segment(self, modified_ms: int = 0) -> None:
        start = SIZE * len(self.segments)
        file = self.disk.open(PATHS.segment(start), create_size=SIZE)
        self.disk.set_modified_ms(PATHS.segment(start), modified_ms)
        self.segments.append(Segment(file, start, SIZE, mapped=False))

    def look(self) -> list[int]:
        aged, self.step = self.ages.look(self.now, self.segments)
        assert [(each.start, each.end) for each in aged] == [
            (segment.start, segment.end) for segment in self.segments
        ]
        if (data := self.ages.to_save()) is not None:
            self.ages.save(data)
        return [each.age_ms for each in aged]

    def go_on(self, ms: int) -> None:
        self.wall += ms
        self.monotonic += ms

    def restart(self) -> None:
        self.ages = AgeClock(self.disk, PATHS)

    def reboot(self) -> None:
        self.boot += "'"
        self.monotonic = 1_000
        self.restart()


@pytest.fixture
def machine() -> Machine:
    made = Machine()
    made.close_segment(WALL - 5 * HOUR)
    made.close_segment(WALL - HOUR)
    return made


def test_without_a_file_ages_begin_with_the_times_of_modification(machine: Machine) -> None:
    machine.close_segment(0)
    assert machine.look() == [5 * HOUR, HOUR, 0], "no time at all is young"
    assert not machine.step


def test_the_future_is_young_and_older_segments_are_never_younger(machine: Machine) -> None:
    machine.close_segment(WALL + DAY)
    machine.close_segment(WALL - 9 * HOUR)
    assert machine.look() == [5 * HOUR, HOUR, 0, 0]


@pytest.mark.feature("F121")
@pytest.mark.parametrize("step", [0, DAY, -DAY, 365 * DAY, -365 * DAY])
def test_a_clock_that_is_set_while_it_runs_ages_nothing(machine: Machine, step: int) -> None:
    machine.look()
    for _ in range(3):
        machine.go_on(1_000)
        machine.wall += step
        ages = machine.look()
        assert machine.step == step
    assert ages == [5 * HOUR + 3_000, HOUR + 3_000]
    assert machine.ages.steps == (3 if step else 0)


def test_a_segment_ages_from_when_the_log_went_on(machine: Machine) -> None:
    machine.look()
    machine.go_on(HOUR)
    machine.close_segment()
    assert machine.look()[-1] == 0
    machine.go_on(HOUR)
    assert machine.look() == [7 * HOUR, 3 * HOUR, HOUR]
    del machine.segments[0]
    aged, _ = machine.ages.look(machine.now, machine.segments)
    assert [each.age_ms for each in aged] == [3 * HOUR, HOUR]


def test_a_clock_that_drifts_is_not_called_set(machine: Machine) -> None:
    machine.look()
    for _ in range(10):
        machine.go_on(1_000)
        machine.wall += 900
        machine.look()
    assert machine.ages.steps == 0


@pytest.mark.feature("F121")
@pytest.mark.parametrize("step", [0, DAY, -DAY, -365 * DAY])
def test_a_clock_that_is_set_between_two_processes_ages_nothing(
    machine: Machine, step: int
) -> None:
    machine.look()
    machine.restart()
    machine.go_on(2 * DAY)
    machine.wall += step
    assert machine.look() == [2 * DAY + 5 * HOUR, 2 * DAY + HOUR]


@pytest.mark.feature("F121")
@pytest.mark.parametrize(
    ("off", "step", "counted"),
    [
        (60_000, 0, 60_000),
        (60_000, DAY, UNWATCHED_MS_MAX),
        (60_000, 365 * DAY, UNWATCHED_MS_MAX),
        (60_000, -DAY, 0),
        (10 * DAY, 0, UNWATCHED_MS_MAX),
    ],
)
def test_across_a_reboot_wall_time_counts_up_to_an_hour(
    machine: Machine, off: int, step: int, counted: int
) -> None:
    machine.look()
    machine.reboot()
    machine.wall += off + step
    assert machine.look() == [5 * HOUR + counted, HOUR + counted]
    machine.wall -= step  # and whoever mends the clock brings nothing back
    assert machine.look() == [5 * HOUR + counted, HOUR + counted]


def test_a_machine_that_does_not_tell_its_boot_is_another_one_each_time(machine: Machine) -> None:
    machine.boot = ""
    machine.look()
    machine.restart()
    machine.go_on(DAY)
    assert machine.look() == [5 * HOUR + UNWATCHED_MS_MAX, HOUR + UNWATCHED_MS_MAX]


def test_what_was_closed_after_the_last_writing_is_no_older_than_that(machine: Machine) -> None:
    machine.look()
    machine.restart()
    machine.go_on(HOUR)
    machine.close_segment(machine.wall - 40_000)
    machine.close_segment(machine.wall - 9 * HOUR)
    assert machine.look() == [6 * HOUR, 2 * HOUR, 40_000, 40_000]


def test_ages_are_written_when_segments_change_and_now_and_then(machine: Machine) -> None:
    written = []
    good = machine.ages.save
    machine.ages.save = lambda data: (good(data), written.append(data))  # type: ignore[method-assign]  # counts
    machine.look()
    machine.go_on(SAVE_INTERVAL_MS - 1)
    machine.look()
    assert len(written) == 1
    machine.go_on(1)
    machine.look()
    assert len(written) == 2
    machine.close_segment()
    machine.look()
    machine.segments.pop(0)
    machine.ages.look(machine.now, machine.segments)
    assert machine.ages.to_save() is not None
    assert machine.ages.to_save() is None
    assert len(written) == 3


@pytest.mark.parametrize(
    "damage",
    [b"", b"{", b"[]", b'{"at":1}', b'{"at":{"monotonic_ms":1,"wall_ms":1},"ages_ms":{"0":-5}}'],
)
def test_a_file_that_cannot_be_read_is_none(machine: Machine, damage: bytes) -> None:
    machine.disk.open(PATHS.ages, create_size=len(damage)).pwrite(damage, 0)
    assert machine.look() == [5 * HOUR, HOUR]


def test_an_unreadable_disk_is_said_at_once(machine: Machine, monkeypatch) -> None:
    def broken(*_args, **_more):
        raise OSError(errno.EIO, "I/O error")

    monkeypatch.setattr(machine.disk, "open", broken)
    with pytest.raises(OSError, match="I/O"):
        machine.look()
