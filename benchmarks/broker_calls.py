"""What a message costs in the broker and in the client: Python calls, and CPU time.

    .venv/bin/python benchmarks/broker_calls.py [send-1 send-64 …] [--seconds 3] [--json]
    .venv/bin/python benchmarks/broker_calls.py send-64 --top 40

A name server, a broker and the driver of `kourou bench` are started as always, on free ports and in
a temporary folder. CPU time is that of the whole process, measured without a profiler. Calls are
those of Python functions on the main thread, counted by cProfile in a second run. There a process
is slower, and so finds more messages at once: at more than one in flight calls are a lower bound.
`--top` prints profiles by own time, built-in functions included.
"""

from __future__ import annotations

import argparse
import json
import os
import pstats
import signal
import tempfile
import threading
from dataclasses import dataclass
from pathlib import Path

import msgspec

from kourou.cli.bench.driving import DriverOptions
from kourou.cli.bench.families import CpuReading
from kourou.cli.bench.session import Driver, ready_driver
from kourou.cli.bench.systems import Kourou
from kourou.protocol import kernel
from kourou.service.local_cluster import ClusterSettings, LocalCluster

WORKS: dict[str, dict[str, str | int]] = {
    "send-1": {"work": "send"},
    "send-64": {"work": "send", "in_flight": 64},
    "send-1000": {"work": "send", "in_flight": 1_000},
    "batch-32": {"work": "send", "in_flight": 8, "batch": 32},
    "oneway": {"work": "oneway", "in_flight": 4},
    "tx-1": {"work": "transactions"},
    "tx-64": {"work": "transactions", "in_flight": 64},
    "latency": {"work": "latency"},
}
"""Some rows of `kourou bench --peers`, as their driver is told."""

SWITCH = """
import atexit, cProfile, os, signal, time

profile = cProfile.Profile(time.thread_time, builtins=bool(os.environ["KOUROU_COUNT_BUILTINS"]))
target = os.path.join(os.environ["KOUROU_COUNT_FOLDER"], str(os.getpid()))

def begin(*_):
    profile.enable()

def end(*_):
    profile.disable()
    profile.dump_stats(target + ".part")
    os.rename(target + ".part", target)

signal.signal(signal.SIGUSR1, begin)
signal.signal(signal.SIGUSR2, end)
"""
"""Python imports this first in every process: two signals begin and end the count."""

NS_IN_US = 1_000
WAIT_S = 30.0


@dataclass(frozen=True, slots=True)
class Cost:
    """Of a message, on one side."""

    cpu_us: float
    calls: float


def run(name: str, seconds: float, top: int) -> dict[str, Cost]:
    """Measure one work: the costs of broker and client."""
    with tempfile.TemporaryDirectory(prefix="kourou-calls-") as text:
        folder = Path(text)
        (folder / "switch").mkdir()
        (folder / "switch" / "sitecustomize.py").write_text(SWITCH)
        os.environ |= {
            "PYTHONPATH": str(folder / "switch"),
            "KOUROU_COUNT_FOLDER": text,
            "KOUROU_COUNT_BUILTINS": "1" if top else "",
        }
        with LocalCluster(folder / "servers", ClusterSettings()) as cluster:
            options = msgspec.convert({"address": cluster.address} | WORKS[name], DriverOptions)
            driver = ready_driver(cluster.children, "driver", Kourou().driver(options))
            return _measured(
                {"broker": cluster.brokers[0].pid, "client": driver.pid},
                driver,
                folder,
                seconds,
                top,
            )


def _measured(
    pids: dict[str, int], driver: Driver, folder: Path, seconds: float, top: int
) -> dict[str, Cost]:
    driver.measure(seconds)
    readings = {side: CpuReading.of(pid) for side, pid in pids.items()}
    plain = driver.measure(seconds)
    cpu_us = {side: one.spent_ns() / NS_IN_US / plain.messages for side, one in readings.items()}
    for pid in pids.values():
        os.kill(pid, signal.SIGUSR1)
    counted = driver.measure(seconds)
    found: dict[str, Cost] = {}
    for side, pid in pids.items():
        os.kill(pid, signal.SIGUSR2)
        stats = pstats.Stats(str(_written(folder / str(pid))))
        calls = sum(
            entry[1]
            for (path, *_), entry in stats.stats.items()  # type: ignore[attr-defined]
            if path != "~"
        )
        found[side] = Cost(cpu_us[side], calls / counted.messages)
        if top:
            print(f"-- {side}: {counted.messages:,} messages")
            stats.sort_stats("tottime").print_stats(top)
    return found


def _written(path: Path) -> Path:
    """A file that another process is about to write."""
    waiting = threading.Event()
    for _ in range(int(WAIT_S / 0.01)):
        if path.exists():
            return path
        waiting.wait(0.01)
    raise SystemExit(f"no profile came within {WAIT_S:g} s")


def main() -> None:
    """Read the arguments and measure."""
    assert __doc__
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("works", nargs="*", metavar="work", help=f"of {', '.join(WORKS)}")
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--top", type=int, default=0, metavar="N", help="print profiles")
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args()
    unknown = [name for name in chosen.works if name not in WORKS]
    if unknown:
        parser.error(f"{', '.join(unknown)}: choose from {', '.join(WORKS)}")
    if not chosen.json:
        print(f"record kernel: {kernel.NAME}; a message costs, in broker and client:")
    for name in chosen.works or WORKS:
        costs = run(name, chosen.seconds, chosen.top)
        if chosen.json:
            print(json.dumps({"work": name, "kernel": kernel.NAME} | msgspec.to_builtins(costs)))
            continue
        told = "   ".join(
            f"{side} {cost.cpu_us:6.1f} µs, {cost.calls:6.1f} calls" for side, cost in costs.items()
        )
        print(f"{name:10} {told}", flush=True)


if __name__ == "__main__":
    main()
