"""A member copies one leader, then another whose log parts from it: what was cut off never comes
back, whenever the power goes off.

Each seed is a life of one member's store on a simulated disk. It copies its leader's log, flushes
and checkpoints now and then, and has a tail that the next leader has not; the tail is cut, often
of records of the very sizes that follow. The power is cut between two calls or in the middle of
one, also while a cut is prepared or carried out. After every start its log is compared with the
histories of both leaders. Damage that a power loss leaves is repaired from the leader's bytes.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from kourou.store.paths import StorePaths
from kourou.store.replica.replica_files import save_epochs
from kourou.store.store import Store
from kourou.testing.disk import PowerLost, SimDisk
from kourou_rigs.store import Draft, StoreWriter, follow, readable, small_settings

ROOT = Path("/store")
PATHS = StorePaths.under(ROOT)
SETTINGS = small_settings(ROOT, segment_size_bytes=2_048, queue_file_units=7, index_entries=20)
MEMBER = replace(SETTINGS, replicated=True)
TARGETS = (("TopicA", 0), ("TopicA", 1), ("TopicB", 0))


class Violation(AssertionError):
    """The store broke a promise."""


def all_records(store: Store) -> set[bytes]:
    return set(readable(store, "TopicA") + readable(store, "TopicB"))


def ends(store: Store) -> dict[tuple[str, int], tuple[int, int] | None]:
    return {
        (topic, queue_id): store.queue_range(topic, queue_id)
        for topic in store.topics()
        for queue_id in store.queue_ids(topic)
    }


class Life:
    """One member under several leaders. `forgetful`: the intent is not written, which is wrong."""

    def __init__(self, seed: int, *, forgetful: bool = False) -> None:
        self.rng = random.Random(seed)
        self.disk = SimDisk(seed)
        self.forgetful = forgetful
        self.leader_disk = SimDisk(seed + 1)
        self.leader = Store.open(SETTINGS, self.leader_disk)
        self.member: Store | None = None
        self.stale: set[bytes] = set()
        self.promised = 0
        self.epoch = 1
        self.fork = 0
        self.parted = False
        self.old: set[bytes] = set()
        self.events: Counter[str] = Counter()

    def live(self) -> None:
        self.write(self.leader)
        for _ in range(self.rng.randrange(1, 4)):
            fork = self.leader.end
            self.leader.save_checkpoint(self.leader.plan_checkpoint(whole=self.rng.random() < 0.5))
            rival_disk = self.leader_disk.copy()
            rival = Store.open(SETTINGS, rival_disk)
            fixed = self.rng.choice((0, 60))
            self.write(self.leader, fixed)
            old = all_records(self.leader)
            self.survive(self.copy)
            self.write(rival, fixed)
            self.leader, self.leader_disk = rival, rival_disk
            self.epoch += 1
            self.fork, self.old, self.parted = fork, old, True
            self.survive(self.change_leader)
            self.survive(self.copy)
        self.disk._cut_power_at = 0
        self.start()
        self.finish()

    def write(self, store: Store, fixed: int = 0) -> None:
        writer = StoreWriter(store)
        for _ in range(self.rng.randrange(1, 9)):
            writer.write(
                [
                    Draft(
                        *self.rng.choice(TARGETS),
                        self.rng.randbytes(fixed or self.rng.randrange(500)),
                        keys=("k",),
                    )
                    for _ in range(self.rng.randrange(1, 4))
                ]
            )

    # -- the member -------------------------------------------------------------------------------

    def survive(self, work: Callable[[Store], None]) -> None:
        """Do some work, through as many losses of power as come; then it is done."""
        while True:
            if self.member is None:
                if self.rng.random() < 0.3:
                    self.disk.cut_power(self.rng.randrange(1, 30))
                with suppress(PowerLost):
                    self.start()
                if self.member is None:
                    self.disk = self.disk.crash()
                    self.events["power lost while opening"] += 1
                    continue
            if self.rng.random() < 0.4:
                self.disk.cut_power(self.rng.randrange(1, 30))
            try:
                work(self.member)
            except PowerLost:
                self.events[f"power lost in {work.__name__}"] += 1
                self.die()
                continue
            if self.rng.random() < 0.3:
                self.die()
            return

    def die(self) -> None:
        self.member = None
        if self.rng.random() < 0.8:
            self.disk = self.disk.crash()
        else:
            self.disk.kill()

    def start(self) -> None:
        store = self.member or Store.open(MEMBER, self.disk)
        self.check(store)
        self.member = store

    def copy(self, member: Store) -> None:
        """Copy some of the leader's log; what a flush covers is promised."""
        self.mend(member)
        limit = self.leader.end
        while member.end < limit and self.rng.random() < 0.97:
            chunk = self.leader.read_chunk(member.end, limit, self.rng.choice((1, 300, 5_000)))
            member.append_chunk(chunk.position, bytes(chunk.data))
            self.events["chunks"] += 1
            if self.rng.random() < 0.8:
                member.dispatch()
            if self.rng.random() < 0.3:
                self.promised = max(self.promised, member.flush())
            elif self.rng.random() < 0.1:
                member.dispatch()
                member.save_checkpoint(member.plan_checkpoint(whole=self.rng.random() < 0.5))
                self.promised = max(self.promised, member.flushed)
        if self.rng.random() < 0.3:
            save_epochs(self.disk, PATHS, [(self.epoch, 0)])

    def mend(self, member: Store) -> None:
        """What a power loss left damaged is taken from the leader."""
        for region in list(member.damaged_regions):
            at = region.start
            while at < region.end:
                chunk = self.leader.read_chunk(at, region.end, 1 << 20)
                at = member.repair(at, bytes(chunk.data))
            self.events["repaired"] += 1

    def change_leader(self, member: Store) -> None:
        """The new leader's log parts from ours at the fork, if we have come so far."""
        if member.end > self.fork:
            tail = all_records(member) - all_records(self.leader)
            if self.rng.random() < 0.3:
                member.flush()
            if self.forgetful:
                # As RocketMQ does: positions in memory only. Then the process is gone.
                self.stale, self.parted = self.stale | tail, False
                self.promised = min(self.promised, self.fork)
                raise PowerLost
            promised, self.promised = self.promised, min(self.promised, self.fork)
            try:
                member.cut(self.fork, min(promised, self.fork))
            except PowerLost:
                self.promised = min(promised, self.fork)
                raise
            self.stale |= tail
            self.parted = False
            self.events["cut"] += 1
            self.member = None
            if self.rng.random() < 0.3:
                self.disk = self.disk.crash()
            else:
                self.disk._locked.clear()
            self.start()
            if self.member is not None and self.member.end > self.fork:
                raise Violation(f"cut at {self.fork}, and the log ends at {self.member.end}")
        self.promised = min(self.promised, self.fork)
        self.parted = False

    # -- the oracle -------------------------------------------------------------------------------

    def check(self, store: Store) -> None:
        self.events["starts"] += 1
        store.dispatch()
        if store.report.external_writes:
            raise Violation(f"nobody else was here: {store.report.external_writes}")
        found = all_records(store)
        if found & self.stale:
            raise Violation("what was cut off came back")
        if store.end < self.promised:
            raise Violation(f"{self.promised} was flushed, the log ends at {store.end}")
        known = all_records(self.leader) | self.old
        if not found <= known:
            raise Violation("there is what nobody wrote")
        promised = min(self.promised, self.fork) if self.parted else self.promised
        for record in all_records(self.leader):
            end = int.from_bytes(record[28:36], "big") + len(record)
            if end <= promised and record not in found:
                raise Violation(f"the record that ends at {end} was flushed and is gone")

    def finish(self) -> None:
        member = self.member
        assert member is not None
        self.mend(member)
        follow(self.leader, member)
        member.close()
        self.disk._locked.clear()
        last = Store.open(MEMBER, self.disk)
        if all_records(last) != all_records(self.leader) or ends(last) != ends(self.leader):
            raise Violation("member and leader differ in the end")
        if last.report.rebuilt:
            raise Violation(f"a clean stop left this behind: {last.report.problems}")


@pytest.mark.fault
@pytest.mark.timeout(3_600)
@pytest.mark.feature("F110")
def test_what_was_cut_off_never_comes_back(
    lived: Callable[[int, Callable[[int], Life]], tuple[int, Counter[str]]],
) -> None:
    seeds, events = lived(2_000, Life)
    if seeds > 100:
        assert {"cut", "power lost while opening", "power lost in copy"} <= set(events)


def test_the_oracle_sees_a_cut_that_only_memory_knows() -> None:
    broken = 0
    for seed in range(30):
        try:
            Life(seed, forgetful=True).live()
        except Violation as error:
            broken += "came back" in str(error)
    assert broken > 5, broken
