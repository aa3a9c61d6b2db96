"""Records are tested by their properties, after they were verified."""

from __future__ import annotations

from pathlib import Path

import pytest

from kourou.engine.ports import QueueRead
from kourou.filtering.sql import sql_filter
from kourou.protocol.record.layout import encode_host
from kourou.protocol.record.message_record import encode_draft
from kourou.protocol.record.properties import encode_properties
from kourou.store.log.reads import filter_records
from kourou.store.store import Store
from kourou.testing.disk import SimDisk
from kourou_rigs.store import Draft, StoreWriter, small_settings

TEXT = "TAGS = 'yes'"


def record(tag: str, host: str = "127.0.0.1", topic: str = "T", body: bytes = b"") -> memoryview:
    return memoryview(
        encode_draft(
            topic=topic.encode(),
            queue_id=0,
            body=body,
            properties=encode_properties({"TAGS": tag, "other": "x"}),
            born_timestamp=1,
            born_host=encode_host((host, 1)),
        )
    )


def sifted(records: list[memoryview], **limits: int) -> QueueRead:
    count = len(records)
    read = QueueRead(records, next_offset=count, corrupt_offsets=[100, count + 1])
    wanted = sql_filter(TEXT).predicate()
    offsets, positions = list(range(count)), [1_000 + index for index in range(count)]
    all_limits = {"max_messages": 100, "max_bytes": 1 << 20, **limits}
    filter_records(read, offsets, positions, wanted, **all_limits)
    return read


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
@pytest.mark.parametrize("topic", ["T", "x" * 127])
@pytest.mark.parametrize("body", [b"", b"TAGS\x01yes\x02", bytes(5_000)])
def test_the_properties_are_found_wherever_they_lie(host: str, topic: str, body: bytes) -> None:
    records = [record(tag, host, topic, body) for tag in ("yes", "no", "yes")]
    read = sifted(records)
    assert read.records == [records[0], records[2]]
    assert read.size_bytes == sum(len(each) for each in read.records)
    assert (read.next_offset, read.last_position) == (3, 1_002)
    assert read.corrupt_offsets == [100, 4]


def test_it_ends_before_what_does_not_fit() -> None:
    records = [record(tag) for tag in ("no", "yes", "no", "no", "yes", "no")]
    read = sifted(records, max_messages=1)
    assert (read.records, read.next_offset) == ([records[1]], 4)
    assert read.corrupt_offsets == [], "damage behind the end is told by the next read"
    read = sifted(records, max_bytes=1)
    assert (read.records, read.next_offset) == ([records[1]], 4), "the first one always fits"


def test_nothing_passes() -> None:
    read = sifted([record("no")] * 3)
    assert (read.records, read.size_bytes, read.next_offset, read.last_position) == ([], 0, 3, -1)


@pytest.mark.parametrize("read_mode", ["mmap", "pread"])
def test_damage_does_not_make_a_wanted_message_disappear(read_mode: str) -> None:
    """A broken property matches nothing: verified first, the message is told of as damaged."""
    disk = SimDisk()
    settings = small_settings(Path("/s"), read_mode=read_mode)
    store = Store.open(settings, disk)
    written = StoreWriter(store).write([Draft(tag="yes", body=bytes([n]) * 50) for n in range(4)])
    hurt = written[2]
    at = hurt.position + bytes(hurt.record).index(b"yes")
    size = settings.segment_size_bytes
    disk.overwrite(store.paths.segment(at - at % size), b"no!", at % size)
    read = store.read_queue(
        "TopicA",
        0,
        0,
        max_messages=10,
        max_bytes=1 << 20,
        codes=None,
        below=1 << 60,
        wanted=sql_filter(TEXT).predicate(),
    )
    assert [bytes(each) for each in read.records] == [written[n].record for n in (0, 1, 3)]
    assert read.corrupt_offsets == [2]
    assert read.next_offset == 4
    store.close()
