from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kourou.protocol.kernel_python import FILLER_SIZE
from kourou.store.open_files import OpenFiles
from kourou.store.queues.consume_queue import data_end, first_at_or_above, last_real, next_real
from kourou.store.queues.queue_files import UNIT, QueueFiles
from kourou.testing.disk import SimDisk

ROOT = Path("/consumequeue")
FILE_UNITS = 40


def array_of(units: np.ndarray) -> QueueFiles:
    disk = SimDisk(0)
    disk.make_dirs(ROOT)
    array = QueueFiles(ROOT / "T" / "0", ROOT, OpenFiles(disk), FILE_UNITS)
    array.start(0)
    if len(units):
        array.write(0, units.tobytes())
    return array


def build(kinds: list[bool]) -> np.ndarray:
    """True: a real unit, 100 bytes further each; False: a filler."""
    units = np.zeros(len(kinds), UNIT)
    for at, real in enumerate(kinds):
        units[at] = (at * 100, 100, 7) if real else (0, FILLER_SIZE, 0)
    return units


kinds = st.lists(st.booleans(), max_size=130)


@given(kinds, st.integers(-1, 14_000))
def test_searches_agree_with_looking_at_every_unit(real, position):
    array = array_of(build(real))
    end = len(real)
    reals = [at for at, is_real in enumerate(real) if is_real]
    above = [at for at in reals if at * 100 >= position]
    found = first_at_or_above(array, position, 0, end)
    below = [at for at in reals if at * 100 < position]
    assert found >= (below[-1] + 1 if below else 0)
    assert next_real(array, found, end) == ((above[0], above[0] * 100) if above else None)
    assert last_real(array, 0, end) == ((reals[-1], reals[-1] * 100, 100) if reals else None)


@given(kinds)
def test_the_end_of_data_is_found_in_clean_files(real):
    assert data_end(array_of(build(real)), None) == (len(real), "")


@given(kinds, st.integers(0, 14_000))
def test_after_a_crash_only_units_below_the_flushed_position_count(real, below):
    if not all(real):
        real = [True] * len(real)
    end, problem = data_end(array_of(build(real)), below)
    assert (end, problem) == (min(len(real), -(-below // 100)), "")


def test_a_hole_left_by_a_power_loss_ends_the_run_behind_which_nothing_is_believed():
    units = build([True] * 100)
    units[70:90] = 0  # a sector of unflushed units that never reached the disk
    assert data_end(array_of(units), 7_000) == (70, "")
    # A unit torn at the border of a sector may claim a low position; it deceives the halving.
    units[89] = (5, 100, 0)
    for below in range(6_000, 7_001, 100):
        assert data_end(array_of(units), below)[0] == below // 100


def test_disorder_in_clean_files_is_reported():
    units = build([True] * 50)
    units[48]["position"] = 1
    end, problem = data_end(array_of(units), None)
    assert end == 50
    assert "out of order" in problem
    units = build([True] * 100)
    units[35:40] = 0
    assert "missing" in data_end(array_of(units), None)[1]


@pytest.mark.parametrize("count", [0, 1, 39, 40, 41, 80, 120])
def test_full_and_empty_files_have_their_end_at_the_border(count):
    assert data_end(array_of(build([True] * count)), None) == (count, "")
