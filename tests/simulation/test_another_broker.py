"""Another broker runs on our store between two runs of ours, and anybody may crash at any moment:
what either of them promised is there, whoever wrote last, and nobody is suspected without reason.

Each seed is a life of a store on a simulated disk. The other broker is our own store with `kourou/`
put out of its sight, and then put back as we left it: so the log goes on, or begins later, or a
topic is gone, and our recovery point tells of a store that is no more. Its clock may be behind
ours, it may keep no index, it leaves a checkpoint as RocketMQ would and tables that are not ours.
The power goes off in its life, in ours, and most of all while we take the store over.
"""

from __future__ import annotations

import random
import re
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from kourou.errors import Corrupt
from kourou.protocol.record.message_record import decode_record
from kourou.store.paths import StorePaths
from kourou.store.store import Store
from kourou.testing.disk import PowerLost, SimDisk
from kourou_rigs.store import Draft, StoreWriter, Written, delete_before, small_settings

ROOT = Path("/store")
PATHS = StorePaths.under(ROOT)
OURS = small_settings(
    ROOT, segment_size_bytes=2048, queue_file_units=7, index_slots=8, index_entries=20
)
TARGETS = (("TopicA", 0), ("TopicA", 1), ("TopicB", 0), ("TopicC", 0))
NOW_MS = 1_700_000_000_000
Target = tuple[str, int]
Place = tuple[str, int, int]


class Life:
    """One store under two programs. `promised`: what must be readable, and where it lies.

    `given` are the offsets of all that was promised and not cut off, whether it was deleted or not.
    """

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.disk = SimDisk(seed)
        self.promised: dict[Place, Written] = {}
        self.unflushed: list[Written] = []
        self.given: defaultdict[Target, list[int]] = defaultdict(list)
        self.flushed = 0
        self.cut = False
        self.events: Counter[str] = Counter()
        self.now_ms = NOW_MS

    def live(self) -> None:
        self.open_ours(visited=False)
        for _ in range(self.rng.randrange(1, 4)):
            visited = self.rng.random() < 0.8
            if visited:
                self.visit()
            self.open_ours(visited=visited)

    # -- we ---------------------------------------------------------------------------------------

    def open_ours(self, *, visited: bool) -> None:
        """Open, with the power lost on the way a few times; live for a moment; end somehow."""
        for _ in range(self.rng.choice((0, 0, 1, 2))):
            self.disk.cut_power(self.rng.randrange(1, 25))
            try:
                self.opened()
            except PowerLost:
                self.events["power lost in a takeover" if visited else "power lost in a start"] += 1
            self.disk = self.disk.crash()
        store = self.opened()
        if store.report.external_writes:
            assert visited, store.report.external_writes
            self.events["noticed"] += 1
        self.check(store)
        self.write(store, NOW_MS + self.rng.randrange(5_000))
        self.end(store, "ours")
        self.flushed = store.flushed

    def opened(self) -> Store:
        """Our store; what the other cut off is refused first, and then accepted."""
        try:
            return Store.open(OURS, self.disk)
        except Corrupt as error:
            accept = re.search(r"acceptDataLoss=(\d+)", str(error))
            if not self.cut or accept is None:
                raise
            self.events["refused what the other cut off"] += 1
            return Store.open(replace(OURS, accept_loss_at=int(accept[1])), self.disk)

    def end(self, store: Store, whose: str) -> None:
        fate = self.rng.random()
        if fate < 0.6:
            store.close()
            self.promise(self.unflushed)
            self.disk.kill()
        elif fate < 0.8:
            self.promise(self.unflushed)
            self.disk = self.disk.kill().copy()  # the machine goes on, and writes its cache out
        else:
            self.disk = self.disk.crash()
        self.unflushed = []
        self.events[f"{whose} {'closed' if fate < 0.6 else 'killed' if fate < 0.8 else 'off'}"] += 1

    def write(self, store: Store, now_ms: int) -> None:
        writer = StoreWriter(store)
        writer.now_ms = now_ms  # a clock may be behind the last record
        for _ in range(self.rng.randrange(0, 7)):
            stamped = writer.stamp([self.draft() for _ in range(self.rng.randrange(1, 5))])
            for item in stamped:
                given = self.given[(item.topic, item.queue_id)]
                assert not given or item.offset > given[-1], (item, "was given before")
            writer.append(stamped)
            self.unflushed += stamped
            store.dispatch()
            if self.rng.random() < 0.4:
                store.flush()
                self.promise(self.unflushed)
                self.unflushed = []
            if self.rng.random() < 0.2:
                store.save_checkpoint(store.plan_checkpoint(whole=self.rng.random() < 0.5))
                self.promise(self.unflushed)
                self.unflushed = []
        self.now_ms = now_ms

    def draft(self) -> Draft:
        topic, queue_id = self.rng.choice(TARGETS)
        key = f"k{self.rng.randrange(1 << 30)}"
        return Draft(
            topic,
            queue_id,
            self.rng.randbytes(self.rng.randrange(200)),
            keys=(key,),
            with_crc=self.rng.random() < 0.5,
        )

    def promise(self, written: list[Written]) -> None:
        for item in written:
            self.promised[(item.topic, item.queue_id, item.offset)] = item
            self.given[(item.topic, item.queue_id)].append(item.offset)

    # -- the other --------------------------------------------------------------------------------

    def visit(self) -> None:
        """The other broker runs; afterwards our own files are as we left them."""
        ours = {p: self.disk.read(p) for p in self.disk.files() if p.is_relative_to(PATHS.kourou)}
        checkpoint = self.disk.read(PATHS.checkpoint)
        self.disk.remove_tree(PATHS.kourou)
        theirs = replace(OURS, index_enabled=self.rng.random() < 0.7)
        store = Store.open(theirs, self.disk)
        holes = [one.start for one in store.report.new_regions if one.start >= self.flushed]
        if holes and store.report.way == "after a crash of RocketMQ":
            # RocketMQ ends its log there, where we keep what a queue names behind it.
            store.cut(holes[0], 0)
            store = Store.open(theirs, self.disk)
            self.events["a hole ended the log of the other"] += 1
        lost = [place for place, item in self.promised.items() if item.end > store.end]
        self.cut = store.end < self.flushed  # as RocketMQ does behind a damaged record
        for place in lost:
            del self.promised[place]
            self.given[place[:2]].remove(place[2])
        if self.rng.random() < 0.3:
            self.delete(store)
        if self.rng.random() < 0.2:
            self.forget_topic(store)
        before = len(self.promised) + len(self.unflushed)
        self.write(store, NOW_MS + self.rng.choice((-1, 1)) * self.rng.randrange(1, 1 << 24))
        wrote = len(self.promised) + len(self.unflushed) > before
        self.end(store, "the other")
        crashed = self.disk.exists(PATHS.abort)
        self.disk.remove_tree(PATHS.kourou)
        self.disk.make_dirs(PATHS.kourou)
        for path, data in ours.items():
            self.put(path, data)
        # Its checkpoint has the time of its last record; after a crash perhaps not yet.
        if wrote and not (crashed and self.rng.random() < 0.5):
            checkpoint = 2 * self.now_ms.to_bytes(8, "big") + bytes(8)
        self.put(PATHS.checkpoint, checkpoint)
        if self.rng.random() < 0.6:
            self.disk.make_dirs(PATHS.config)
            self.put(PATHS.config / "topics.json", b'{"by":%d}' % self.rng.getrandbits(32))
        self.disk = self.disk.copy()  # and all that reaches the disk before we come
        self.events["visits"] += 1

    def put(self, path: Path, data: bytes) -> None:
        self.disk.unlink(path)
        self.disk.open(path, create_size=len(data)).pwrite(data, 0)

    def delete(self, store: Store) -> None:
        """Old segments go, and what was promised of them."""
        delete_before(store, self.rng.randrange(store.end + 1))
        start = store.log_range()[0]
        self.promised = {p: item for p, item in self.promised.items() if item.position >= start}
        self.events["segments deleted by the other"] += 1

    def forget_topic(self, store: Store) -> None:
        """A topic is deleted, and its offsets begin at 0 again if it comes back."""
        store.remove_topic("TopicC")
        self.promised = {p: item for p, item in self.promised.items() if p[0] != "TopicC"}
        self.given[("TopicC", 0)].clear()
        self.events["topics deleted by the other"] += 1

    # -- the oracle -------------------------------------------------------------------------------

    def check(self, store: Store) -> None:
        """Each promised message at its offset; each found by its key exactly once."""
        for (topic, queue_id, offset), item in self.promised.items():
            read = store.read_queue(
                topic,
                queue_id,
                offset,
                max_messages=1,
                max_bytes=1 << 20,
                codes=None,
                below=store.end,
            )
            got = [bytes(record) for record in read.records]
            assert got == [item.record], (item, store.report)
        for place in self.rng.sample(sorted(self.promised), min(4, len(self.promised))):
            record = self.promised[place].record
            (key,) = decode_record(record).keys
            hits = store.find_by_key(place[0], key, max_count=64, begin_ms=0, end_ms=1 << 60)
            assert [bytes(hit) for hit in hits] == [record], (place, store.report)
        self.events["checked"] += len(self.promised)
        self.continues(store)

    def continues(self, store: Store) -> None:
        """No offset that was promised is given out again."""
        for (topic, queue_id, offset), item in self.promised.items():
            known = store.queue_range(topic, queue_id)
            assert known is not None, item
            assert known[0] <= offset < known[1], (item, known)


@pytest.mark.fault
@pytest.mark.timeout(3_600)
@pytest.mark.feature("F066", "F081")
def test_what_either_broker_promised_survives(
    lived: Callable[[int, Callable[[int], Life]], tuple[int, Counter[str]]],
) -> None:
    seeds, events = lived(5_000, Life)
    if seeds > 100:
        assert {
            "noticed",
            "power lost in a takeover",
            "segments deleted by the other",
            "topics deleted by the other",
            "the other off",
            "a hole ended the log of the other",
        } <= set(events)
