import re
from pathlib import Path

import numpy as np
import pytest

from kourou.errors import DiskFull
from kourou.protocol.record.columns import scan
from kourou.protocol.record.hashes import tags_code
from kourou.protocol.record.message_record import decode_record
from kourou.store.index.key_index import IndexState, KeyIndex
from kourou.store.paths import StorePaths
from kourou.store.queues import dispatch as dispatch_module
from kourou.store.queues.dispatch import Dispatcher
from kourou.store.queues.queue_files import UNIT
from kourou.store.queues.queue_table import ConsumeQueues
from kourou.testing.disk import SimDisk
from kourou_rigs.records import RecordRun

PATHS = StorePaths.under(Path("/s"))
GOLDEN = Path(__file__).parents[3] / "golden" / "rocketmq-4.9.8"
LEVELS_MS = (1_000, 2_000, 3_000, 4_000, 5_000)


class Projections:
    """A dispatcher with its files on a disk in memory."""

    def __init__(self, disk: SimDisk | None = None, *, index: bool = True, load: bool = False):
        self.disk = disk or SimDisk(0)
        for directory in PATHS.directories:
            self.disk.make_dirs(directory)
            self.disk.sync_dir(directory.parent)
        self.queues = ConsumeQueues(self.disk, PATHS, file_units=20)
        self.index = KeyIndex(self.disk, PATHS.index, slot_count=100, entry_count=60)
        self.dispatcher = Dispatcher(self.queues, self.index if index else None, LEVELS_MS)

    def files(self) -> dict[str, bytes]:
        self.dispatcher.flush()
        return {str(path): self.disk.read(path) for path in self.disk.files()}

    def find(self, topic: str, key: str) -> list[int]:
        from kourou.protocol.record.hashes import index_hash

        return list(self.index.find(index_hash(f"{topic}#{key}"), begin_ms=0, end_ms=2**62))


def mixed_run(count: int = 150) -> RecordRun:
    """Several topics, queues, tags, keys, delays, transactions, out of step with one another."""
    run = RecordRun()
    for number in range(count):
        kind = number % 11
        if kind == 3:
            run.add(
                "SCHEDULE_TOPIC_XXXX",
                1,
                tag="T",
                properties={"DELAY": "2"},
                unique_key=f"D{number}",
            )
        elif kind == 5:
            run.add("TopicB", 0, sys_flag=8, keys=f"b{number} c{number}")
        elif kind == 7:
            run.add("TopicB", 0, sys_flag=4, keys=f"p{number}")
            run.offsets["TopicB", 0] -= 1  # prepared ones take no offset
        elif kind == 8:
            run.add("TopicB", 0, sys_flag=12, keys=f"r{number}")
            run.offsets["TopicB", 0] -= 1
        else:
            run.add("TopicA", number % 4, tag=f"Tag{number % 3}", unique_key=f"U{number:030d}")
    return run


def dispatch_in(projections: Projections, run: RecordRun, sizes: list[int]) -> None:
    first = 0
    turn = 0
    while first < len(run.positions):
        size = sizes[turn % len(sizes)]
        projections.dispatcher.dispatch(run.columns(first, first + size))
        first += size
        turn += 1


@pytest.mark.feature("F072")
def test_units_and_entries_of_a_batch():
    run = mixed_run()
    made = Projections()
    made.dispatcher.dispatch(run.columns())
    for queue_id in range(4):
        found = made.queues.get("TopicA", queue_id)
        records = [
            (offset, position)
            for offset, position in enumerate(
                position
                for number, position in enumerate(run.positions)
                if number % 11 not in (3, 5, 7, 8) and number % 4 == queue_id
            )
        ]
        units = found.units(0, 999)
        assert units["position"].tolist() == [position for _, position in records]
        tags = {tags_code(f"Tag{n}") for n in range(3)}
        assert set(units["code"].tolist()) <= tags
    first = run.positions[0]
    assert made.find("TopicA", f"U{0:030d}") == [first]
    assert made.find("TopicB", "c5") == made.find("TopicB", "b5") == [run.positions[5]]
    assert made.dispatcher.end == run.end


def test_the_queues_that_advanced_are_reported():
    run = RecordRun()
    for number in range(20):
        run.add("TopicA", number % 2, tag="x" if number % 4 < 2 else "y")
    made = Projections()
    advanced = made.dispatcher.dispatch(run.columns(0, 12))
    assert [(g.topic, g.queue_id, g.first_offset, g.max_offset) for g in advanced] == [
        ("TopicA", 0, 0, 6),
        ("TopicA", 1, 0, 6),
    ]
    few = made.dispatcher.dispatch(run.columns(12, 15))
    assert [(g.queue_id, g.first_offset, g.max_offset) for g in few] == [(0, 6, 8), (1, 6, 7)]
    assert made.dispatcher.dispatch(run.columns(0, 15)) == []
    assert made.dispatcher.repeated == 15
    assert made.dispatcher.dispatch(run.columns(20, 20)) == []


def test_a_delayed_message_has_its_time_of_delivery_for_a_code():
    run = RecordRun(store_ms=1_000_000)
    for level in ("1", "3", "9", "0", "x", "", "-1"):
        run.add("SCHEDULE_TOPIC_XXXX", 0, tag="TagA", properties={"DELAY": level})
    run.add("TopicA", 0, tag="TagA", properties={"DELAY": "3"})
    tag = tags_code("TagA")
    wanted = [1_000_001 + 1_000, 1_000_002 + 3_000, 1_000_003 + 5_000, tag, tag, tag, tag]
    for batches in ([8], [1]):
        made = Projections()
        dispatch_in(made, run, batches)
        units = made.queues.get("SCHEDULE_TOPIC_XXXX", 0).units(0, 9)
        assert units["code"].tolist() == wanted
        assert made.queues.get("TopicA", 0).units(0, 1)["code"].tolist() == [tag]


def test_halves_of_transactions_are_not_queued_and_rolled_back_ones_not_indexed():
    run = mixed_run(12)
    for batches in ([12], [1]):
        made = Projections()
        dispatch_in(made, run, batches)
        queue = made.queues.get("TopicB", 0)
        assert queue.units(0, 9)["position"].tolist() == [run.positions[5]]
        assert made.find("TopicB", "p7") == [run.positions[7]]
        assert made.find("TopicB", "r8") == []


@pytest.mark.feature("F073", "F074")
@pytest.mark.parametrize("index", [True, False])
def test_whatever_the_batches_the_files_are_the_same_bytes(index: bool):
    run = mixed_run()
    wanted = Projections(index=index)
    wanted.dispatcher.dispatch(run.columns())
    for sizes in ([1], [2, 9], [7], [64], [3, 1, 30]):
        made = Projections(index=index)
        dispatch_in(made, run, sizes)
        assert made.files() == wanted.files()
        assert made.dispatcher.statistics() == wanted.dispatcher.statistics()


@pytest.mark.feature("F069", "F074", "F077")
@pytest.mark.parametrize("store", ["store-clean", "store-live-abort"])
@pytest.mark.parametrize("size", [1, 5, 29])
def test_a_real_store_is_built_again_from_its_log(store, size):
    root = GOLDEN / store
    log = scan((root / "commitlog" / "00000000000000000000").read_bytes())
    made = Projections()
    for first in range(0, len(log), size):
        made.dispatcher.dispatch(log.select(slice(first, first + size)))
    files = made.files()
    for path in sorted((root / "consumequeue").glob("*/*/*")):
        mine = files.pop(str(PATHS.root / path.relative_to(root)))
        assert mine == _with_plain_codes(path, root)
    (index,) = (root / "index").iterdir()
    (mine,) = files.values()
    assert mine == index.read_bytes()


HEX = re.compile(r"^((?:[0-9a-f]{2} +)+[0-9a-f]{2})(?= |$)", re.MULTILINE)


def test_the_examples_of_the_format_pages_are_true():
    pages = Path(__file__).parents[4] / "docs" / "formats"
    made = Projections()
    log = scan((GOLDEN / "store-clean" / "commitlog" / "00000000000000000000").read_bytes())
    made.dispatcher.dispatch(log)
    lines = HEX.findall((pages / "consume-queue.md").read_text())
    units = made.queues.get("TopicA", 1).units(0, 2)
    assert [bytes.fromhex(line) for line in lines] == [unit.tobytes() for unit in units]
    made.dispatcher.flush()
    (index,) = (data for name, data in made.files().items() if "index" in name)
    *header, entry = HEX.findall((pages / "key-index.md").read_text())
    assert bytes.fromhex("".join(header)) == index[:40]
    assert bytes.fromhex(entry) == index[480:500]
    assert int.from_bytes(index[236:240], "big") >= 2


def _with_plain_codes(path: Path, root: Path) -> bytes:
    """The golden queue file, with codes in place of addresses into consumequeue_ext.

    That store was written with enableConsumeQueueExt, whose units repeat the tag code.
    """
    units = np.frombuffer(path.read_bytes(), UNIT).copy()
    extended = root / "consumequeue_ext" / path.parent.relative_to(root / "consumequeue")
    for unit in units:
        if unit["code"] <= -(2**31) - 1:
            at = int(unit["code"]) + 2**63
            ext = (extended / f"{at // 4096 * 4096:020d}").read_bytes()[at % 4096 :]
            unit["code"] = int.from_bytes(ext[2:10], "big", signed=True)
    return units.tobytes()


def test_a_missing_record_leaves_a_filler_and_a_repaired_one_replaces_it():
    run = mixed_run(60)
    good = Projections()
    dispatch_in(good, run, [60])
    for lost in (4, 22, 59):
        damaged = Projections()
        damaged.dispatcher.dispatch(run.columns(0, lost))
        damaged.dispatcher.dispatch(run.columns(lost + 1))
        if lost == 59:
            assert damaged.dispatcher.fillers == 0
            damaged.dispatcher.dispatch_gap(
                "TopicA", 3, good.queues.get("TopicA", 3).max_offset - 1
            )
        assert damaged.dispatcher.fillers == 1
        assert damaged.queues.offset_total() == good.queues.offset_total()
        damaged.dispatcher.dispatch(run.columns(lost, lost + 1))
        assert damaged.dispatcher.fillers_replaced == 1
        assert [queue.units(0, 99).tobytes() for queue in damaged.queues] == [
            damaged_queue.units(0, 99).tobytes()
            for damaged_queue in (
                good.queues.get(queue.topic, queue.queue_id) for queue in damaged.queues
            )
        ]


def test_a_batch_may_overlap_what_is_there():
    run = RecordRun()
    for number in range(40):
        run.add("TopicA", number % 2, unique_key=f"k{number}")
    made = Projections()
    made.dispatcher.dispatch(run.columns(0, 17))
    advanced = made.dispatcher.dispatch(run.columns(5, 30))
    assert [(g.first_offset, g.max_offset) for g in advanced] == [(8, 15), (9, 15)]
    made.dispatcher.dispatch(run.columns(0, 40))
    wanted = Projections()
    wanted.dispatcher.dispatch(run.columns())
    assert made.files() == wanted.files()
    assert made.dispatcher.conflicting == 0


def test_a_record_that_contradicts_a_unit_is_counted_and_the_first_one_stays():
    run = RecordRun()
    for number in range(10):
        run.add("TopicA", 0, offset=number)
    for number in (3, 9):
        run.add("TopicA", 0, offset=number)  # as a log that reused offsets would have it
    for batches in ([12], [10, 2], [1]):
        made = Projections()
        dispatch_in(made, run, batches)
        assert made.queues.get("TopicA", 0).units(0, 99)["position"].tolist() == run.positions[:10]
        assert made.dispatcher.conflicting == 2


def test_a_topic_that_rocketmq_deleted_and_made_again_begins_anew():
    run = RecordRun()
    for number in (*range(10), *range(3)):
        run.add("TopicA", 0, offset=number)
    for batches in ([13], [10, 3], [11, 2], [1]):
        made = Projections()
        dispatch_in(made, run, batches)
        dispatch_in(made, run, batches)  # also if all of it is handed in again
        assert made.queues.get("TopicA", 0).units(0, 99)["position"].tolist() == run.positions[10:]
        assert made.dispatcher.restarted == 1


def test_names_and_numbers_that_can_be_no_queue_are_refused_and_the_rest_goes_on():
    run = RecordRun()
    for number in range(8):
        run.add("TopicA" if number % 2 else "../evil", 0, unique_key=f"k{number}")
    run.add("TopicA", -1 & 0x7FFF_FFFF)
    columns = run.columns()
    columns.queue_ids[-1] = -5
    for piece in (columns, *(columns.select(slice(row, row + 1)) for row in range(9))):
        made = Projections()
        made.dispatcher.dispatch(piece)
        assert made.dispatcher.refused == sum(
            decode_record(piece.record(row)).topic != "TopicA" or int(piece.queue_ids[row]) < 0
            for row in range(len(piece))
        )
        assert made.queues.topics() in (["TopicA"], [])
        assert all("evil" not in str(path) for path in made.disk.files())
    assert made.queues.get("TopicA", 0) is None


def test_an_absurd_offset_is_refused():
    run = RecordRun()
    for number in range(8):
        run.add("TopicA", 0, offset=number)
    run.add("TopicA", 0, offset=2**40)
    run.add("TopicA", 0, offset=8)
    made = Projections()
    made.dispatcher.dispatch(run.columns())
    assert made.dispatcher.refused == 1
    assert made.queues.get("TopicA", 0).max_offset == 9


def test_a_full_disk_stops_the_queues_and_the_same_batch_goes_through_later():
    run = RecordRun()
    for number in range(80):
        run.add("TopicA", number % 8, unique_key=f"k{number}")
    made = Projections(SimDisk(0, capacity_bytes=5 * 4096))
    with pytest.raises(DiskFull):
        made.dispatcher.dispatch(run.columns())
    assert made.dispatcher.end == 0
    assert made.index.entry_total == 0
    made.disk.capacity_bytes = 1 << 20
    made.dispatcher.dispatch(run.columns())
    wanted = Projections()
    wanted.dispatcher.dispatch(run.columns())
    assert made.files() == wanted.files()


@pytest.mark.feature("F079")
def test_an_index_without_space_does_not_stop_the_queues_and_catches_up(monkeypatch):
    run = RecordRun()
    for number in range(60):
        run.add("TopicA", 0, unique_key=f"k{number}")
    made = Projections()
    made.dispatcher.dispatch(run.columns(0, 10))
    made.dispatcher.flush()

    def refuse(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(made.index._pool, "write", refuse)
        assert made.dispatcher.dispatch(run.columns(10, 30))
    assert made.index.state is IndexState.BEHIND
    assert made.dispatcher.dispatch(run.columns(30, 60))
    assert made.queues.get("TopicA", 0).max_offset == 60
    made.dispatcher.flush()
    assert made.index.flushed == run.positions[10]  # a restart begins there
    made.dispatcher.catch_up_index(run.columns(10, 25), run.positions[25])
    made.dispatcher.catch_up_index(run.columns(25, 60), run.end)
    assert made.index.state is IndexState.CURRENT
    made.dispatcher.flush()
    assert made.index.flushed == run.end
    wanted = Projections()
    dispatch_in(wanted, run, [60])
    assert made.files() == wanted.files()


def test_a_segment_end_between_batches_leaves_the_index_current():
    run, later = RecordRun(), RecordRun(position=16_384)
    for number in range(3):
        run.add("TopicA", 0, unique_key=f"a{number}")
        later.add("TopicA", 0, offset=3 + number, unique_key=f"b{number}")
    made = Projections()
    made.dispatcher.dispatch(run.columns())
    made.dispatcher.dispatch(later.columns())
    assert made.index.state is IndexState.CURRENT
    assert made.find("TopicA", "b2") == [later.positions[2]]


def test_many_topics_do_not_fill_the_memory(monkeypatch):
    monkeypatch.setattr(dispatch_module, "_TOPICS_KNOWN_MAX", 3)
    run = RecordRun()
    for number in range(30):
        run.add(f"T{number % 10}")
    made = Projections()
    made.dispatcher.dispatch(run.columns())
    assert len(made.queues) == 10
    assert made.queues.offset_total() == 30
