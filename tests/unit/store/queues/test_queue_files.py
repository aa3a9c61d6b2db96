from pathlib import Path

import numpy as np
import pytest

from kourou.errors import ConfigError, Corrupt
from kourou.store.open_files import OpenFiles
from kourou.store.queues.queue_files import UNIT, QueueFiles, fillers
from kourou.testing.disk import SimDisk

ROOT = Path("/consumequeue")


@pytest.fixture
def disk():
    disk = SimDisk(3)
    disk.make_dirs(ROOT)
    return disk


def array_of(disk: SimDisk, file_units: int = 10) -> QueueFiles:
    return QueueFiles(ROOT / "T" / "0", ROOT, OpenFiles(disk, 8), file_units)


def some(first: int, count: int) -> bytes:
    units = np.zeros(count, UNIT)
    units["position"] = (first + np.arange(count)) * 100
    units["size"] = 100
    units["code"] = -5
    return units.tobytes()


@pytest.mark.feature("F069")
def test_a_unit_is_twenty_bytes_position_size_and_code():
    units = np.zeros(1, UNIT)
    units["position"], units["size"], units["code"] = 0x0102030405060708, 0x0A0B0C0D, -2
    assert units.tobytes().hex() == "0102030405060708" + "0a0b0c0d" + "fffffffffffffffe"
    assert fillers(2).hex() == ("00" * 8 + "7fffffff" + "00" * 8) * 2


@pytest.mark.feature("F070")
def test_files_are_named_by_byte_offset_and_have_their_full_length(disk):
    array = array_of(disk)
    array.start(0)
    array.write(0, some(0, 25))
    names = disk.list_dir(ROOT / "T" / "0")
    assert names == ["00000000000000000000", "00000000000000000200", "00000000000000000400"]
    assert {len(disk.read(ROOT / "T" / "0" / name)) for name in names} == {200}
    assert array.read(3, 22).tobytes() == some(3, 19)
    assert array.unit(20) == (2_000, 100, -5)


def test_files_of_another_length_are_refused_and_left_alone(disk):
    first = array_of(disk)
    first.start(0)
    first.write(0, some(0, 15))
    names = disk.list_dir(ROOT / "T" / "0")
    with pytest.raises(ConfigError, match="mappedFileSizeConsumeQueue"):
        array_of(disk, 20).adopt(names)
    with pytest.raises(ConfigError):
        array_of(disk, 7).adopt(names)
    assert disk.list_dir(ROOT / "T" / "0") == names


def test_a_missing_file_in_the_middle_is_noticed(disk):
    first = array_of(disk)
    first.start(0)
    first.write(0, some(0, 25))
    disk.unlink(ROOT / "T" / "0" / "00000000000000000200")
    array = array_of(disk)
    assert array.adopt(disk.list_dir(ROOT / "T" / "0")) == [20]
    assert (array.first, array.end) == (0, 10)
    assert array.stray_unit(20) == (2_000, 100, -5)
    array.remove_stray(20)
    assert disk.list_dir(ROOT / "T" / "0") == ["00000000000000000000"]


def test_a_file_that_shrank_is_corrupt_not_a_crash(tmp_path):
    from kourou.store.real_disk import RealDisk

    array = QueueFiles(tmp_path / "T" / "0", tmp_path, OpenFiles(RealDisk(), 8), 10)
    array.start(0)
    array.write(0, some(0, 9))
    with (tmp_path / "T" / "0" / "00000000000000000000").open("r+b") as file:
        file.truncate(50)
    with pytest.raises(Corrupt):
        array.read(0, 9)
