"""`kourou bench tracing`: what tracing costs a sender, compared with sends without it in one run.

Two clusters run at the same time: the broker and client of one trace, those of the other do not.
The same client process sends to them in turns, so other load on the machine affects both. Spans go
to a collector in this process, which reads and discards them.

State: soft.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import statistics
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from kourou.client.client import Client
from kourou.client.settings.client_settings import ClientSettings
from kourou.errors import ConfigError
from kourou.model.message import Message
from kourou.service.lifecycle import new_event_loop
from kourou.service.local_cluster import ClusterSettings, LocalCluster
from kourou.service.os_processes import CpuReading

TOPIC = "bench-tracing"
QUEUES = 8
CHUNK = 500


@dataclass(frozen=True, slots=True)
class TracingBench:
    """The parameters: what is sent, and which share is traced; both sides run `rounds` times in
    turns.
    """

    rounds: int = 5
    seconds: float = 3.0
    size: int = 1_024
    ratio: float = 0.01
    roots_per_s: int = 0
    """The most traces that start per second; 0: no limit. Applications use the client's default."""

    def __post_init__(self) -> None:
        """Raises ConfigError for parameters that cannot be measured."""
        if not 0.0 < self.ratio <= 1.0:
            raise ConfigError(f"--ratio {self.ratio} is not above 0 and at most 1")


@dataclass(frozen=True, slots=True)
class Turn:
    """One turn: sends per second, and CPU time of broker and client per send, in µs."""

    sends_per_s: float
    cpu_us: float


@dataclass(frozen=True, slots=True)
class _Sides:
    """The clusters without and with tracing, by name."""

    clusters: Mapping[str, LocalCluster]
    settings: Mapping[str, ClientSettings]


def run_tracing_bench(bench: TracingBench, *, as_json: bool) -> int:
    """Measure and print; there is no goal."""
    turns: dict[str, list[Turn]] = {"plain": [], "traced": []}
    with _clusters(bench) as sides, asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(_play(bench, sides, turns))
        spans = _spans_of(sides.clusters["traced"])
    report = {"kind": "tracing", **asdict(bench), **figures(turns), "spans": spans}
    if as_json:
        print(json.dumps(report), flush=True)
        return 0
    print(
        f"tracing: {bench.size:,} bytes, {CHUNK} messages in flight, {bench.ratio:.0%} traced"
        f"{f', at most {bench.roots_per_s} a second' if bench.roots_per_s else ''}; "
        f"{bench.rounds} rounds of {bench.seconds:g} s in turns"
    )
    for name, side in (("plain", "without"), ("traced", "with")):
        print(
            f"  {side:<8} {report[f'{name}_sends_per_s']:>10,.0f} sends/s"
            f"  {report[f'{name}_cpu_us']:>7.2f} µs of CPU per send"
        )
    print(f"  {spans:,} spans exported; ratio of sends {report['ratio_of_sends']:.3f}")
    return 0


def _spans_of(cluster: LocalCluster) -> int:
    """The number of spans that the cluster's broker reports as exported."""
    with urllib.request.urlopen(f"{cluster.brokers[0].ready['admin']}/metrics") as answer:
        page = answer.read().decode()
    found = re.search(r"^kourou_trace_spans_total{.*} (\S+)$", page, re.MULTILINE)
    return int(float(found[1])) if found else 0


def figures(turns: Mapping[str, list[Turn]]) -> dict[str, float]:
    """Medians of the turns; a ratio is the median of the ratios of the rounds."""
    found: dict[str, float] = {}
    for name, each in turns.items():
        found[f"{name}_sends_per_s"] = statistics.median(one.sends_per_s for one in each)
        found[f"{name}_cpu_us"] = statistics.median(one.cpu_us for one in each)
    pairs = list(zip(turns["traced"], turns["plain"], strict=True))
    found["ratio_of_sends"] = statistics.median(a.sends_per_s / b.sends_per_s for a, b in pairs)
    found["ratio_of_cpu"] = statistics.median(a.cpu_us / b.cpu_us for a, b in pairs)
    return found


@contextmanager
def _clusters(bench: TracingBench) -> Iterator[_Sides]:
    from kourou.telemetry.otlp_receiver import OtlpReceiver

    with ExitStack() as stack:
        for name in [name for name in os.environ if name.startswith("OTEL_")]:
            stack.callback(os.environ.__setitem__, name, os.environ.pop(name))
        collector = stack.enter_context(OtlpReceiver(keep=False)).endpoint
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kourou-bench-")))
        traced = ClientSettings(
            trace_otlp_endpoint=collector,
            trace_sample_ratio=bench.ratio,
            trace_roots_per_s=bench.roots_per_s,
        )
        brokers = {"plain": {}, "traced": {"traceOtlpEndpoint": collector}}
        clusters = {
            name: stack.enter_context(LocalCluster(folder / name, ClusterSettings(broker=broker)))
            for name, broker in brokers.items()
        }
        yield _Sides(clusters, {"plain": ClientSettings(tracing=False), "traced": traced})


async def _play(bench: TracingBench, sides: _Sides, turns: Mapping[str, list[Turn]]) -> None:
    clusters = sides.clusters
    clients = {
        name: Client(cluster.address, group=f"bench-{name}", settings=sides.settings[name])
        for name, cluster in clusters.items()
    }
    async with clients["plain"], clients["traced"]:
        for client in clients.values():
            await client.admin.topics.create(TOPIC, queues=QUEUES)
            await _turn(bench, client, 0, seconds=1.0)  # warm-up
        for number in range(bench.rounds):
            order = ("plain", "traced") if number % 2 == 0 else ("traced", "plain")
            for name in order:
                pid = clusters[name].brokers[0].pid
                turns[name].append(await _turn(bench, clients[name], pid))


async def _turn(
    bench: TracingBench, client: Client, pid: int, *, seconds: float | None = None
) -> Turn:
    """Send for a time; also measures the CPU time of this process and of `pid`."""
    body = b"x" * bench.size
    limit_s = bench.seconds if seconds is None else seconds
    before = CpuReading.of(pid) if pid else None
    computed_ns = -time.process_time_ns()
    began = time.perf_counter()
    sent = 0
    while (took := time.perf_counter() - began) < limit_s:
        await client.send_many([Message(TOPIC, body)] * CHUNK)
        sent += CHUNK
    computed_ns += time.process_time_ns() + (before.spent_ns() if before else 0)
    return Turn(sent / took, computed_ns / 1_000 / sent)
