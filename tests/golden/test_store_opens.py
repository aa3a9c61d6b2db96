"""Stores that a real RocketMQ 4.9.8 wrote open, and every message in them can be read.

One was closed, one was copied while the broker ran (`abort` is there, a spare segment, checkpoint
behind). Segments of 16 KiB, 20 units a queue file, 100 slots and 60 entries an index file; queue
units carry addresses into consumequeue_ext, which is ignored.
"""

from __future__ import annotations

import shutil
import struct
from collections import Counter
from pathlib import Path

import pytest

from kourou.protocol.record.hashes import tags_code
from kourou.protocol.record.message_record import decode_record
from kourou.store.paths import StorePaths
from kourou.store.real_disk import RealDisk
from kourou.store.recovery.recovery_point import load_checkpoint
from kourou.store.store import Store
from kourou_rigs.store import Draft, StoreWriter, small_settings

GOLDEN = Path(__file__).parent / "rocketmq-4.9.8"
MESSAGES = {
    "%DLQ%CG1": 1,
    "%RETRY%CG1": 1,
    "DefaultCluster_REPLY_TOPIC": 4,
    "RMQ_SYS_TRANS_HALF_TOPIC": 4,
    "RMQ_SYS_TRANS_OP_HALF_TOPIC": 3,
    "SCHEDULE_TOPIC_XXXX": 2,
    "TopicA": 12,
    "TopicR": 2,
}


@pytest.fixture(params=["store-clean", "store-live-abort"])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    root = tmp_path / str(request.param)
    shutil.copytree(GOLDEN / str(request.param), root)
    return root


def files_of(root: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()
    }


def units_of(root: Path) -> dict[tuple[str, int], list[tuple[int, int, int]]]:
    """What RocketMQ's own queue files name: (position, size, code) by queue."""
    found: dict[tuple[str, int], list[tuple[int, int, int]]] = {}
    for path in sorted((root / "consumequeue").glob("*/*/*")):
        units = [unit for unit in struct.iter_unpack(">qiq", path.read_bytes()) if unit[1] > 0]
        found.setdefault((path.parts[-3], int(path.parts[-2])), []).extend(units)
    return {queue: units for queue, units in found.items() if units}


def read_all(
    store: Store, topic: str, queue_id: int, codes: frozenset[int] | None = None
) -> list[bytes]:
    low, high = store.queue_range(topic, queue_id) or (0, 0)
    read = store.read_queue(
        topic, queue_id, low, max_messages=100, max_bytes=1 << 20, codes=codes, below=store.end
    )
    assert read.corrupt_offsets == []
    assert read.next_offset == high
    return [bytes(record) for record in read.records]


@pytest.mark.feature("F064", "F066", "F069", "F070")
def test_every_message_can_be_read(root: Path) -> None:
    log = b"".join(path.read_bytes() for path in sorted((root / "commitlog").iterdir()))
    theirs = units_of(root)
    store = Store.open(small_settings(root), RealDisk())
    counts: Counter[str] = Counter()
    for (topic, queue_id), units in theirs.items():
        records = read_all(store, topic, queue_id)
        assert records == [log[position : position + size] for position, size, _ in units]
        for offset, record in enumerate(records):
            message = decode_record(record)
            assert (message.topic, message.queue_id, message.offset) == (topic, queue_id, offset)
            assert bytes(store.record_at(message.position)) == record
        counts[topic] += len(records)
    assert counts == MESSAGES
    assert store.report.records_walked == 29
    assert store.damaged_regions == []
    store.close()


@pytest.mark.feature("F075", "F076", "F077", "F078")
def test_every_key_is_found(root: Path) -> None:
    store = Store.open(small_settings(root), RealDisk())
    asked = 0
    for topic, queue_id in units_of(root):
        for record in read_all(store, topic, queue_id):
            message = decode_record(record)
            for key in {message.message_id, *message.keys} - {""}:
                hits = store.find_by_key(topic, key, max_count=64, begin_ms=0, end_ms=1 << 60)
                assert record in [bytes(hit) for hit in hits]
                asked += 1
    assert asked > 29
    store.close()


def test_tags_are_honoured_although_units_name_ext_addresses(root: Path) -> None:
    store = Store.open(small_settings(root), RealDisk())
    for queue_id in range(4):
        everything = [decode_record(record) for record in read_all(store, "TopicA", queue_id)]
        for tag in {message.tag for message in everything}:
            found = read_all(store, "TopicA", queue_id, frozenset({tags_code(tag)}))
            tags = [decode_record(record).tag for record in found]
            assert tags.count(tag) == sum(message.tag == tag for message in everything)
    store.close()


def test_a_closed_store_is_left_as_it_was(tmp_path: Path) -> None:
    root = tmp_path / "store"
    shutil.copytree(GOLDEN / "store-clean", root)
    before = files_of(root)
    store = Store.open(small_settings(root), RealDisk())
    assert store.report.way == "after RocketMQ"
    store.close()
    after = files_of(root)
    ours = {name for name in after if name.startswith("kourou/")}
    assert ours == {"kourou/boot", "kourou/format.json", "kourou/recovery"}
    assert {name: data for name, data in after.items() if name not in ours} == before


@pytest.mark.feature("F080", "F081")
def test_a_store_that_was_not_closed_goes_through_recovery(tmp_path: Path) -> None:
    root = tmp_path / "store"
    shutil.copytree(GOLDEN / "store-live-abort", root)
    store = Store.open(small_settings(root), RealDisk())
    assert store.report.way == "after a crash of RocketMQ"
    assert store.report.walked_from == 0
    store.close()
    assert not (root / "abort").exists()
    assert [path.name for path in (root / "commitlog").iterdir()] == ["0" * 20]
    again = Store.open(small_settings(root), RealDisk())
    assert again.report.way == "after a clean stop"
    again.close()


def test_it_goes_on_where_rocketmq_stopped(root: Path) -> None:
    store = Store.open(small_settings(root), RealDisk())
    end, newest = store.end, store.store_ms
    assert newest > 0
    (item,) = StoreWriter(store).write([Draft("TopicA", 0, b"ours", keys=("mine",))])
    assert (item.position, item.offset) == (end, 4)
    assert decode_record(item.record).store_timestamp >= newest
    store.close()
    times = load_checkpoint(RealDisk(), StorePaths.under(root).checkpoint)
    assert times.log_ms == decode_record(item.record).store_timestamp
    again = Store.open(small_settings(root), RealDisk())
    assert read_all(again, "TopicA", 0)[-1] == item.record
    again.close()
