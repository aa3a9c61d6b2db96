"""The power goes off at any moment, thousands of times: what was acknowledged is there, and nothing
else.

Each seed is a life of a store on a simulated disk: batches are written as the engine places them,
some are flushed, now and then a checkpoint is made, a flush fails, the process is killed or the
power is cut, between two calls or in the middle of one, also during recovery. After each start the
store is read through and compared with what was promised.

Every third life stages what it appends in memory first (transientStorePoolEnable), in one buffer or
two, and writes it out now and then: a kill may take that, and nothing else.

What was not flushed is there up to some record, without a gap: what was appended together is cut
at one place only.

Acknowledged means: a flush that covers it has returned. What a start finds readable counts as
promised from then on, since recovery flushes it.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from kourou.errors import StoreFaulted
from kourou.protocol.record.message_record import decode_record
from kourou.store.store import Store
from kourou.testing.disk import PowerLost, SimDisk
from kourou_rigs.store import Draft, StoreWriter, Written, small_settings

SETTINGS = small_settings(
    Path("/store"), segment_size_bytes=2048, queue_file_units=7, index_slots=8, index_entries=20
)
TARGETS = (("TopicA", 0), ("TopicA", 1), ("TopicB", 0))
Place = tuple[str, int, int]


class Violation(AssertionError):
    """The store broke a promise."""


class Life:
    """One store through several starts; `early` acknowledges before the flush, which is wrong."""

    def __init__(self, seed: int, *, early: bool = False) -> None:
        self.rng = random.Random(seed)
        self.disk = SimDisk(seed)
        self.early = early
        self.settings = replace(SETTINGS, staging_buffers=seed // 3 % 2 + 1 if seed % 3 == 0 else 0)
        self.promised: dict[Place, bytes] = {}
        self.written: dict[Place, set[bytes]] = {}
        self.unflushed: list[Written] = []
        self.tail: list[Written] = []  # what was not flushed when it died
        self.events: Counter[str] = Counter()

    def live(self) -> None:
        for _ in range(self.rng.randrange(1, 4)):
            if self.rng.random() < 0.15:
                self.disk.cut_power(self.rng.randrange(1, 25))
            store: Store | None = None
            try:
                store = Store.open(self.settings, self.disk)
                self.check(store)
                assert not store.report.external_writes, "nobody else was here"
                self.work(store)
                if self.rng.random() < 0.2:
                    store.close()
                    self.acknowledge()
                    self.disk.kill()
                    self.events["closed"] += 1
                    continue
            except PowerLost:
                self.events["power lost inside a call"] += 1
            except StoreFaulted:
                self.events["failed sync"] += 1
            self.die(store)
        store = Store.open(self.settings, self.disk)
        self.check(store)
        if self.rng.random() < 0.1:
            self.rebuild(store)

    def die(self, store: Store | None) -> None:
        if store is not None and store.fault is None and self.rng.random() < 0.2:
            self.disk.kill()
            self.events["killed"] += 1
            self.events["killed with staged bytes"] += bool(store.unwritten_bytes)
        else:
            self.disk = self.disk.crash() if self.rng.random() < 0.9 else self.disk.kill().crash()
            self.events["power lost"] += 1
        self.tail += self.unflushed
        self.unflushed.clear()

    def work(self, store: Store) -> None:
        writer = StoreWriter(store, now_ms=1_700_000_000_000 + self.rng.randrange(-5_000, 5_000))
        if self.rng.random() < 0.05:
            self.disk.fail_sync(self.rng.randrange(1, 6))
        for _ in range(self.rng.randrange(1, 9)):
            drafts = [self.draft() for _ in range(self.rng.randrange(1, 5))]
            stamped = writer.stamp(drafts)
            for item in stamped:
                place = (item.topic, item.queue_id, item.offset)
                self.written.setdefault(place, set()).add(item.record)
            writer.append(stamped)
            self.unflushed += stamped
            if store.staged and self.rng.random() < 0.5:
                store.write_out()
            if self.rng.random() < 0.9:
                store.dispatch()
            if self.early:
                self.acknowledge()
            chance = self.rng.random()
            if chance < 0.4:
                flushed = store.flush()
                assert flushed == store.end - store.unwritten_bytes
                self.acknowledge(flushed)
            elif chance < 0.5:
                store.save_checkpoint(store.plan_checkpoint(whole=self.rng.random() < 0.5))
                self.acknowledge(store.flushed)

    def draft(self) -> Draft:
        topic, queue_id = self.rng.choice(TARGETS)
        key = f"k{self.rng.randrange(1 << 30)}"
        return Draft(topic, queue_id, self.rng.randbytes(self.rng.randrange(200)), keys=(key,))

    def acknowledge(self, below: int | None = None) -> None:
        for item in self.unflushed:
            if below is None or item.end <= below:
                self.promised[(item.topic, item.queue_id, item.offset)] = item.record
        self.unflushed = [] if below is None else [i for i in self.unflushed if i.end > below]

    # -- the oracle -------------------------------------------------------------------------------

    def check(self, store: Store) -> None:
        found: dict[Place, bytes] = {}
        for target in TARGETS:
            for offset, record in read_lane(store, *target):
                found[(*target, offset)] = record
        for place, record in self.promised.items():
            if place not in found:
                raise Violation(f"{place} was acknowledged and is gone")
            if found[place] != record:
                raise Violation(f"{place} was given to two messages")
        for place, record in found.items():
            if record not in self.written[place]:
                raise Violation(f"{place} holds what nobody wrote there")
        kept = [found.get((one.topic, one.queue_id, one.offset)) == one.record for one in self.tail]
        if kept != sorted(kept, reverse=True):
            raise Violation("a record is gone, and one that was appended later is there")
        if store.damaged_regions:
            raise Violation("a hole was kept")
        self.tail.clear()
        self.check_index(store, found)
        self.promised = found
        self.events["records checked"] += len(found)

    def check_index(self, store: Store, found: dict[Place, bytes]) -> None:
        for place in self.rng.sample(sorted(found), min(3, len(found))):
            (key,) = decode_record(found[place]).keys
            hits = store.find_by_key(place[0], key, max_count=64, begin_ms=0, end_ms=1 << 60)
            if found[place] not in [bytes(hit) for hit in hits]:
                raise Violation(f"{place} is not found by its key")

    def rebuild(self, store: Store) -> None:
        """Queues and index that were deleted come back byte for byte."""
        store.close()
        before = projections(self.disk)
        self.disk.remove_tree(Path("/store/consumequeue"))
        self.disk.remove_tree(Path("/store/index"))
        again = Store.open(SETTINGS, self.disk)
        again.close()
        if projections(self.disk) != before:
            raise Violation("rebuilt projections differ")
        self.events["rebuilt"] += 1


def read_lane(store: Store, topic: str, queue_id: int) -> Iterator[tuple[int, bytes]]:
    """Every readable message of a queue, with its offset; order is checked on the way."""
    known = store.queue_range(topic, queue_id)
    if known is None:
        return
    offset, end = known
    last_position = -1
    while offset < end:
        read = store.read_queue(
            topic,
            queue_id,
            offset,
            max_messages=64,
            max_bytes=1 << 20,
            codes=None,
            below=store.end,
        )
        for record in read.records:
            position = int.from_bytes(record[28:36], "big")
            assert position > last_position
            last_position = position
            yield int.from_bytes(record[20:28], "big"), bytes(record)
        assert read.next_offset > offset
        offset = read.next_offset


def projections(disk: SimDisk) -> dict[str, bytes]:
    """Queue files whole; index files as far as their header counts (entries behind it are free)."""
    found: dict[str, bytes] = {}
    for path in disk.files():
        if path.is_relative_to("/store/consumequeue"):
            found[str(path)] = disk.read(path)
        elif path.is_relative_to("/store/index"):
            data = disk.read(path)
            count = int.from_bytes(data[36:40], "big")
            found[str(path)] = data[: 40 + 4 * SETTINGS.index_slots + 20 * count]
    return found


@pytest.mark.fault
@pytest.mark.timeout(3_600)
@pytest.mark.feature("F068", "F074", "F081", "F094", "F110")
def test_what_was_acknowledged_survives(
    lived: Callable[[int, Callable[[int], Life]], tuple[int, Counter[str]]],
) -> None:
    seeds, events = lived(20_000, Life)
    if seeds > 1_000:
        assert min(events.values()) > 0
        assert {"closed", "killed", "killed with staged bytes", "rebuilt", "failed sync"} <= set(
            events
        )


def test_the_oracle_sees_an_acknowledgement_before_the_flush() -> None:
    broken = 0
    for seed in range(100):
        with suppress(StoreFaulted):
            try:
                Life(seed, early=True).live()
            except Violation:
                broken += 1
    assert broken > 10, broken
