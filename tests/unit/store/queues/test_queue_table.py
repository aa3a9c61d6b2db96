from functools import partial
from pathlib import Path

import numpy as np
import pytest

from kourou.store.paths import StorePaths
from kourou.store.queues.queue_files import UNIT
from kourou.store.queues.queue_table import ConsumeQueues
from kourou.store.real_disk import RealDisk
from kourou.testing.disk import SimDisk
from kourou_rigs.store import disk_with

PATHS = StorePaths.under(Path("/s"))
new_disk = partial(disk_with, PATHS.consume_queue)


def units(first: int, count: int) -> np.ndarray:
    made = np.zeros(count, UNIT)
    made["position"] = (first + np.arange(count)) * 100
    made["size"] = 100
    return made


def filled(disk: SimDisk) -> ConsumeQueues:
    table = ConsumeQueues(disk, PATHS, file_units=10, open_files_max=3)
    for topic, queue_id, count in (("TopicA", 0, 25), ("TopicA", 3, 4), ("%RETRY%g", 0, 11)):
        table.get_or_create(topic, queue_id).append_units(units(0, count), 0)
    return table


@pytest.mark.feature("F062")
def test_one_directory_a_topic_and_one_a_queue_in_it():
    disk = new_disk()
    filled(disk)
    found = [str(path.relative_to(PATHS.consume_queue)) for path in disk.files()]
    assert found == [
        "%RETRY%g/0/00000000000000000000",
        "%RETRY%g/0/00000000000000000200",
        "TopicA/0/00000000000000000000",
        "TopicA/0/00000000000000000200",
        "TopicA/0/00000000000000000400",
        "TopicA/3/00000000000000000000",
    ]


def test_what_lies_on_disk_is_loaded():
    disk = new_disk()
    filled(disk).close()
    table = ConsumeQueues(disk, PATHS, file_units=10)
    assert table.load() == []
    assert len(table) == 3
    assert sorted(table.topics()) == ["%RETRY%g", "TopicA"]
    assert table.range_of("TopicA", 0) == (0, 25)
    assert table.range_of("TopicA", 1) is None
    assert [queue.queue_id for queue in table.queues_of("TopicA")] == [0, 3]
    assert table.end_position() == 2_500
    assert table.offset_total() == 40
    assert table.get("TopicA", 3).units(0, 9).tobytes() == units(0, 4).tobytes()


def test_strange_names_on_disk_do_no_harm():
    disk = new_disk()
    filled(disk)
    disk.make_dirs(PATHS.consume_queue / "TopicA" / "old")
    disk.make_dirs(PATHS.consume_queue / "TopicA" / "7")
    disk.make_dirs(PATHS.consume_queue / "no topic!" / "0")
    table = ConsumeQueues(disk, PATHS, file_units=10)
    problems = table.load()
    assert len(problems) == 1
    assert "no topic!" in problems[0]
    assert len(table) == 3


@pytest.mark.fault
def test_a_wiped_table_does_not_come_back_after_a_power_loss(rounds):
    for seed in range(rounds(200)):
        disk = new_disk(seed)
        table = filled(disk)
        table.flush_all()
        table.wipe()
        assert len(table) == 0
        table.get_or_create("TopicA", 0).append_units(units(50, 3), 50)
        table.flush_all()
        after = disk.crash()
        again = ConsumeQueues(after, PATHS, file_units=10)
        assert again.load(99_999) == []
        again.correct_min_offsets(0)
        assert {(q.topic, q.queue_id): (q.min_offset, q.max_offset) for q in again} == {
            ("TopicA", 0): (50, 53)
        }


@pytest.mark.fault
@pytest.mark.feature("F055")
def test_a_flush_covers_all_queues_even_those_whose_files_were_closed(rounds):
    for seed in range(rounds(200)):
        disk = new_disk(seed)
        table = filled(disk)
        for queue_id in range(20):
            table.get_or_create("Many", queue_id).append_units(units(0, 5), 0)
        assert table.statistics()["open_files"] <= 3
        table.flush_all()
        after = ConsumeQueues(disk.crash(), PATHS, file_units=10)
        assert after.load(2_500) == []
        assert after.offset_total() == 40 + 100


@pytest.mark.feature("F070")
def test_real_files_come_back_too(tmp_path):
    paths = StorePaths.under(tmp_path)
    table = ConsumeQueues(RealDisk(), paths, open_files_max=2)
    for queue_id in range(5):
        table.get_or_create("T", queue_id).append_units(units(0, 7), 0)
    assert table.flush_all() == 5
    table.close()
    for trusted_below in (None, 700, 300):
        again = ConsumeQueues(RealDisk(), paths, open_files_max=2)
        assert again.load(trusted_below) == []
        assert again.offset_total() == 5 * (3 if trusted_below == 300 else 7)
        again.close()
    file = tmp_path / "consumequeue" / "T" / "0" / "00000000000000000000"
    assert file.stat().st_size == 6_000_000
    assert file.read_bytes() == units(0, 3).tobytes() + bytes(6_000_000 - 60)


@pytest.mark.slow
@pytest.mark.feature("F055")
def test_ten_thousand_queues_come_back_with_few_files_open(tmp_path):
    paths, most = StorePaths.under(tmp_path), 200
    count, files = 10_000, Path("/proc/self/fd")
    before = len(list(files.iterdir()))

    def opened() -> int:
        return len(list(files.iterdir())) - before

    table = ConsumeQueues(RealDisk(), paths, open_files_max=most)
    for turn in range(2):
        for number in range(count):
            queue = table.get_or_create(f"T{number // 100}", number % 100)
            queue.append_units(units(turn, 1), turn)
        assert opened() <= most + 2
    table.close()  # as a killed process would: the system has it all
    assert opened() == 0
    again = ConsumeQueues(RealDisk(), paths, open_files_max=most)
    assert again.load(2**40) == []
    assert opened() <= most + 2
    assert (len(again), again.offset_total()) == (count, 2 * count)
    again.close()
