"""Measure how long a test waits for the broker of the pytest plugin.

    python benchmarks/fixture.py [--rounds N]

Starts what the fixture `kourou_broker` starts, sends a message and stops it. Prints the median of
all rounds in milliseconds for each step, and one JSON line per value. The first start in a process,
which includes the imports, is listed separately. The script asserts nothing.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path

STEPS = ("start", "start to first acknowledged send", "end")


def once() -> tuple[float, ...]:
    """Start, send and stop once; returns the milliseconds of each step."""
    with tempfile.TemporaryDirectory(prefix="kourou-bench-") as folder:
        began = time.perf_counter()
        from kourou.sync import Client
        from kourou.testing.cluster import Cluster

        with Cluster(Path(folder)) as cluster:
            started = time.perf_counter()
            with Client(cluster.address) as client:
                client.send("bench-fixture", b"first")
                sent = time.perf_counter()
            ending = time.perf_counter()
        ended = time.perf_counter()
    return tuple(1_000 * took for took in (started - began, sent - began, ended - ending))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=10)
    rounds = [once() for _ in range(parser.parse_args().rounds)]
    figures = {"first start of a process": rounds[0][0]}
    for number, step in enumerate(STEPS):
        figures[step] = statistics.median(one[number] for one in rounds)
    for name, value in figures.items():
        print(f"  {name:<40} {value:>9.1f} ms")
    for name, value in figures.items():
        settings = {"rounds": len(rounds), "storage": "memory", "brokers": 1}
        print(json.dumps({"name": name, "unit": "ms", "value": value, "settings": settings}))


if __name__ == "__main__":
    main()
