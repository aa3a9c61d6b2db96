from __future__ import annotations

import struct
from pathlib import Path

import pytest

from kourou.engine.ports import QueueRead
from kourou.errors import Corrupt, Rejected
from kourou.protocol.record.hashes import tags_code
from kourou.store.log.commit_log import Segment
from kourou.store.paths import StorePaths
from kourou.store.queues.queue_files import fillers
from kourou.store.store import Store
from kourou.testing.disk import SimDisk
from kourou_rigs.store import Draft, StoreWriter, Written, small_settings

ROOT = Path("/store")
PATHS = StorePaths.under(ROOT)
SIZE = 2048


class Shelf:
    """A store with 30 messages in one queue, over several segments."""

    def __init__(self, **changes: object) -> None:
        self.disk = SimDisk()
        settings = small_settings(ROOT, segment_size_bytes=SIZE, **changes)
        self.store = Store.open(settings, self.disk)
        self.written: list[Written] = StoreWriter(self.store).write(
            [Draft(body=bytes([n]) * (20 + n), tag=f"t{n % 3}", keys=(f"k{n}",)) for n in range(30)]
        )

    def damage(self, *offsets: int) -> None:
        for offset in offsets:
            position = self.written[offset].position + 95
            path = PATHS.segment(position - position % SIZE)
            byte = self.disk.read(path)[position % SIZE]
            self.disk.overwrite(path, bytes([byte ^ 8]), position % SIZE)

    def set_unit(self, offset: int, data: bytes) -> None:
        path = PATHS.queue("TopicA", 0) / f"{offset // 20 * 400:020d}"
        self.disk.overwrite(path, data, offset % 20 * 20)

    def reopen(self, **changes: object) -> None:
        self.store.close()
        settings = small_settings(ROOT, segment_size_bytes=SIZE, **changes)
        self.store = Store.open(settings, self.disk)

    def read(self, offset: int = 0, **changes: object) -> QueueRead:
        limits: dict[str, object] = {
            "max_messages": 100,
            "max_bytes": 1 << 20,
            "codes": None,
            "below": 1 << 60,
        }
        return self.store.read_queue("TopicA", 0, offset, **(limits | changes))  # type: ignore[arg-type]

    def offsets(self, found: QueueRead) -> list[int]:
        by_bytes = {item.record: item.offset for item in self.written}
        return [by_bytes[bytes(record)] for record in found.records]


@pytest.fixture(params=["mmap", "pread"])
def shelf(request: pytest.FixtureRequest) -> Shelf:
    shelf = Shelf(read_mode=request.param)
    assert shelf.store.end > 2 * SIZE
    return shelf


def test_a_read_goes_over_segments(shelf: Shelf) -> None:
    found = shelf.read()
    assert shelf.offsets(found) == list(range(30))
    assert shelf.store.records_read == 30


@pytest.mark.feature("F073")
def test_a_damaged_message_costs_its_own_offset_only(shelf: Shelf) -> None:
    shelf.damage(7)
    found = shelf.read()
    assert shelf.offsets(found) == [n for n in range(30) if n != 7]
    assert found.corrupt_offsets == [7]
    assert found.next_offset == 30
    assert found.run == b"".join(found.records)
    assert shelf.store.corrupt_met == 1


def test_a_read_stops_before_the_second_run_of_damaged_messages(shelf: Shelf) -> None:
    shelf.damage(3, 4, 9, 20)
    found = shelf.read()
    assert shelf.offsets(found) == [0, 1, 2, 5, 6, 7, 8]
    assert found.corrupt_offsets == [3, 4]
    assert found.next_offset == 9
    assert found.last_position == shelf.written[8].position
    found = shelf.read(9)
    assert found.corrupt_offsets == [9]
    assert shelf.offsets(found) == list(range(10, 20))
    assert found.next_offset == 20


def test_nothing_but_damage(shelf: Shelf) -> None:
    shelf.damage(0, 1)
    found = shelf.read(max_messages=2)
    assert (found.records, found.corrupt_offsets, found.next_offset) == ([], [0, 1], 2)
    assert found.last_position == -1


def test_a_filler_is_a_damaged_message(shelf: Shelf) -> None:
    shelf.set_unit(11, fillers(1))
    shelf.reopen()
    found = shelf.read()
    assert found.corrupt_offsets == [11]
    assert shelf.offsets(found) == [n for n in range(30) if n != 11]
    limited = shelf.read(10, max_messages=1)
    assert shelf.offsets(limited) == [10]
    assert shelf.store.offset_position("TopicA", 0, 11) == -1
    assert shelf.store.store_time("TopicA", 0, 11) == -1


@pytest.mark.parametrize(
    "unit",
    [
        (0, 130, 0),  # another record of this queue
        (1, 130, 0),  # no record at all
        (1 << 40, 130, 0),  # far away
        (5000, 1 << 30, 0),  # too long
        (5000, 3, 0),  # too short
    ],
)
def test_a_unit_that_lies_serves_nothing_wrong(shelf: Shelf, unit: tuple[int, int, int]) -> None:
    StoreWriter(shelf.store).write([Draft()])  # the newest units are read from memory
    shelf.set_unit(25, struct.pack(">qiq", *unit))
    served: list[int] = []
    damaged: list[int] = []
    offset = 20
    while offset < 30:
        found = shelf.read(offset, max_messages=30 - offset)
        served += shelf.offsets(found)
        damaged += found.corrupt_offsets
        assert found.next_offset > offset, "the reader is stuck"
        offset = found.next_offset
    assert damaged == [25]
    assert served == [20, 21, 22, 23, 24, 26, 27, 28, 29]
    shelf.reopen()
    found = shelf.read(20, max_messages=10)
    assert shelf.store.report.rebuilt, "a queue out of order is built again"
    assert shelf.offsets(found) == list(range(20, 30))


@pytest.mark.feature("F073")
def test_tags_and_damage_together(shelf: Shelf) -> None:
    shelf.damage(4)
    found = shelf.read(codes=frozenset({tags_code("t1")}))
    assert shelf.offsets(found) == [n for n in range(1, 30, 3) if n != 4]
    assert found.corrupt_offsets == [4]


def test_a_unit_that_names_an_ext_address_is_never_left_out(shelf: Shelf) -> None:
    item = shelf.written[5]
    shelf.set_unit(5, struct.pack(">qiq", item.position, len(item.record), -(1 << 63) + 20))
    shelf.reopen()
    assert 5 in shelf.offsets(shelf.read(codes=frozenset({123})))


@pytest.mark.fault
def test_after_a_fault_only_flushed_messages_are_read(shelf: Shelf) -> None:
    shelf.store.flush()
    writer = StoreWriter(shelf.store)
    (late,) = writer.write([Draft(body=b"late")])
    assert len(shelf.read().records) == 31
    shelf.store._log.fail("a test")
    found = shelf.read()
    assert len(found.records) == 30
    assert found.next_offset == 30
    with pytest.raises(Rejected):
        shelf.store.record_at(late.position)
    assert bytes(shelf.store.record_at(shelf.written[3].position)) == shelf.written[3].record


def test_a_damaged_record_is_not_served_by_position(shelf: Shelf) -> None:
    shelf.damage(3)
    with pytest.raises(Corrupt):
        shelf.store.record_at(shelf.written[3].position)
    assert shelf.store.store_time("TopicA", 0, 3) == -1


def test_damaged_records_do_not_count(shelf: Shelf) -> None:
    writer = StoreWriter(shelf.store)
    shelf.written += writer.write([Draft(body=bytes(20), keys=("same",)) for _ in range(6)])
    shelf.damage(*range(32, 36))
    for count in (1, 2, 3):
        hits = shelf.store.find_by_key(
            "TopicA", "same", max_count=count, begin_ms=0, end_ms=1 << 60
        )
        wanted = [item.record for item in shelf.written[31:29:-1]]
        assert [bytes(hit) for hit in hits] == wanted[:count]


def test_a_record_that_claims_too_much_is_damaged_and_costs_no_more(shelf: Shelf) -> None:
    """Also where the log is read and not mapped, and the size leads out of it."""
    for size in (3, 1 << 30):
        item = shelf.written[3]
        path = PATHS.segment(item.position - item.position % SIZE)
        shelf.disk.overwrite(path, size.to_bytes(4, "big"), item.position % SIZE)
        with pytest.raises(Corrupt):
            shelf.store.record_at(item.position)
        find = {"max_count": 5, "begin_ms": 0, "end_ms": 1 << 60}
        assert shelf.store.find_by_key("TopicA", "k3", **find) == []


def test_a_single_record_is_read_without_the_rest_of_its_segment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where the log is not mapped a view is a copy, and a segment has a gigabyte."""
    shelf = Shelf(read_mode="pread")
    sizes: list[int] = []
    view = Segment.view
    monkeypatch.setattr(Segment, "view", lambda *args: sizes.append(args[2]) or view(*args))
    item = shelf.written[2]
    assert bytes(shelf.store.record_at(item.position)) == item.record
    assert shelf.store.find_by_key("TopicA", "k2", max_count=5, begin_ms=0, end_ms=1 << 60)
    assert shelf.store.store_time("TopicA", 0, 2) > 0
    with pytest.raises(Rejected):
        shelf.store.record_at(item.position + 1)
    assert max(sizes) == len(item.record)


def test_time_search_steps_over_damage(shelf: Shelf) -> None:
    writer = StoreWriter(shelf.store, now_ms=1_700_000_005_000)
    writer.write([Draft(body=b"later") for _ in range(10)])
    shelf.damage(*range(10, 20))
    at_ms = shelf.store.offset_by_time("TopicA", 0, 1_700_000_005_000)
    assert at_ms == 30
    assert shelf.store.offset_by_time("TopicA", 0, 1_700_000_000_000) == 0


def test_without_an_index_a_query_is_refused() -> None:
    shelf = Shelf(index_enabled=False)
    with pytest.raises(Rejected, match="no key index"):
        shelf.store.find_by_key("TopicA", "k", max_count=1, begin_ms=0, end_ms=1)


def test_recent_is_a_share_of_memory() -> None:
    shelf = Shelf(memory_bytes=1000, recent_percent=40)
    end = shelf.store.end
    assert shelf.store.is_recent(end - 400)
    assert not shelf.store.is_recent(end - 401)


@pytest.mark.feature("F089", "F115", "F093")
def test_records_are_views_of_the_mapped_log_and_not_copies() -> None:
    shelf = Shelf()
    (record,) = shelf.read(5, max_messages=1).records
    position = shelf.written[5].position
    assert record.readonly
    path = PATHS.segment(position - position % SIZE)
    shelf.disk.overwrite(path, b"\x99", position % SIZE + 90)
    assert record[90] == 0x99
