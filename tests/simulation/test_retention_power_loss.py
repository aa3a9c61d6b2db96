"""The power goes off while old segments are deleted: what was to stay is there, and no offset is
given twice.

Each seed is a life of a store on a simulated disk through several starts: batches are written and
flushed, old segments are deleted, the power is cut between two calls or in the middle of one, and
sometimes queues and index are lost and built again from what is left of the log.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from kourou.store.store import Store
from kourou.testing.disk import PowerLost, SimDisk
from kourou_rigs.store import Draft, StoreWriter, delete_before, small_settings

SETTINGS = small_settings(Path("/store"), segment_size_bytes=4_096, queue_file_units=8)
TARGETS = [("A", 0), ("A", 1), ("B", 0), ("%DLQ%g", 0)]

Target = tuple[str, int]


class Life:
    """One store through several starts."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.disk = SimDisk(seed)
        self.promised: dict[tuple[str, int, int], tuple[int, bytes]] = {}
        self.unflushed: dict[tuple[str, int, int], tuple[int, bytes]] = {}
        self.ends: Counter[Target] = Counter()
        self.asked_up_to = 0
        self.events: Counter[str] = Counter()

    def live(self) -> None:
        for _ in range(self.rng.randrange(2, 5)):
            store = Store.open(SETTINGS, self.disk)
            self.check(store)
            if self.rng.random() < 0.5:
                self.disk.cut_power(self.rng.randrange(1, 60))
            with suppress(PowerLost):
                self.work(store)
                if self.rng.random() < 0.3:
                    store.close()
                    self.promise()
                    self.disk.kill()
                    self.events["closed"] += 1
                    self.lose_projections()
                    continue
            self.disk = self.disk.crash()
            self.unflushed.clear()
            self.events["power lost"] += 1
            self.lose_projections()
        self.check(Store.open(SETTINGS, self.disk))

    def lose_projections(self) -> None:
        if self.rng.random() < 0.2:
            self.disk.remove_tree(Path("/store/consumequeue"))
            self.disk.remove_tree(Path("/store/index"))
            self.events["built again"] += 1

    def work(self, store: Store) -> None:
        writer = StoreWriter(store)
        targets = self.rng.sample(TARGETS, self.rng.randrange(1, 4))  # the others come to their end
        for _ in range(self.rng.randrange(2, 12)):
            drafts = [
                Draft(*self.rng.choice(targets), self.rng.randbytes(self.rng.randrange(600)))
                for _ in range(self.rng.randrange(1, 6))
            ]
            stamped = writer.stamp(drafts)
            for item in stamped:
                place = (item.topic, item.queue_id, item.offset)
                self.unflushed[place] = (item.position, item.record)
            writer.append(stamped)
            store.dispatch()
            chance = self.rng.random()
            if chance < 0.3:
                store.flush()
                self.promise()
            elif chance < 0.7:
                self.delete(store)

    def delete(self, store: Store) -> None:
        start, end = store.log_range()
        position = self.rng.randrange(start, end + 1)
        self.asked_up_to = max(self.asked_up_to, position)
        before = store.log_range()[0]
        delete_before(store, position)
        self.promise()  # it makes a checkpoint first
        if store.log_range()[0] > before:
            self.events["deleted"] += 1

    def promise(self) -> None:
        for (topic, queue_id, offset), item in self.unflushed.items():
            self.promised[topic, queue_id, offset] = item
            target = (topic, queue_id)
            self.ends[target] = max(self.ends[target], offset + 1)
        self.unflushed.clear()

    def check(self, store: Store) -> None:
        start = store.log_range()[0]
        assert start <= self.asked_up_to, "more is gone than was to be deleted"
        kept = {place: item for place, item in self.promised.items() if item[0] >= start}
        for target in TARGETS:
            low, high = store.queue_range(*target) or (0, 0)
            assert high >= self.ends[target], f"{target} ends at {high}, before {self.ends[target]}"
            found = dict(read_all(store, target, low, high))
            wanted = {place[2]: item for place, item in kept.items() if place[:2] == target}
            for offset, (_, record) in wanted.items():
                assert offset in found, f"{target}: {offset} is gone"
                assert found[offset] == record, f"{target}: {offset} is another message"
            for offset, record in found.items():
                position = int.from_bytes(record[28:36], "big")
                assert position >= start
                self.promised[*target, offset] = (position, record)
                self.ends[target] = max(self.ends[target], offset + 1)
        self.events["checks"] += 1


def read_all(store: Store, target: Target, low: int, high: int) -> Iterator[tuple[int, bytes]]:
    """Every readable message with its offset; what a power loss damaged is passed over."""
    while low < high:
        read = store.read_queue(
            *target, low, max_messages=999, max_bytes=1 << 30, codes=None, below=store.end
        )
        for record in read.records:
            yield int.from_bytes(record[20:28], "big"), bytes(record)
        assert read.next_offset > low
        low = read.next_offset


@pytest.mark.fault
@pytest.mark.timeout(3_600)
@pytest.mark.feature("F120", "F121", "F126", "F127")
def test_deleting_the_old_end_survives_power_loss(
    lived: Callable[[int, Callable[[int], Life]], tuple[int, Counter[str]]],
) -> None:
    seeds, events = lived(5_000, Life)
    if seeds > 100:
        assert {"closed", "power lost", "built again", "deleted"} <= set(events)
