"""Measure what the record codec costs: drafts, checks, stamps, verification, projections, reading.

    python benchmarks/records.py [--body BYTES] [--repeat N]

Prints µs per record for several batch sizes (the best of several repeats) and one JSON line per
value. The script asserts nothing: compare ratios, on an idle machine.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable

import numpy as np

from kourou.protocol import kernel
from kourou.protocol.record.columns import check_drafts, scan
from kourou.protocol.record.hashes import java_hash
from kourou.protocol.record.layout import encode_host
from kourou.protocol.record.message_id import UniqKeyGenerator
from kourou.protocol.record.message_record import decode_record, encode_draft
from kourou.protocol.record.properties import encode_properties

HOST = encode_host(("127.0.0.1", 10911))
NOW_MS = 1_795_228_844_594
BATCHES = (1, 8, 64, 1000)
RECORDS_A_ROUND = 4000
CHAIN_BYTES = 128 * 1024 * 1024


def drafts_of(count: int, body: bytes, *, keys: bool) -> list[bytes]:
    """Drafts as the client encodes them, with properties in its order."""
    made = []
    for number, key in enumerate(KEYS.next_many(count, NOW_MS)):
        named = {"UNIQ_KEY": key, "TAGS": "TagA"}
        if keys:
            named["KEYS"] = f"order-{number:08}"
        named["CLUSTER"] = "DefaultCluster"
        made.append(
            encode_draft(
                topic=b"TopicTest",
                queue_id=number % 4,
                body=body,
                properties=encode_properties(named),
                born_timestamp=NOW_MS,
                born_host=HOST,
            )
        )
    return made


KEYS = UniqKeyGenerator(bytes([127, 0, 0, 1]), os.getpid(), 1)


def best_us(work: Callable[[], object], count: int, repeat: int) -> float:
    """µs per record: the best of several rounds of about RECORDS_A_ROUND records."""
    rounds = max(1, RECORDS_A_ROUND // count)
    best = float("inf")
    for _ in range(repeat):
        start = time.perf_counter()
        for _ in range(rounds):
            work()
        best = min(best, (time.perf_counter() - start) / rounds / count * 1e6)
    return best


def costs(count: int, body: bytes) -> dict[str, Callable[[], object]]:
    """The work on one batch of `count` records, step by step."""
    drafts = drafts_of(count, body, keys=True)
    blob = b"".join(drafts)
    sizes = np.asarray([len(draft) for draft in drafts])

    def append_copy() -> bytearray:
        stored = bytearray(blob)
        ends = np.zeros(1, np.int64)
        kernel.append(stored, sizes, None, ends, 0, 1 << 62, 1 << 30, NOW_MS, HOST)
        return stored

    records = bytes(append_copy())
    found = scan(records)

    def verify() -> bytearray:
        return kernel.verify(found.blob, found.starts, found.sizes, found.starts)

    assert all(verify())
    return {
        "encode properties and draft (client)": lambda: drafts_of(count, body, keys=True),
        "check_drafts": lambda: check_drafts(blob, sizes),
        "copy, number, place and stamp": append_copy,
        "scan": lambda: scan(records),
        "verify": verify,
        "project": lambda: kernel.project(found.blob, found.table),
        "decode_record (verify, properties)": lambda: list(map(decode_record, found.records())),
    }


def report(name: str, unit: str, value: float, **settings: object) -> None:
    print(json.dumps({"name": name, "unit": unit, "value": round(value, 3), "settings": settings}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--body", type=int, default=1024)
    parser.add_argument("--repeat", type=int, default=7)
    given = parser.parse_args()
    body = os.urandom(given.body)
    table = {count: costs(count, body) for count in BATCHES}
    print(f"record kernel: {kernel.NAME}")
    print(f"µs a record, bodies of {given.body} bytes" + " " * 10, *(f"{n:>9}" for n in BATCHES))
    figures = []
    for name in table[BATCHES[0]]:
        row = [best_us(table[count][name], count, given.repeat) for count in BATCHES]
        print(f"  {name:<40}", *(f"{value:>9.2f}" for value in row))
        figures += [(name, count, value) for count, value in zip(BATCHES, row, strict=True)]
    one = bytes(drafts_of(1, body, keys=True)[0])
    log = one * (CHAIN_BYTES // len(one))
    start = time.perf_counter()
    found = scan(log)
    seconds = time.perf_counter() - start
    print(f"  scan of one run of {len(log) >> 20} MiB: {len(log) / seconds / 2**20:,.0f} MiB/s")
    texts = [b"TopicTest#%032X" % number for number in range(1000)]
    hashing = best_us(lambda: [java_hash(text.decode()) for text in texts], 1000, given.repeat)
    print(f"  Java's hash of 42 bytes: {hashing:.2f} µs")
    for name, count, value in figures:
        report(name, "us/record", value, batch=count, body_bytes=given.body, kernel=kernel.NAME)
    report("scan of one run", "MiB/s", len(log) / seconds / 2**20, records=len(found))
    report("java_hash", "us/key", hashing, keys=1000)


if __name__ == "__main__":
    main()
