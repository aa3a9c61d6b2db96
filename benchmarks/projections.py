"""Measure what the projections of the store cost: queue units, index entries, loading, flushing.

    python benchmarks/projections.py [--dir DIRECTORY]

Prints a table and one JSON line per value. The script asserts nothing: compare ratios, on an idle
machine.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from kourou.store.index.key_index import KeyIndex
from kourou.store.paths import StorePaths
from kourou.store.queues.dispatch import Dispatcher
from kourou.store.queues.queue_files import UNIT
from kourou.store.queues.queue_table import ConsumeQueues
from kourou.store.real_disk import RealDisk
from kourou_rigs.records import RecordRun

LEVELS_MS = (1_000, 5_000, 10_000)


def report(name: str, unit: str, value: float, **settings: object) -> None:
    print(f"{name:<52} {value:>10.2f} {unit}")
    print(json.dumps({"name": name, "unit": unit, "value": round(value, 3), "settings": settings}))


@contextmanager
def store(root: Path, name: str) -> Iterator[StorePaths]:
    paths = StorePaths.under(root / name)
    for directory in paths.directories:
        directory.mkdir(parents=True, exist_ok=True)
    yield paths
    RealDisk().remove_tree(root / name)


def best_us(rounds: int, work: Callable[[int], int]) -> float:
    """The best of several rounds, in µs per item; `work` returns its number of items."""
    best = float("inf")
    for number in range(rounds):
        began = time.perf_counter()
        items = work(number)
        best = min(best, (time.perf_counter() - began) / items * 1e6)
    return best


def batches(count: int, size: int, queues: int, keys: int, topics: int = 1) -> RecordRun:
    run = RecordRun()
    for number in range(count * size):
        run.add(
            f"Topic{number % topics}",
            number // topics % queues,
            body=bytes(1024),
            tag=f"Tag{number % 3}",
            unique_key=f"7F000001000051AF{number:016X}" if keys else "",
            keys=f"order-{number:08d}" if keys > 1 else "",
        )
    return run


def dispatching(root: Path, size: int, queues: int, keys: int, *, topics: int = 1) -> None:
    count = max(20, 4_000 // size)
    run = batches(count, size, queues, keys, topics)
    pieces = [run.columns(at * size, (at + 1) * size) for at in range(count)]
    with store(root, "dispatch") as paths:
        disk = RealDisk()
        table = ConsumeQueues(disk, paths)
        index = KeyIndex(disk, paths.index) if keys else None
        dispatcher = Dispatcher(table, index, LEVELS_MS)
        for piece in pieces[: count // 4]:
            dispatcher.dispatch(piece)
        rest = pieces[count // 4 :]
        took: list[float] = []
        for piece in rest:
            began = time.perf_counter()
            dispatcher.dispatch(piece)
            took.append(time.perf_counter() - began)
        took.sort()
        report(
            f"dispatch {size} records, {topics} topics, {queues} queues, {keys} keys",
            "us/record (median)",
            took[len(took) // 2] / size * 1e6,
            records=size,
            queues=queues,
            keys=keys,
            topics=topics,
        )
        assert dispatcher.units == count * size
        table.close()
        if index is not None:
            index.close()


def putting(root: Path, size: int) -> None:
    rng = np.random.default_rng(7)
    with store(root, "index") as paths:
        index = KeyIndex(RealDisk(), paths.index)
        place = 0
        took: list[float] = []
        for _ in range(max(40, 100_000 // size)):
            hashes = rng.integers(0, 2**31, size, dtype=np.int32)
            positions = place + np.arange(size, dtype=np.int64) * 1_200
            times = np.full(size, 1_700_000_000_000 + place // 1_000)
            end = int(positions[-1]) + 1_200
            began = time.perf_counter()
            index.put_many(hashes, positions, times, start=place, end=end)
            took.append(time.perf_counter() - began)
            place = end
        took.sort()
        report(f"index put, {size} keys", "us/key (median)", took[len(took) // 2] / size * 1e6)
        began = time.perf_counter()
        index.flush()
        report("index flush after 100,000 random keys", "ms", (time.perf_counter() - began) * 1e3)
        wanted = hashes.tolist()

        def look(_: int) -> int:
            for key_hash in wanted:
                assert index.find(key_hash, max_count=1, begin_ms=0, end_ms=2**62)
            return len(wanted)

        report("index find, newest batch", "us/key", best_us(5, look))
        index.close()


def many_queues(root: Path, count: int) -> None:
    units = np.zeros(20, UNIT)
    units["position"] = np.arange(20) * 100
    units["size"] = 100
    data = units.tobytes()
    with store(root, "many") as paths:
        table = ConsumeQueues(RealDisk(), paths)
        began = time.perf_counter()
        for queue_id in range(count):
            table.get_or_create("Many", queue_id).append(0, data, 2_000)
        report(
            f"first append to {count} queues",
            "us/queue",
            (time.perf_counter() - began) / count * 1e6,
        )
        began = time.perf_counter()
        table.flush_all()
        report(f"flush of {count} queues", "ms", (time.perf_counter() - began) * 1e3)
        table.close()
        for name, below in (("clean", None), ("crash", 2_000)):
            table = ConsumeQueues(RealDisk(), paths)
            began = time.perf_counter()
            problems = table.load(below)
            table.correct_min_offsets(0)
            assert not problems
            assert table.offset_total() == count * 20
            report(
                f"load {count} queues, {name}",
                "us/queue",
                (time.perf_counter() - began) / count * 1e6,
            )
            table.close()


def reading(root: Path) -> None:
    units = np.zeros(64, UNIT)
    units["size"] = 100
    with store(root, "read") as paths:
        queue = ConsumeQueues(RealDisk(), paths).get_or_create("Read", 0)
        for first in range(0, 64 * 2_000, 64):
            units["position"] = (first + np.arange(64)) * 100
            queue.append_units(units, first)

        def tail(_: int) -> int:
            for _ in range(2_000):
                queue.units(queue.max_offset - 32, 32)
            return 2_000

        def backlog(_: int) -> int:
            for at in range(0, 64_000, 32):
                queue.units(at, 32)
            return 2_000

        report("units(offset, 32) at the tail", "us", best_us(5, tail))
        report("units(offset, 32) in the backlog", "us", best_us(5, backlog))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--dir", type=Path, default=None, help="where to write (default: temporary)"
    )
    parser.add_argument(
        "--queues", type=int, default=2_000, help="how many in the start-up figures"
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.dir) as name:
        root = Path(name)
        for size, queues, keys in ((1, 1, 0), (1, 1, 2), (64, 4, 0), (64, 4, 2), (512, 8, 2)):
            dispatching(root, size, queues, keys)
        dispatching(root, 64, 4, 0, topics=4)
        for size in (1, 2, 16, 128, 1_024):
            putting(root, size)
        reading(root)
        many_queues(root, options.queues)


if __name__ == "__main__":
    main()
