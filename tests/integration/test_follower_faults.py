"""A follower's store against rotten bits, torn tails and failing disks: what a leader's store is
put through in test_store_faults, over the other way of writing, chunks of a leader's bytes.

What is damaged here is whole at the leader, so the bar is higher: nothing wrong is served, shipped
or copied, and the leader's bytes mend it, byte for byte.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kourou.errors import StoreFaulted
from kourou.store.paths import StorePaths
from kourou.store.store import Store
from kourou.testing.disk import SimDisk
from kourou_rigs.store import Draft, StoreWriter, Written, follow, readable, small_settings

ROOT = Path("/store")
PATHS = StorePaths.under(ROOT)
SIZE = 4_096
COUNT = 20
SETTINGS = small_settings(ROOT, segment_size_bytes=SIZE)
MEMBER = small_settings(ROOT, segment_size_bytes=SIZE, replicated=True)

pytestmark = pytest.mark.fault


class Pair:
    """A leader in its prime, and the disk of a follower that has copied it."""

    def __init__(self, *, chunk_bytes: int = 500, flushed: int | None = None) -> None:
        rng = random.Random(1)
        self.leader = Store.open(SETTINGS, SimDisk())
        drafts = [Draft(body=rng.randbytes(rng.randrange(20, 80))) for _ in range(COUNT)]
        self.written: list[Written] = StoreWriter(self.leader).write(drafts)
        self.leader.flush()
        assert self.leader.end <= SIZE
        self.records = [one.record for one in self.written]
        self.disk = SimDisk()
        follower = Store.open(MEMBER, self.disk)
        for limit in (flushed or self.leader.end, self.leader.end):
            follow(self.leader, follower, limit=limit, max_bytes=chunk_bytes)
            if limit == (flushed or self.leader.end):
                follower.flush()
        assert readable(follower, "TopicA", 1) == self.records

    def log(self, disk: SimDisk) -> bytes:
        return disk.read(PATHS.segment(0))[: self.leader.end]

    def overwritten(self, at: int, data: bytes) -> SimDisk:
        disk = self.disk.kill()
        disk.overwrite(PATHS.segment(0), data, at)
        return disk

    def mended(self, disk: SimDisk, store: Store) -> None:
        """The leader's bytes come in the place of what is damaged, and behind what is there."""
        for region in list(store.damaged_regions):
            chunk = self.leader.read_chunk(region.start, region.end, region.end - region.start)
            assert store.repair(region.start, bytes(chunk.data)), region
        follow(self.leader, store)
        assert self.log(disk) == self.log_of_leader()
        assert readable(store, "TopicA", 1) == self.records

    def log_of_leader(self) -> bytes:
        chunk = self.leader.read_chunk(0, self.leader.end, SIZE)
        return bytes(chunk.data)


def test_a_flipped_bit_is_neither_served_nor_shipped_and_is_mended(
    rounds: Callable[[int], int],
) -> None:
    pair = Pair()
    end = pair.leader.end
    tally: Counter[str] = Counter()
    for at in range(0, end, max(1, end // rounds(end))):
        (byte,) = pair.log(pair.disk)[at : at + 1]
        disk = pair.overwritten(at, bytes([byte ^ (1 << at * 7 % 8)]))
        store = Store.open(MEMBER, disk)
        assert set(readable(store, "TopicA", 1)) <= set(pair.records), at
        copy = Store.open(MEMBER, SimDisk())
        position = 0
        while position < store.end:
            chunk = store.read_chunk(position, store.end, 500)
            if chunk.damage:
                tally["told as damaged"] += 1
                break
            copy.append_chunk(position, bytes(chunk.data))
            position = copy.end
        copy.dispatch()
        assert set(readable(copy, "TopicA", 1)) <= set(pair.records), "a minority never wins"
        pair.mended(disk, store)
        tally["mended"] += 1
    assert tally["told as damaged"] > 0


def tears(size: int) -> Iterator[bytes]:
    yield bytes(size)
    yield b"\xff" * size
    yield random.Random(size).randbytes(size)


def test_a_tail_torn_anywhere_in_its_last_chunk_is_cut_and_copied_again(
    rounds: Callable[[int], int],
) -> None:
    safe = 10
    pair = Pair(flushed=Pair().written[safe].position)
    first, end = pair.written[safe].position, pair.leader.end
    for at in range(first, end, max(1, (end - first) // rounds(end - first))):
        for junk in tears(end - at):
            disk = pair.overwritten(at, junk)
            store = Store.open(MEMBER, disk)
            found = readable(store, "TopicA", 1)
            whole = [one.record for one in pair.written if one.end <= at]
            assert found[: len(whole)] == whole, at
            assert set(found) <= set(pair.records), at
            pair.mended(disk, store)


def test_eio_at_the_kth_sync_of_a_follower(rounds: Callable[[int], int]) -> None:
    """What it has told its leader to be flushed is there afterwards, whatever failed."""
    full = 30
    failed = 0
    pair = Pair()
    for k in range(1, full + 1, max(1, full // max(10, rounds(full)))):
        disk = SimDisk(k)
        disk.fail_sync(k)
        told = 0
        try:
            store = Store.open(MEMBER, disk)
            for limit in (one.end for one in pair.written):
                follow(pair.leader, store, limit=limit)
                store.flush()
                told = store.flushed
        except StoreFaulted:
            failed += 1
        after = disk.kill().crash()
        found = Store.open(MEMBER, after)
        assert found.end >= told, k
        expected = [one.record for one in pair.written if one.end <= told]
        assert readable(found, "TopicA", 1)[: len(expected)] == expected, k
        pair.mended(after, found)
    assert failed > 5
