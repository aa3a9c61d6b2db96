from functools import partial
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from kourou.errors import Corrupt
from kourou.protocol.kernel_python import FILLER_SIZE
from kourou.store.open_files import OpenFiles
from kourou.store.paths import StorePaths
from kourou.store.queues.consume_queue import GAP_UNITS_MAX, TAIL_BYTES_MAX, ConsumeQueue
from kourou.store.queues.queue_files import UNIT
from kourou.store.real_disk import RealDisk
from kourou.testing.disk import SimDisk
from kourou_rigs.store import disk_with

PATHS = StorePaths.under(Path("/s"))
DIRECTORY = PATHS.consume_queue / "TopicA" / "0"
FILE_UNITS = 10
new_disk = partial(disk_with, PATHS.consume_queue)


def queue_on(disk: SimDisk, file_units: int = FILE_UNITS) -> ConsumeQueue:
    return ConsumeQueue("TopicA", 0, PATHS, OpenFiles(disk, 4), file_units)


def units(first: int, count: int, base: int = 0) -> np.ndarray:
    made = np.zeros(count, UNIT)
    made["position"] = base + (first + np.arange(count)) * 100
    made["size"] = 100
    made["code"] = first + np.arange(count)
    return made


def fill(queue: ConsumeQueue, count: int, batch: int = 7) -> ConsumeQueue:
    for first in range(0, count, batch):
        queue.append_units(units(first, min(batch, count - first)), first)
    return queue


def reopened(disk: SimDisk, trusted_below: int | None = None) -> ConsumeQueue:
    queue = queue_on(disk)
    assert queue.load(disk.list_dir(DIRECTORY), trusted_below) == ""
    return queue


@pytest.mark.feature("F011", "F069", "F070")
def test_an_offset_leads_to_the_place_of_its_message():
    queue = fill(queue_on(new_disk()), 47)
    assert (queue.min_offset, queue.max_offset, queue.end_position) == (0, 47, 4_700)
    assert queue.units(0, 1_000).tobytes() == units(0, 47).tobytes()
    assert queue.units(19, 3).tobytes() == units(19, 3).tobytes()
    assert len(queue.units(47, 5)) == len(queue.units(-1, 5)) == 0


def test_the_last_run_is_read_without_touching_a_file():
    disk = new_disk()
    queue = fill(queue_on(disk), 24, batch=12)
    path = DIRECTORY / "00000000000000000200"
    disk.overwrite(path, bytes(20 * 4), 0)  # a reader of the file would see zeros
    assert queue.units(20, 4).tobytes() == units(20, 4).tobytes()
    assert queue.units(14, 9).tobytes() == units(14, 9).tobytes()
    long = TAIL_BYTES_MAX // 20 + 1
    queue.append_units(units(24, long), 24)
    assert queue.units(24, long).tobytes() == units(24, long).tobytes()


def test_a_queue_that_begins_late_has_fillers_before_it_as_rocketmq_writes_them():
    disk = new_disk()
    queue = queue_on(disk)
    assert queue.append_units(units(23, 2), 23) == 0
    assert (queue.first_offset, queue.min_offset, queue.max_offset) == (20, 23, 25)
    written = np.frombuffer(disk.read(DIRECTORY / "00000000000000000400"), UNIT)
    assert written["size"].tolist() == [FILLER_SIZE] * 3 + [100] * 2 + [0] * 5
    assert not written["position"][:3].any()
    again = reopened(disk)
    assert (again.max_offset, again.end_position) == (25, 2_500)
    again.correct_min_offset(0)
    assert again.min_offset == 23


def test_a_gap_is_filled_so_that_offsets_stay_true():
    queue = fill(queue_on(new_disk()), 5)
    assert queue.append_units(units(18, 3), 18) == 13
    assert queue.units(0, 99)["size"].tolist() == [100] * 5 + [FILLER_SIZE] * 13 + [100] * 3
    assert queue.size_bytes(0, 21) == 800
    assert queue.size_bytes(4, 19) == 200
    with pytest.raises(Corrupt, match="claims"):
        queue.append_units(units(0, 1, base=10_000), 22 + GAP_UNITS_MAX)


def test_a_damaged_record_keeps_its_offset_and_a_repaired_one_takes_it_back():
    disk = new_disk()
    queue = fill(queue_on(disk), 3)
    assert queue.keep_offset(4) == 2
    assert queue.keep_offset(4) == 0
    assert (queue.max_offset, queue.end_position) == (5, 300)
    queue.append_units(units(5, 1), 5)
    assert queue.append_again(units(2, 3), 2) == (2, 0)
    assert queue.units(0, 9).tobytes() == units(0, 6).tobytes()
    assert reopened(disk).units(0, 9).tobytes() == units(0, 6).tobytes()


@pytest.mark.parametrize("position", [0, 50, 100, 999, 1_000, 1_001, 1_900, 2_400, 2_500, 9_000])
def test_truncation_keeps_exactly_the_records_below_a_position(position):
    disk = new_disk()
    queue = fill(queue_on(disk), 25)
    kept = min(25, -(-position // 100))
    assert queue.truncate(position) == 25 - kept
    assert (queue.max_offset, queue.end_position) == (kept, kept * 100)
    assert queue.units(0, 99).tobytes() == units(0, kept).tobytes()
    fresh = new_disk()
    fill(queue_on(fresh), kept)
    assert {p: disk.read(p) for p in disk.files()} == {p: fresh.read(p) for p in fresh.files()}
    queue.append_units(units(kept, 30), kept)
    assert reopened(disk).units(0, 99).tobytes() == units(0, kept + 30).tobytes()


@pytest.mark.feature("F120", "F011")
def test_expired_units_are_below_the_minimum_and_their_files_go():
    disk = new_disk()
    queue = fill(queue_on(disk), 35)
    queue.correct_min_offset(1_250)
    assert queue.min_offset == 13
    assert queue.first_offset == 0  # still on disk
    gone = queue.detach_before(1_250)
    assert len(gone) == 1
    assert (queue.first_offset, queue.min_offset, queue.file_count) == (10, 13, 3)
    queue.correct_min_offset(99_999)
    assert queue.min_offset == queue.max_offset == 35
    gone += queue.detach_before(99_999)
    assert len(gone) == 3
    for file in gone:
        disk.unlink(file.path)
    assert queue.file_count == 1  # never the last
    assert len(queue.units(5, 3)) == 0
    again = reopened(disk)
    again.correct_min_offset(99_999)
    assert (again.min_offset, again.max_offset) == (35, 35)


def test_a_disk_that_refuses_leaves_the_queue_as_it_was():
    disk = new_disk(capacity_bytes=4096)
    queue = fill(queue_on(disk, 300), 10)
    before = queue.units(0, 99).tobytes()
    big = units(10, 290)
    with pytest.raises(OSError, match="No space"):
        queue.append_units(big, 10)
    assert (queue.max_offset, queue.end_position) == (10, 1_000)
    assert queue.units(0, 99).tobytes() == before
    disk.capacity_bytes = 1 << 20
    queue.append_units(big, 10)
    assert queue.units(0, 999).tobytes() == units(0, 300).tobytes()


def test_a_file_that_shrank_is_corrupt_not_a_crash(tmp_path: Path) -> None:
    pool = OpenFiles(RealDisk(), 4)
    queue = fill(ConsumeQueue("T", 0, StorePaths.under(tmp_path), pool, FILE_UNITS), 9)
    with (tmp_path / "consumequeue/T/0/00000000000000000000").open("r+b") as file:
        file.truncate(50)
    with pytest.raises(Corrupt, match="became shorter"):
        queue.units(0, 9)
    pool.close()


@pytest.mark.fault
@pytest.mark.feature("F074")
def test_after_a_power_loss_the_flushed_units_are_there_and_the_rest_comes_back(rounds):
    for seed in range(rounds(2_000)):
        rng = np.random.default_rng(seed)
        disk = new_disk(seed)
        pool = OpenFiles(disk, 4)
        queue = ConsumeQueue("TopicA", 0, PATHS, pool, 60)
        flushed = 0
        count = 0
        for _ in range(int(rng.integers(1, 12))):
            size = int(rng.integers(1, 40))
            queue.append_units(units(count, size), count)
            count += size
            if rng.random() < 0.3:
                pool.flush()
                flushed = count
        after = disk.crash()
        found = ConsumeQueue("TopicA", 0, PATHS, OpenFiles(after, 4), 60)
        assert found.load(after.list_dir(DIRECTORY), flushed * 100) == "", seed
        assert found.max_offset == flushed, seed
        assert found.units(0, 9_999).tobytes() == units(0, flushed).tobytes(), seed
        # The log lost its end too; what is dispatched now must stand alone in the files.
        count = int(rng.integers(flushed, count + 1))
        if count > flushed:
            found.append_units(units(flushed, count - flushed), flushed)
        clean = ConsumeQueue("TopicA", 0, PATHS, OpenFiles(after, 4), 60)
        assert clean.load(after.list_dir(DIRECTORY), None) == "", seed
        assert clean.units(0, 9_999).tobytes() == units(0, count).tobytes(), seed


def test_a_hole_left_by_a_power_loss_ends_the_run_behind_which_nothing_is_believed() -> None:
    disk = new_disk()
    fill(queue_on(disk, 400), 400)
    path = DIRECTORY / "00000000000000000000"
    disk.overwrite(path, bytes(20 * 20), 250 * 20)  # unflushed units that never reached the disk
    # A unit torn at the border of a sector may claim a low position; it deceives the halving.
    disk.overwrite(path, np.array((5, 100, 0), UNIT).tobytes(), 302 * 20)
    for below in range(24_000, 25_001, 100):
        queue = queue_on(disk.copy(), 400)
        assert queue.load([path.name], below) == ""
        assert queue.max_offset == below // 100


@pytest.mark.parametrize(
    ("name", "at", "damage", "problem"),
    [
        ("00000000000000000800", 8, np.array((1, 100, 7), UNIT).tobytes(), "out of order"),
        ("00000000000000000600", 5, bytes(20 * 5), "units are missing"),
    ],
)
def test_disorder_after_a_clean_stop_is_reported(
    name: str, at: int, damage: bytes, problem: str
) -> None:
    disk = new_disk()
    fill(queue_on(disk), 50)
    disk.overwrite(DIRECTORY / name, damage, at * 20)
    assert problem in queue_on(disk).load(disk.list_dir(DIRECTORY), None)


def test_a_missing_file_in_the_middle_is_noticed() -> None:
    disk = new_disk()
    fill(queue_on(disk), 25)
    disk.unlink(DIRECTORY / "00000000000000000200")
    names = disk.list_dir(DIRECTORY)
    for trusted_below in (None, 2_500):
        found = queue_on(disk).load(names, trusted_below)
        assert found == "queue TopicA/0: files before offset 20 are gone"
    assert disk.list_dir(DIRECTORY) == names
    assert reopened(disk, 1_000).max_offset == 10, "what was never flushed is no loss"
    assert disk.list_dir(DIRECTORY) == names[:1]


class AgainstAList(RuleBasedStateMachine):
    """A queue and a plain list of (position | None) must tell the same story."""

    def __init__(self) -> None:
        super().__init__()
        self.disk = new_disk()
        self.queue = queue_on(self.disk)
        self.model: list[int | None] = []
        self.next_position = 100

    def _units(self, count: int) -> np.ndarray:
        made = np.zeros(count, UNIT)
        made["position"] = self.next_position + np.arange(count) * 100
        made["size"] = 100
        self.next_position += count * 100
        return made

    @rule(count=st.integers(1, 25))
    def append(self, count: int) -> None:
        made = self._units(count)
        self.queue.append_units(made, len(self.model))
        self.model += made["position"].tolist()

    @precondition(lambda self: self.model)
    @rule(gap=st.integers(0, 15))
    def keep(self, gap: int) -> None:
        self.queue.keep_offset(len(self.model) + gap)
        self.model += [None] * (gap + 1)
        self.next_position += 100 * (gap + 1)

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def truncate(self, data: st.DataObject) -> None:
        position = data.draw(st.integers(0, self.next_position))
        self.queue.truncate(position)
        for offset, at in enumerate(self.model):
            if at is not None and at >= position:
                del self.model[offset:]
                break

    @rule()
    def reopen(self) -> None:
        self.queue = reopened(self.disk)

    @invariant()
    def same(self) -> None:
        assert self.queue.max_offset == len(self.model)
        found = self.queue.units(0, 10_000)
        positions = [
            None if size == FILLER_SIZE else int(position)
            for position, size in zip(found["position"], found["size"], strict=True)
        ]
        assert positions == self.model
        reals = [at for at in self.model if at is not None]
        assert self.queue.end_position == (reals[-1] + 100 if reals else 0)


TestAgainstAList = AgainstAList.TestCase
TestAgainstAList.settings = settings(stateful_step_count=20)
