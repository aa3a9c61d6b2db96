"""Records are tested by their properties, after they were verified."""

from __future__ import annotations

from pathlib import Path

import pytest

from kourou.engine.ports import QueueRead
from kourou.filtering.sql import Predicate, sql_filter
from kourou.store.store import Store
from kourou.testing.disk import SimDisk
from kourou_rigs.store import Draft, StoreWriter, Written, small_settings

TEXT = "TAGS = 'yes'"


class Shelf:
    """A store with messages of these tags in one queue, over several segments if there are many."""

    def __init__(self, *tags: str, **changes: object) -> None:
        self.disk = SimDisk()
        self.settings = small_settings(Path("/s"), **changes)
        self.store = Store.open(self.settings, self.disk)
        self.written: list[Written] = StoreWriter(self.store).write(
            [Draft(tag=tag, body=bytes([index]) * 50) for index, tag in enumerate(tags)]
        )

    def damage(self, number: int) -> None:
        """Change the tag of a record, whose checksum stays."""
        hurt = self.written[number]
        at = hurt.position + bytes(hurt.record).index(b"yes")
        size = self.settings.segment_size_bytes
        self.disk.overwrite(self.store.paths.segment(at - at % size), b"no!", at % size)

    def read(
        self, *, max_messages: int = 100, max_bytes: int = 1 << 20, wanted: Predicate | None = None
    ) -> QueueRead:
        return self.store.read_queue(
            "TopicA",
            0,
            0,
            max_messages=max_messages,
            max_bytes=max_bytes,
            codes=None,
            below=1 << 60,
            wanted=wanted or sql_filter(TEXT).predicate(),
        )

    def numbers(self, read: QueueRead) -> list[int]:
        """Which messages were read."""
        by_bytes = {item.record: item.offset for item in self.written}
        return [by_bytes[bytes(record)] for record in read.records]


def test_it_ends_before_what_does_not_fit() -> None:
    shelf = Shelf("no", "yes", "no", "no", "yes", "no")
    read = shelf.read(max_messages=1)
    assert (shelf.numbers(read), read.next_offset) == ([1], 4)
    read = shelf.read(max_bytes=1)
    assert (shelf.numbers(read), read.next_offset) == ([1], 4), "the first one always fits"


def test_messages_that_cannot_be_compared_are_counted_singly() -> None:
    wanted = sql_filter("TAGS > 5").predicate()
    shelf = Shelf("9", "no", "6", "no", "1", "nor", "8", "no")
    assert shelf.numbers(shelf.read(wanted=wanted)) == [0, 2, 6]
    assert wanted.failed == 4
    wanted = sql_filter("TAGS > 5").predicate()
    assert shelf.read(wanted=wanted, max_messages=2).next_offset == 6
    assert wanted.failed == 3, "the next read counts those behind its end"


@pytest.mark.parametrize("read_mode", ["mmap", "pread"])
def test_a_read_goes_over_segments(read_mode: str) -> None:
    tags = ["yes", "no", "no"] * 40
    shelf = Shelf(*tags, read_mode=read_mode, segment_size_bytes=2_048)
    assert shelf.store.end > 4_096
    assert shelf.numbers(shelf.read()) == list(range(0, 120, 3))


@pytest.mark.parametrize("read_mode", ["mmap", "pread"])
def test_damage_does_not_make_a_wanted_message_disappear(read_mode: str) -> None:
    """A broken property matches nothing: verified first, the message is reported as damaged."""
    shelf = Shelf("yes", "yes", "yes", "yes", read_mode=read_mode)
    shelf.damage(2)
    read = shelf.read()
    assert shelf.numbers(read) == [0, 1, 3]
    assert read.corrupt_offsets == [2]
    assert read.next_offset == 4
    read = shelf.read(max_messages=1)
    assert (read.corrupt_offsets, read.next_offset) == ([], 1), "the next read reports the damage"
