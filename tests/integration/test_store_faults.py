"""The store against torn writes, rotten bits and failing disks, case by case.

Each test walks through all places where the fault can strike (a tenth of them without --slow) and
prints how many it tried. The bar is everywhere the same: no wrong byte is served, what was
acknowledged and was not itself hit is there, no offset is given twice, nothing ends the process.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kourou.errors import Corrupt, StoreFaulted
from kourou.store.paths import StorePaths
from kourou.store.store import Store
from kourou.testing.disk import SimDisk
from kourou_rigs.store import Draft, StoreWriter, Written, small_settings

ROOT = Path("/store")
PATHS = StorePaths.under(ROOT)
SIZE = 4096
QUEUES = 3
Tell = Callable[[str], None]

pytestmark = pytest.mark.fault


@pytest.fixture
def tell(record_property: Callable[[str, object], None]) -> Tell:
    """Says how many rounds there were, in the output and in the report."""

    def say(text: str) -> None:
        record_property("rounds", text)
        print(f"\n{text}")  # noqa: T201 - the count is a result of the test

    return say


def settings(**changes: object) -> object:
    return small_settings(ROOT, segment_size_bytes=SIZE, **changes)


def open_store(disk: SimDisk, **changes: object) -> Store:
    return Store.open(settings(**changes), disk)  # type: ignore[arg-type]  # small_settings


def drafts(count: int) -> list[Draft]:
    rng = random.Random(count)
    return [
        Draft(
            queue_id=n % QUEUES,
            body=rng.randbytes(rng.randrange(20, 80)),
            tag=f"t{n % 2}",
            keys=(f"k{n}",),
        )
        for n in range(count)
    ]


def served(store: Store) -> tuple[list[bytes], list[tuple[int, int]]]:
    """Every record that readers get, and (queue, offset) of those they are told to be damaged."""
    records: list[bytes] = []
    damaged: list[tuple[int, int]] = []
    for queue_id in range(QUEUES):
        offset, end = store.queue_range("TopicA", queue_id) or (0, 0)
        while offset < end:
            read = store.read_queue(
                "TopicA",
                queue_id,
                offset,
                max_messages=64,
                max_bytes=1 << 20,
                codes=None,
                below=store.end,
            )
            records += [bytes(record) for record in read.records]
            damaged += [(queue_id, bad) for bad in read.corrupt_offsets]
            if read.next_offset == offset:  # above the flushed end of a store that failed
                assert store.fault is not None, "a reader would be stuck here"
                break
            offset = read.next_offset
    return sorted(records, key=lambda record: record[28:36]), damaged


def next_offsets(store: Store) -> list[int]:
    return [(store.queue_range("TopicA", queue_id) or (0, 0))[1] for queue_id in range(QUEUES)]


def change(disk: SimDisk, position: int, data: bytes) -> None:
    """Overwrite bytes of the log, across segments."""
    while data:
        room = SIZE - position % SIZE
        path = PATHS.segment(position - position % SIZE)
        disk.overwrite(path, data[:room], position % SIZE)
        position += len(data[:room])
        data = data[room:]


def log_bytes(disk: SimDisk, start: int, end: int) -> bytes:
    names = disk.list_dir(PATHS.commit_log)
    whole = b"".join(disk.read(PATHS.commit_log / name) for name in names)
    return whole[start:end]


# -- torn tails -----------------------------------------------------------------------------------


def tears(old: bytes, stale: bytes, at: int, rng: random.Random) -> Iterator[tuple[str, bytes]]:
    """What may stand in the place of `old` from byte `at` on."""
    size = len(old) - at
    yield "cut", bytes(size + 500)
    yield "zeros", bytes(size)
    yield "ones", b"\xff" * size
    yield "noise", rng.randbytes(size)
    yield "stale", (stale * (size // len(stale) + 1))[:size]
    yield "stale tail", stale[-size:] if size <= len(stale) else stale.rjust(size, b"\0")


def test_a_tail_torn_at_every_byte_of_the_last_record(
    rounds: Callable[[int], int], tell: Tell
) -> None:
    disk = SimDisk()
    store = open_store(disk)
    writer = StoreWriter(store)
    kept = writer.write(drafts(8))
    store.flush()
    (last,) = writer.write([Draft(body=b"the last one" * 6, keys=("k",))])
    tally = torn_from_each_byte(disk, kept, [last], rounds)
    tell(f"torn tail: {sum(tally.values())} cases over {len(last.record)} bytes, {dict(tally)}")


@pytest.mark.feature("F065")
def test_a_tail_torn_across_the_end_of_a_segment(rounds: Callable[[int], int], tell: Tell) -> None:
    disk = SimDisk()
    store = open_store(disk)
    writer = StoreWriter(store)
    kept: list[Written] = []
    while SIZE - store.end > 400:
        kept += writer.write(drafts(1))
    store.flush()
    unflushed = writer.write([Draft(body=bytes(range(1, 150))), Draft(body=b"behind" * 30)])
    assert unflushed[0].end <= SIZE <= unflushed[1].position
    tally = torn_from_each_byte(disk, kept, unflushed, rounds)
    tell(f"torn across a segment end: {sum(tally.values())} cases, {dict(tally)}")


def torn_from_each_byte(
    disk: SimDisk, kept: list[Written], unflushed: list[Written], rounds: Callable[[int], int]
) -> Counter[str]:
    first, end = unflushed[0].position, unflushed[-1].end
    old = log_bytes(disk, first, end)
    stale = kept[2].record
    rng = random.Random(1)
    step = max(1, len(old) // rounds(len(old)))
    tally: Counter[str] = Counter()
    for at in range(0, len(old), step):
        for kind, junk in tears(old, stale, at, rng):
            torn = disk.copy()
            change(torn, first + at, junk)
            whole = [item for item in unflushed if item.end <= first + at or junk == old[at:]]
            opened = open_store(torn)
            records, damaged = served(opened)
            expected = [item.record for item in kept + whole]
            assert records == expected, (kind, at)
            assert damaged == [], (kind, at)
            # What was cut off can never come back, and the log goes on.
            (new,) = StoreWriter(opened).write([Draft(body=b"new")])
            again = open_store(torn.kill())
            assert served(again)[0] == [*expected, new.record], (kind, at)
            tally[kind] += 1
    return tally


# -- rotten bits ----------------------------------------------------------------------------------


class Rotten:
    """A store of 20 records in one segment; every case flips one bit in a copy of it."""

    def __init__(self, how: str) -> None:
        self.how = how
        self.disk = SimDisk()
        store = open_store(self.disk)
        self.written = StoreWriter(store).write(drafts(20))
        assert store.end <= SIZE
        store.flush()
        self.end = store.end
        self.next_offsets = next_offsets(store)
        if how != "killed":
            store.close()
        if how == "rebuilt":
            self.disk.remove_tree(PATHS.consume_queue)
            self.disk.remove_tree(PATHS.index)

    def hit(self, position: int) -> Written | None:
        return next((one for one in self.written if one.position <= position < one.end), None)

    def unknowable(self, hit: Written) -> bool:
        """Queues and record lost, and no neighbour in its queue on one side to tell of a gap."""
        at = self.written.index(hit)
        return self.how == "rebuilt" and not QUEUES <= at < len(self.written) - QUEUES

    def check(self, position: int, bit: int) -> str:
        rotten = self.disk.copy()
        (byte,) = log_bytes(rotten, position, position + 1)
        change(rotten, position, bytes([byte ^ (1 << bit)]))
        hit = self.hit(position)
        try:
            store = open_store(rotten)
        except Corrupt:
            # The last record's header is gone, and the queues that knew of it are too: only an
            # operator may say that this is acceptable.
            assert self.how == "rebuilt", (position, bit)
            assert hit is self.written[-1], (position, bit)
            store = open_store(rotten, accept_loss_at=hit.position)
            outcome = "refused until accepted"
        else:
            outcome = "opened"
        records, damaged = served(store)
        assert records == [one.record for one in self.written if one is not hit], (position, bit)
        if hit is None:
            assert damaged == []
            return "in no record"
        if outcome == "opened" and not self.unknowable(hit):
            assert damaged == [(hit.queue_id, hit.offset)], (position, bit)
            assert next_offsets(store) == self.next_offsets, (position, bit)
        hits = store.find_by_key("TopicA", "k3", max_count=64, begin_ms=0, end_ms=1 << 60)
        assert [bytes(found) for found in hits] == (
            [] if hit is self.written[3] else [self.written[3].record]
        )
        return outcome


@pytest.mark.parametrize("how", ["closed", "killed", "rebuilt"])
def test_a_bit_flip_at_every_byte_of_a_segment(
    how: str, rounds: Callable[[int], int], tell: Tell
) -> None:
    rotten = Rotten(how)
    end = rotten.end + 100
    step = max(1, end // rounds(end))
    tally: Counter[str] = Counter()
    for position in range(0, end, step):
        tally[rotten.check(position, position * 7 % 8)] += 1
    tell(f"bit flips, {how}: {sum(tally.values())} of {end} bytes, {dict(tally)}")
    assert tally["opened"] > 0


@pytest.mark.parametrize("how", ["closed", "killed", "rebuilt"])
def test_a_bit_flip_in_the_filler_between_two_segments(how: str, tell: Tell) -> None:
    disk = SimDisk()
    store = open_store(disk)
    written = StoreWriter(store).write(drafts(60))
    store.flush()
    if how != "killed":
        store.close()
    if how == "rebuilt":
        disk.remove_tree(PATHS.consume_queue)
    at = max(one.end for one in written if one.end <= SIZE)
    for bit in range(64):
        rotten = disk.copy()
        (byte,) = log_bytes(rotten, at + bit // 8, at + bit // 8 + 1)
        change(rotten, at + bit // 8, bytes([byte ^ (1 << bit % 8)]))
        records, damaged = served(open_store(rotten))
        assert records == [one.record for one in written]
        assert damaged == []
    tell(f"bit flips in a filler, {how}: 64 of 64 bits")


@pytest.mark.parametrize("which", ["consumequeue", "index", "checkpoint", "recovery"])
def test_bit_flips_beside_the_log_serve_nothing_wrong(
    which: str, rounds: Callable[[int], int], tell: Tell
) -> None:
    disk = SimDisk()
    store = open_store(disk)
    written = StoreWriter(store).write(drafts(20))
    store.close()
    paths = [path for path in disk.files() if which in path.parts]
    cases = [(path, at) for path in paths for at in range(min(len(disk.read(path)), 700))]
    step = max(1, len(cases) // rounds(len(cases)))
    tally: Counter[str] = Counter()
    for path, at in cases[::step]:
        rotten = disk.copy()
        rotten.overwrite(path, bytes([disk.read(path)[at] ^ (1 << at % 8)]), at)
        store = open_store(rotten)
        records, damaged = served(store)
        originals = [one.record for one in written]
        assert set(records) <= set(originals), (path, at)
        assert len(records) + len(damaged) >= 20, (path, at)
        tally["all served" if records == originals else "told as damaged"] += 1
        # The log is whole, so deleting the queues repairs everything.
        store.close()
        rotten.remove_tree(PATHS.consume_queue)
        assert served(open_store(rotten))[0] == originals, (path, at)
    tell(f"bit flips in {which}: {sum(tally.values())} of {len(cases)} bytes, {dict(tally)}")


# -- failing disks --------------------------------------------------------------------------------


@pytest.mark.feature("F094", "F110")
def test_eio_at_the_kth_sync(rounds: Callable[[int], int], tell: Tell) -> None:
    full = 50
    step = max(1, full // max(10, rounds(full)))
    tried = failed_while_opening = 0
    for k in range(1, full + 1, step):
        for power_lost in (False, True):
            tried += 1
            disk = SimDisk(k)
            disk.fail_sync(k)
            acknowledged: list[Written] = []
            try:
                store = open_store(disk)
            except StoreFaulted:
                failed_while_opening += 1
                open_store(disk.kill())
                continue
            acknowledged += write_until_it_fails(store)
            after_the_fault(store, disk)
            found = open_store(disk.kill().crash() if power_lost else disk.kill())
            records, damaged = served(found)
            # What was not acknowledged may be gone, and what came behind it may still be there.
            assert not {(one.queue_id, one.offset) for one in acknowledged} & set(damaged)
            assert records[: len(acknowledged)] == [one.record for one in acknowledged], k
    tell(
        f"EIO at the k-th sync: {tried} runs, k up to {full}, 0 acknowledged afterwards, "
        f"{failed_while_opening} failed while opening"
    )
    assert tried > 2 * failed_while_opening


def write_until_it_fails(store: Store) -> list[Written]:
    """Each batch is acknowledged when its flush has returned; checkpoints come in between."""
    acknowledged: list[Written] = []
    writer = StoreWriter(store)
    for turn in range(200):
        try:
            batch = writer.write(drafts(turn % 5 + 1))
            store.flush()
            acknowledged += batch
            if turn % 4 == 3:
                store.checkpoint()
        except StoreFaulted:
            return acknowledged
    raise AssertionError("the fault never came")


def after_the_fault(store: Store, disk: SimDisk) -> None:
    """Nothing is written, synced or acknowledged any more; reads below the flushed end go on."""
    before = {path: disk.read(path) for path in disk.files()}
    syncs, flushed = disk.syncs, store.flushed
    for _ in range(3):
        for call in (store.flush, store.checkpoint, store.allocate_next):
            with pytest.raises(StoreFaulted):
                call()
        with pytest.raises(StoreFaulted):
            StoreWriter(store).write(drafts(1))
    assert disk.syncs == syncs
    assert store.flushed == flushed
    assert {path: disk.read(path) for path in disk.files()} == before
    records, _ = served(store)
    assert all(int.from_bytes(record[28:36], "big") < max(1, flushed) for record in records)
