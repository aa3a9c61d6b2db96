"""Results of `kourou bench spark`: cost of reading and writing through Spark."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from kourou_bench.figures import Figure, quantiles

NS_IN_US = 1_000
NS_IN_S = 1_000_000_000
MIB = 1 << 20

PARQUET = "Parquet"
NETWORK = "network"
STORE = "store"
PULLS = "pull consumer"
WAYS = (PARQUET, NETWORK, STORE, PULLS)
"""The ways to read the rows, in the order of each round."""

OVER = ((NETWORK, PARQUET), (STORE, PARQUET), (NETWORK, PULLS))
"""Pairs of ways whose ratios are printed."""


@dataclass(frozen=True, slots=True)
class Pass:
    """The cost of reading or writing `rows` rows once.

    `cpu_ns` is the CPU time of all processes: Spark, the broker and the driver.
    """

    rows: int
    wall_ns: int
    cpu_ns: int

    @property
    def rate(self) -> float:
        """Rows per second."""
        return self.rows * NS_IN_S / self.wall_ns

    @property
    def cpu_us(self) -> float:
        """CPU time in microseconds per row."""
        return self.cpu_ns / NS_IN_US / self.rows


def reading_figures(size: int, rounds: Sequence[Mapping[str, Pass]]) -> Iterator[Figure]:
    """Rates, CPU time and ratios: medians of all rounds; a ratio is of values of the same round."""
    for way in WAYS:
        yield Figure(f"{size} B, {way}", "rows/s", median(one[way].rate for one in rounds))
        yield Figure(f"{size} B, {way}, CPU", "µs/row", median(one[way].cpu_us for one in rounds))
    for way, other in OVER:
        ratio = median(one[way].rate / one[other].rate for one in rounds)
        yield Figure(f"{size} B, {way} / {other}", "×", ratio)
        cost = median(one[way].cpu_us / one[other].cpu_us for one in rounds)
        yield Figure(f"{size} B, {way} / {other}, CPU", "×", cost)


def writing_figures(size: int, took: Mapping[str, Pass]) -> Iterator[Figure]:
    """Rate and CPU time of written rows, by delivery guarantee of the sink."""
    for promise, one in took.items():
        yield Figure(f"{size} B, sink, {promise}", "rows/s", one.rate)
        yield Figure(f"{size} B, sink, {promise}, CPU", "µs/row", one.cpu_us)


def stream_figures(waited_ns: Sequence[int], took_ns: int, batches: int) -> Iterator[Figure]:
    """A paced stream: time from the send of each message until a batch contains its row."""
    yield Figure("stream, rate", "rows/s", len(waited_ns) * NS_IN_S / took_ns)
    yield Figure("stream, batches", "", batches)
    yield from quantiles("stream, send to foreachBatch,", waited_ns)


def memory_figures(java_bytes: int, driver_bytes: int, tasks_bytes: int) -> Iterator[Figure]:
    """Peak memory of Java and of the driver's Python, and memory of the Python tasks at the end."""
    yield Figure("memory, driver's Java, peak", "MiB", java_bytes / MIB)
    yield Figure("memory, driver's Python, peak", "MiB", driver_bytes / MIB)
    yield Figure("memory, Python of tasks", "MiB", tasks_bytes / MIB)
