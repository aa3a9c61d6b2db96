"""`kourou bench fixture`: how long a test waits for the broker that the pytest plugin gives it.

Lives here: starts and first sends of `kourou.testing.cluster.Cluster`, which is what the fixture
starts. May not live here: a cluster of processes (kourou.cli.bench.measure).

State: none.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from kourou.cli.bench.figures import Figure

SECOND_MS = 1_000
STEPS = ("start", "start to first acknowledged send", "end")


def run_fixture_bench(rounds: int, *, as_json: bool) -> int:
    """Measure and print; never judges."""
    settings = {"kind": "fixture", "rounds": rounds, "storage": "memory", "brokers": 1}
    if not as_json:
        print(f"fixture: a name server and a broker in this process, {rounds} rounds")
    for figure in fixture_figures([_once() for _ in range(rounds)]):
        print(figure.as_json(settings) if as_json else figure.as_text(), flush=True)
    return 0


def fixture_figures(rounds: Sequence[tuple[float, ...]]) -> Iterator[Figure]:
    """The first round, which imports, and the median of all."""
    yield Figure("fixture, first start of a process", "ms", rounds[0][0] * SECOND_MS)
    for number, step in enumerate(STEPS):
        middle = statistics.median(one[number] for one in rounds)
        yield Figure(f"fixture, {step}", "ms", middle * SECOND_MS)


def _once() -> tuple[float, ...]:
    """Seconds of each step."""
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
    return started - began, sent - began, ended - ending
