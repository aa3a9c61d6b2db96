"""Measure what a message costs Kourou's processes: Python function calls and CPU time.

    .venv/bin/python benchmarks/calls.py [send-1 send-64 java-tx-1 http-consume …] [--seconds 3]
    .venv/bin/python benchmarks/calls.py remoting-64 signed-64
    .venv/bin/python benchmarks/calls.py send-64 --top 40
    .venv/bin/python benchmarks/calls.py send-1 send-64 … --write docs/profiles.md

A workload is a row of `kourou bench --peers`, or, with the prefix `http-`, one of `kourou bench
gateway`. `remoting-64` and `signed-64` send the same messages by RocketMQ's protocol: to a broker
without users, and signed by a user with a role and a policy. Servers and driver run on free ports
and in a temporary folder. CPU time is that of the whole process, measured without a profiler. A
second run counts the calls of Python functions on the main thread with cProfile. The profiler slows
a process down, so the process finds more messages per batch; with more than one send in flight the
number of calls is therefore a lower bound. `--top` prints profiles sorted by own time, including
built-in functions; `--write` writes the first of them as tables into a page.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import pstats
import signal
import sys
import tempfile
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec

from kourou.cli.checkout import find_checkout
from kourou.protocol import kernel
from kourou.service.local_cluster import ClusterSettings, LocalCluster
from kourou.service.os_processes import CpuReading
from kourou.service.processes import Children, free_port
from kourou_bench.driving import DriverOptions
from kourou_bench.flames import module_of
from kourou_bench.gateway_run import LINES
from kourou_bench.measure import Scale
from kourou_bench.peers import CACHE_FOLDER, machine_name
from kourou_bench.remoting_driver import ADMINISTRATOR, SECRETS
from kourou_bench.rocketmq import JavaAtKourou
from kourou_bench.rows import JAVA, ROWS, Name, Work
from kourou_bench.session import Driver, ready_driver
from kourou_bench.systems import FLUSH_TYPES, Gateway, Kourou, Running, RunningKourou, System
from kourou_rigs.key_folder import first_user

USUAL = ("send-1", "send-64", "send-1000", "batch-32", "tx-1", "tx-64")

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
"""A `sitecustomize` module, which Python imports first; two signals start and stop the profiler."""

NS_IN_US = 1_000
WAIT_S = 30.0


TABLES = "<!-- profiles -->\n"
"""What follows this line in a page is replaced."""

HOTTEST = 6
"""The number of functions in a table of the page."""


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of one message in one process.

    `hottest` are the functions with most own time: the share of it, the calls per message, a name.
    """

    cpu_us: float
    calls: float
    hottest: list[tuple[float, float, str]]


class Remoting(Kourou):
    """Kourou's servers, with users or without, and a driver of RocketMQ's protocol."""

    def __init__(self, *, users: bool) -> None:
        self._users = users
        self._brokers: dict[int, str] = {}

    def address(self, port: int) -> str:
        """The broker's address."""
        return self._brokers[port]

    def driver(self, options: DriverOptions) -> list[str]:
        """The driver of RocketMQ's protocol."""
        module = "kourou_bench.remoting_driver"
        return [sys.executable, "-m", module, *options.as_arguments()]

    @contextmanager
    def serve(self, folder: Path, port: int, flush: str) -> Iterator[Running]:
        """A name server and a broker."""
        folder.mkdir(parents=True, exist_ok=True)
        broker = {"flushDiskType": FLUSH_TYPES[flush]}
        if self._users:
            broker |= first_user(folder, f"{ADMINISTRATOR}:{SECRETS[ADMINISTRATOR]}")
        settings = ClusterSettings(broker=broker, namesrv={"zmqPort": str(port)})
        with LocalCluster(folder, settings) as cluster:
            self._brokers[port] = str(cluster.brokers[0].ready["tcp"])
            yield RunningKourou(cluster)


def works() -> dict[str, tuple[System, Work]]:
    """All workloads by name, with their servers and drivers."""
    checkout = find_checkout()
    java = JavaAtKourou(checkout / "benchmarks" / "java", checkout / CACHE_FOLDER, Name.ROCKETMQ)
    own = {"": Kourou(), JAVA: java}
    found: dict[str, tuple[System, Work]] = {
        row.name: (own[work.client], work)
        for row in ROWS
        if (work := row.works.get(Name.KOUROU)) is not None and work.client in own
    }
    for line in LINES:
        found[f"http-{line.name}"] = (Gateway(), line.works[Name.GATEWAY])
    found["remoting-64"] = (Remoting(users=False), Work("send", in_flight=64))
    found["signed-64"] = (Remoting(users=True), Work("send-signed", in_flight=64))
    return found


def run(
    system: System, work: Work, scale: Scale, top: int = 0, *, builtins: bool = False
) -> dict[str, Cost]:
    """Measure one workload and return the cost of each Kourou process."""
    with (
        tempfile.TemporaryDirectory(prefix="kourou-calls-") as text,
        Children(Path(text)) as children,
    ):
        folder, port = Path(text), free_port()
        (folder / "switch").mkdir()
        (folder / "switch" / "sitecustomize.py").write_text(SWITCH)
        os.environ |= {
            "PYTHONPATH": os.pathsep.join(
                (str(folder / "switch"), *filter(None, [os.environ.get("PYTHONPATH")]))
            ),
            "KOUROU_COUNT_FOLDER": text,
            "KOUROU_COUNT_BUILTINS": "1" if top or builtins else "",
        }
        with system.serve(folder / "servers", port, work.flush) as running:
            options = scale.options(work, system.address(port))
            driver = ready_driver(children, "driver", system.driver(options))
            pids = {
                module.rpartition(".")[2].removeprefix("kourou_"): pid
                for pid in (*running.pids, driver.pid)
                if (module := module_of(pid))
            }
            pids.pop("namesrv")
            return _measured(pids, driver, folder, scale.seconds, top)


def _measured(
    pids: Mapping[str, int], driver: Driver, folder: Path, seconds: float, top: int
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
        entries = stats.stats.items()  # type: ignore[attr-defined]
        calls = sum(entry[1] for (path, *_), entry in entries if path != "~")
        hottest = _hottest(entries, counted.messages)
        found[side] = Cost(cpu_us[side], calls / counted.messages, hottest)
        if top:
            print(f"-- {side}: {counted.messages:,} messages")
            stats.sort_stats("tottime").print_stats(top)
    return found


def _hottest(
    entries: Iterable[tuple[tuple[str, int, str], tuple[int, int, float, float, object]]],
    messages: int,
) -> list[tuple[float, float, str]]:
    whole = sum(entry[2] for _, entry in entries) or 1.0
    largest = sorted(entries, key=lambda one: one[1][2], reverse=True)[:HOTTEST]
    return [
        (entry[2] / whole, entry[1] / messages, _name_of(path, name))
        for (path, _, name), entry in largest
    ]


def _name_of(path: str, name: str) -> str:
    """Return a short name: `transport/zmtp.py:send`, or `sendmsg` of a built-in one."""
    if path == "~":  # "<built-in method posix.pwrite>", "<method 'send' of 'socket' objects>"
        named = name.strip("<>{}").removeprefix("built-in method ").removeprefix("method ")
        return named.partition(" of ")[0].strip("'").removeprefix("builtins.")
    return f"{'/'.join(Path(path).parts[-2:])}:{name}"


def _tables(costs: Mapping[str, Mapping[str, Cost]]) -> str:
    lines = [f"Measured {datetime.datetime.now(datetime.UTC).date()} on {machine_name()}.", ""]
    for work, sides in costs.items():
        lines += [f"### `{work}`", ""]
        lines += ["| process | CPU | Python calls | most own time |", "| --- | --- | --- | --- |"]
        for side, cost in sides.items():
            hottest = "; ".join(
                f"{share:.0%} `{name}` × {round(count) if count >= 10 else f'{count:.2g}'}"
                for share, count, name in cost.hottest
            )
            lines.append(f"| {side} | {cost.cpu_us:.1f} µs | {cost.calls:.1f} | {hottest} |")
        lines.append("")
    return "\n".join(lines)


def _written(path: Path) -> Path:
    """Wait until another process has written the file, and return its path."""
    waiting = threading.Event()
    for _ in range(int(WAIT_S / 0.01)):
        if path.exists():
            return path
        waiting.wait(0.01)
    raise SystemExit(f"no profile came within {WAIT_S:g} s")


def main() -> None:
    """Parse the arguments and measure."""
    assert __doc__
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("works", nargs="*", metavar="work", help=f"default: {' '.join(USUAL)}")
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--backlog", type=int, default=200_000, help="messages to consume")
    parser.add_argument("--top", type=int, default=0, metavar="N", help="print profiles")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--write", type=Path, metavar="PAGE", help="write the profiles into a page")
    chosen = parser.parse_args()
    known = works()
    unknown = [name for name in chosen.works if name not in known]
    if unknown:
        parser.error(f"{', '.join(unknown)}: choose from {', '.join(known)}")
    scale = Scale(seconds=chosen.seconds, backlog=chosen.backlog)
    if not chosen.json:
        print(f"record kernel: {kernel.NAME}; a message costs, by process:")
    every: dict[str, dict[str, Cost]] = {}
    for name in chosen.works or USUAL:
        costs = run(*known[name], scale, chosen.top, builtins=chosen.write is not None)
        every[name] = costs
        if chosen.json:
            print(json.dumps({"work": name, "kernel": kernel.NAME} | msgspec.to_builtins(costs)))
            continue
        text = "   ".join(
            f"{side} {cost.cpu_us:6.1f} µs, {cost.calls:6.1f} calls" for side, cost in costs.items()
        )
        print(f"{name:12} {text}", flush=True)
    if chosen.write is not None:
        before = chosen.write.read_text(encoding="utf-8").partition(TABLES)[0]
        chosen.write.write_text(f"{before}{TABLES}{_tables(every)}", encoding="utf-8")


if __name__ == "__main__":
    main()
