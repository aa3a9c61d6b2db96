"""Measure what an SQL92 filter costs per message: the filter alone, and a read that passes 1 %.

    python benchmarks/filters.py [--body BYTES] [--messages N] [--repeat N]

Prints µs of CPU per message (the best of several repeats) and one JSON line per value. A read finds
queue units, verifies records and runs the filter, as a pull does. The row for tags is for
comparison: tags are stored in the queue units, so records that do not match are not read at all.
The script asserts nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from kourou.engine.ports import ANYWHERE
from kourou.filtering.sql import sql_filter
from kourou.protocol.record.hashes import tags_code
from kourou.protocol.record.message_id import UniqKeyGenerator
from kourou.protocol.record.properties import encode_properties
from kourou.store.real_disk import RealDisk
from kourou.store.settings import StoreSettings
from kourou.store.store import Store
from kourou_rigs.store import Draft, StoreWriter

NOW_MS = 1_795_228_844_594
FILTERS = {
    "two comparisons, both looked at": "amount > 10 AND region = 'north'",
    "two comparisons, the first decides": "amount > 100000 AND region = 'north'",
    "a double and a text": "amount > 10.5 AND region = 'south'",
    "a range": "amount BETWEEN 1 AND 50",
    "five of a list, or another": "region IN ('a', 'b', 'c', 'd', 'e') OR shop = 's-17'",
    "a property that is missing": "nothing = 1",
}
READS = (
    ("a read of everything", None, None),
    ("a read by tag that passes 1 %", "rare", None),
    ("a read by filter that passes 1 %", None, "KEYS >= 0 AND TAGS = 'rare'"),
)
KEYS = UniqKeyGenerator(bytes([127, 0, 0, 1]), os.getpid(), 1)
PULL_BYTES = 256 * 1024


def properties_of(number: int, key: str) -> bytes:
    """Properties as the client encodes them; one message in a hundred has the rare value."""
    return encode_properties(
        {
            "UNIQ_KEY": key,
            "TAGS": "rare" if number % 100 == 0 else "common",
            "KEYS": f"order-{number:08}",
            "CLUSTER": "DefaultCluster",
            "amount": str(42 if number % 100 == 0 else 7),
            "region": "north",
            "shop": "s-17",
        }
    )


def cpu_us(work: Callable[[], int], repeat: int) -> float:
    """µs of CPU per message, the best of several repeats; `work` returns its number of messages."""
    best = float("inf")
    for _ in range(repeat):
        start = time.process_time()
        count = work()
        best = min(best, (time.process_time() - start) / count * 1e6)
    return best


def judging(text: str, repeat: int) -> float:
    """The cost of the filter alone, applied to one message after the other."""
    raw = [b"\x02" + properties_of(0, KEYS.next(NOW_MS)) for _ in range(1_000)]

    def work() -> int:
        predicate = sql_filter(text).predicate()
        for _ in range(20):
            for one in raw:
                predicate(one)
        return 20 * len(raw)

    return cpu_us(work, repeat)


def filled(root: Path, messages: int, body: bytes) -> Store:
    """A store with `messages` messages in one queue; one in a hundred has the tag `rare`."""
    store = Store.open(StoreSettings(root=root), RealDisk())
    writer = StoreWriter(store)
    for first in range(0, messages, 1_000):
        numbers = range(first, first + 1_000)
        tags = ["common" if number % 100 else "rare" for number in numbers]
        writer.write(
            [
                Draft("TopicTest", 0, body, tag, (str(number),))
                for number, tag in zip(numbers, tags, strict=True)
            ]
        )
    return store


def reading(store: Store, repeat: int, tag: str | None, text: str | None) -> float:
    """The cost of pulling the queue from its beginning to its end."""

    def work() -> int:
        offset = passed = 0
        end = (store.queue_range("TopicTest", 0) or (0, 0))[1]
        while offset < end:
            read = store.read_queue(
                "TopicTest",
                0,
                offset,
                max_messages=32,
                max_bytes=PULL_BYTES,
                codes=None if tag is None else frozenset({tags_code(tag)}),
                below=ANYWHERE,
                wanted=None if text is None else sql_filter(text).predicate(),
            )
            offset = read.next_offset
            passed += len(read.records)
        assert passed in (end, end // 100)
        return end

    return cpu_us(work, repeat)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--body", type=int, default=1024)
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--repeat", type=int, default=5)
    given = parser.parse_args()
    figures = [(name, judging(text, given.repeat)) for name, text in FILTERS.items()]
    with tempfile.TemporaryDirectory() as folder:
        store = filled(Path(folder), given.messages, os.urandom(given.body))
        for name, tag, text in READS:
            figures.append((name, reading(store, given.repeat, tag, text)))
        store.close()
    print(f"µs of CPU a message; reads of bodies of {given.body} bytes")
    for name, value in figures:
        print(f"  {name:<44}{value:>8.2f}")
    for name, value in figures:
        settings = {"body_bytes": given.body}
        figure = {"name": name, "unit": "us/message", "value": round(value, 3)}
        print(json.dumps({**figure, "settings": settings}))


if __name__ == "__main__":
    main()
